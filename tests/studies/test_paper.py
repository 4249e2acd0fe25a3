import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from small_studies import own_generators, small_recipe

from joem import cli, engine, protocols, recipe, studies
from joem.errors import BadUsage, JoemError
from joem.report.sheets import spread_unseen
from joem.studies import comparison, figures, paper, request
from joem.studies.paper import JOBS, Request, reproduce


@pytest.fixture
def quick(monkeypatch):
    """Every recipe of the box is a tiny one that decides as the paper's, and what was trained is noted."""
    trained, original = [], engine.train
    tiny = small_recipe(data={"val_count": 6}, decision={"rule": "ac", "sigma": 0.7071})

    def train(settings, out, **options):
        trained.append((settings.method.name, *(getattr(settings.method, name, None) for name in ("r", "sc_weight"))))
        return original(settings, out, **options)

    def load(name, changes):
        return tiny.changed(**{section: values for section, values in changes.items() if section != "data"})

    monkeypatch.setattr(recipe, "load", load)
    monkeypatch.setattr(request, "load_own", lambda name, changes: own_generators(load(name, changes)))
    monkeypatch.setattr(engine, "train", train)
    return trained


@pytest.fixture
def without_folds(monkeypatch):
    """Comparisons of one seed that choose nothing."""
    original = comparison.compare

    def compare(settings, out, table, names, seeds, folds, own, **options):
        assert (seeds, folds) in {(3, 3), (1, 3)}  # a table, a figure
        assert options == {"lambdas": None, "timing": False}
        return original(settings, out, table, names, seeds=1, folds=0, own=own)

    monkeypatch.setattr(comparison, "compare", compare)


def test_the_ablation_sets_published_values_beside_ours_and_goes_on_where_it_stopped(
    quick, without_folds, tmp_path, capsys
):
    words = ["reproduce", "table2", "--scale", "lite", "--out", str(tmp_path), "--json"]
    assert cli.main(words) == 0
    rows = json.loads(capsys.readouterr().out)
    assert quick == [("joem", r, weight) for r, weight in ((1, 0.0), (4, 0.0), (1, 0.1), (4, 0.1))]
    assert rows[-1]["what"] == "voc-zs3-4: L_ce + L_bar + L_sc, AC"
    assert rows[-1]["published"] == {"seen": 35.7, "unseen": 31.8, "hiou": 33.7}
    assert rows[-1]["published_on"] == "context-zs3-4"
    assert {row["had_seen_before"] for row in rows} == {"backbone: nothing; words: text"}
    assert cli.main(words[:-1]) == 0
    assert "35.7 / 31.8 / 33.7  context-zs3-4 backbone: nothing; words: text" in capsys.readouterr().out
    assert len(quick) == 4  # nothing was trained again
    assert json.loads((tmp_path / "table2-lite.json").read_text())["rows"] == rows
    assert cli.main([*words, "--vectors", "use"]) == 1
    assert "recipe.semantics.vectors was 'glove', now 'use'" in capsys.readouterr().err


def test_every_class_stands_beside_the_published_one(quick, without_folds, tmp_path):
    rows = reproduce(Request("supp-table2", tmp_path, "lite"))
    assert [row["published"]["hiou"] for row in rows] == [38.3, 40.6, 43.4, 44.6]
    assert rows[0]["what"] == "voc-zs3-4: ZS3Net as published, unseen weight 100"
    assert [row["published_per_class"][1] for row in rows] == [32.8, 37.1, 35.6, 36.2]
    assert "background" in rows[-1]["per_class"]
    assert [name for name, *_ in quick if name != "zs3net"][:1] == ["zs3net_joem"]
    assert (tmp_path / "supp-table2-lite/voc-zs3-4/per-class.md").is_file()


def test_jobs_in_one_folder_share_their_runs_and_a_failure_keeps_the_rest(quick, without_folds, tmp_path, monkeypatch):
    job = JOBS["supp-table3"]
    monkeypatch.setitem(JOBS, "supp-table3", replace(job, methods=("spnet", "joem")))
    rows = reproduce(Request("supp-table3", tmp_path, "lite"))
    assert [row["what"] for row in rows] == [f"voc-spnet: {what}" for what in ("SPNet", "JoEm", "JoEm without AC")]
    assert rows[-1]["published"]["hiou"] == 44.1  # without the circle
    monkeypatch.setitem(JOBS, "supp-table3", replace(job, methods=("devise", "joem")))

    def fail(*_, **__):
        raise JoemError("out of luck")

    monkeypatch.setattr(engine, "train", fail)
    with pytest.raises(JoemError, match="voc-spnet: devise: out of luck"):
        reproduce(Request("supp-table3", tmp_path, "lite"))
    kept = json.loads((tmp_path / "supp-table3-lite.json").read_text())["rows"]
    assert [row["what"] for row in kept] == ["voc-spnet: JoEm", "voc-spnet: JoEm without AC"]


def test_figure_5_is_drawn_beside_the_published_scores(quick, tmp_path):
    rows = reproduce(Request("fig5", tmp_path, "lite"))
    assert [row["what"].split(",")[0] for row in rows] == ["cs", "ac"]
    assert [row["published"]["hiou"] for row in rows] == [32.3, 33.7]
    assert {path.name for path in tmp_path.glob("*.png")} == {"fig5-lite-trade-off.png", "fig5-lite-errors.png"}
    assert quick == [("joem", 4, 0.1)]
    assert reproduce(Request("fig5", tmp_path, "lite")) == rows
    assert len(quick) == 1
    curves = json.loads((tmp_path / "runs/lite/voc-zs3-4/curves.json").read_text())["result"]
    assert 0.7071 in [point["sigma"] for point in curves["ac"]["points"]]
    assert len(curves["cs"]["points"]) == 49  # not the paper's gammas, which fit its scale of distances


def test_a_study_is_drawn_over_its_setting_across_runs(quick, tmp_path, monkeypatch):
    drawn = {}
    original = paper.plots.save

    def save(figure, path):
        drawn[path.stem] = figure
        return original(figure, path)

    monkeypatch.setattr(paper.plots, "save", save)
    monkeypatch.setitem(JOBS, "supp-fig2", replace(JOBS["supp-fig2"], values=(1, 2)))  # the recipe's own comes along
    rows = reproduce(Request("supp-fig2", tmp_path, "lite"))
    assert [r for _, r, _ in quick] == [1, 2, 4]
    assert [row["what"] for row in rows] == [f"voc-zs3-4: r {r}, AC, sigma 0.707" for r in (1, 2, 4)]
    assert [row["published"] and row["published"]["hiou"] for row in rows] == [None, None, 44.6]  # the recipe's own r
    (axes,) = drawn["supp-fig2-lite-voc-zs3-4-r"].axes
    assert axes.get_xlabel() == "r, by AC, sigma 0.707"
    (hiou,) = [line for line in axes.lines if line.get_label() == "hIoU"]
    assert list(hiou.get_xdata()) == [1, 2, 4]
    assert list(hiou.get_ydata()) == [row["hiou"] for row in rows]
    assert set(drawn) == {f"supp-fig2-lite-voc-zs3-4-{name}" for name in ("r", "sigma")}


def test_lambda_is_studied_at_the_papers_sigma_with_the_recipes_own_values_on_both_grids(quick, tmp_path, monkeypatch):
    study = replace(JOBS["supp-fig3"], protocols={"lite": ["voc-zs3-4"]}, values=(0.01, 1.0))
    monkeypatch.setitem(JOBS, "supp-fig3", study)
    rows = reproduce(Request("supp-fig3", tmp_path, "lite"))
    assert [weight for _, _, weight in quick] == [0.01, 0.1, 1.0]  # the recipe's own among them
    whats = [f"voc-zs3-4: λ {value}, AC, sigma {sigma}" for sigma in (0.5, 0.707) for value in ("0.01", "0.1", "1")]
    assert [row["what"] for row in rows] == whats
    assert [bool(row["published"]) for row in rows] == [False] * 4 + [True, False]
    for row, value in zip(rows, (0.01, 0.1, 1), strict=False):
        curves = json.loads((tmp_path / f"runs/lite/voc-zs3-4-sc_weight-{value:g}/curves.json").read_text())["result"]
        (point,) = [point for point in curves["ac"]["points"] if point["sigma"] == 0.5]
        assert row["hiou"] == point["hiou"]
    drawn = {path.stem.removeprefix("supp-fig3-lite-voc-zs3-4-") for path in tmp_path.glob("*.png")}
    assert drawn == {"sc_weight", "sc_weight-own-sigma", "sigma"}


def test_pictures_loss_by_loss_come_from_the_runs_of_the_table(quick, without_folds, tmp_path, monkeypatch):
    drawn = []
    original = figures.picture_grid
    monkeypatch.setattr(figures, "picture_grid", lambda *parts, **more: drawn.append(parts) or original(*parts, **more))
    rows = reproduce(Request("supp-fig5", tmp_path, "lite"))
    assert quick == [("joem", r, weight) for r, weight in ((1, 0.0), (4, 0.0), (1, 0.1), (4, 0.1))]
    ((columns, problem, indices),) = drawn
    losses = ["L_ce + L_center", "L_ce + L_bar", "L_ce + L_center + L_sc", "L_ce + L_bar + L_sc", "L_ce + L_bar + L_sc"]
    assert [column.title for column in columns] == [
        f"{title}\n{rule}" for title, rule in zip(losses, ["NN"] * 4 + ["AC, sigma 0.707"], strict=True)
    ]
    assert [column.model.recipe.method.r for column in columns] == [1, 4, 1, 4, 4]
    assert indices == spread_unseen(problem)
    assert [row["published"]["hiou"] for row in rows] == [15.8, 16.7, 17.8, 19.0, 33.7]
    image = Image.open(tmp_path / "supp-fig5-lite-voc-zs3-4.png")
    assert image.width >= 7 * 256
    reproduce(Request("table2", tmp_path, "lite"))
    assert len(quick) == 4  # the same runs


@pytest.mark.parametrize(
    ("name", "trained", "masked"),
    [("supp-fig7", ["zs3net", "joem"], False), ("supp-fig9", ["cagnet", "joem"], True)],
)
def test_pictures_of_two_systems(name, trained, masked, quick, without_folds, tmp_path, monkeypatch):
    masks = []
    original = figures.picture_grid

    def picture_grid(*parts, mask_background=False):
        masks.append(mask_background)
        return original(*parts, mask_background)

    monkeypatch.setattr(figures, "picture_grid", picture_grid)
    rows = reproduce(Request(name, tmp_path, "lite"))
    assert list(dict.fromkeys(method for method, *_ in quick)) == trained
    assert all(row["what"].endswith(rule) for row, rule in zip(rows, (", NN", ", AC, sigma 0.707"), strict=True))
    assert masks == [masked]
    assert len(list(tmp_path.glob(f"{name}-lite-*.png"))) == 1


def test_two_spaces_and_boundaries_are_drawn_side_by_side(quick, without_folds, tmp_path, monkeypatch):
    stars, factors = [], []
    space, pull = figures.embedding.space, figures.embedding.boundary_pull
    monkeypatch.setattr(figures.embedding, "space", lambda *parts: stars.append(parts[3]) or space(*parts))
    monkeypatch.setattr(figures.embedding, "boundary_pull", lambda *parts: factors.append(parts[2]) or pull(*parts))
    reproduce(Request("fig1", tmp_path, "lite"))
    assert [method for method, *_ in quick] == ["zs3net", "joem"]
    generated, none = stars
    assert none is None  # its own prototypes
    assert (generated.shape[1], generated[:, -1].count_nonzero()) == (9, 0)
    reproduce(Request("fig2b", tmp_path, "lite"))
    assert factors == [4, 4]
    assert quick[2:] == [("joem", 1, 0.0), ("joem", 4, 0.0)]
    widths = {name: Image.open(tmp_path / f"{name}-lite-voc-zs3-4.png").size for name in ("fig1", "fig2b")}
    assert widths == {"fig1": (1728, 1536), "fig2b": (1728, 864)}


def test_the_settings_table_needs_no_training(tmp_path, capsys):
    assert cli.main(["reproduce", "supp-table1", "--scale", "paper", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    assert lines[0][1:4] == ["splits", "training", "inference"]
    assert lines[2] == [
        "ZS3Net, published", "5", "exclude (unseen classes)", "-", "DeepLabV3+ (ResNet-101)",
        "ImageNet, seen classes only", "word2vec",
    ]  # fmt: skip
    assert lines[5][:5] == [
        "SPNet, paper-spnet-setting", "1", "ignore (background & unseen classes)", "ignore (background)",
        "deeplabv2 (resnet101)",
    ]  # fmt: skip
    assert (tmp_path / "supp-table1-paper.md").read_text() in printed


def test_every_job_trains_recipes_of_the_box(tmp_path):
    for name, job in JOBS.items():
        assert "paper" in job.protocols
        for scale, used in job.protocols.items():
            for protocol in used:
                settings = Request(name, tmp_path, scale, root="here").settings(protocol)
                found = settings.data
                assert (found.protocol, found.kind, found.root) == (protocol, protocols.get(protocol).dataset, "here")
                assert settings.method.name == "joem"
    table1 = JOBS["table1"]
    assert len(table1.protocols["paper"]) == 10
    assert set(table1.methods) == set(protocols.get("voc-zs3-2").published)


def test_the_page_lists_every_job_with_what_it_shows_and_how_much_it_trains(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    for name, job in JOBS.items():
        lite, paper, official = (
            len(studies.trainings(Request(name, tmp_path, scale))) if scale in studies.scales(job) else "-"
            for scale in ("lite", "paper", "official")
        )
        assert f"| `{name}` | {job.about} | {lite} | {paper} | {official} |" in page, name


def test_rows_have_their_own_recipes_on_every_split(tmp_path):
    asked = Request("table1", tmp_path, "lite", root="here", vectors={"": "use"})
    base, changes = asked.settings("voc-zs3-8"), asked.changes("voc-zs3-8")
    own = studies.load_own(asked.base("voc-zs3-8"), changes)
    assert own["joem"] == base
    assert (own["zs3net"].data, own["zs3net"].semantics) == (base.data, base.semantics)
    assert own["zs3net"].method.fit_kernels


def test_what_cannot_be_run_says_so(tmp_path, capsys):
    with pytest.raises(BadUsage, match="supp-fig4 needs data that have no lite recipe"):
        reproduce(Request("supp-fig4", tmp_path, "lite"))
    with pytest.raises(BadUsage, match="Unknown job 'fig9'"):
        reproduce(Request("fig9", tmp_path))
    with pytest.raises(BadUsage, match="Unknown scale 'tiny'"):
        reproduce(Request("fig5", tmp_path, "tiny"))
    assert cli.main(["reproduce"]) == 0
    assert "supp-fig3" in capsys.readouterr().out
