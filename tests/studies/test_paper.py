import json
from dataclasses import replace

import pytest

from joem import cli, compare, engine, protocols, recipe, reproduce
from joem.errors import BadUsage, JoemError


@pytest.fixture
def quick(tiny, monkeypatch):
    """Every recipe of the box is a tiny one with the settings of a lite one, and what was trained is noted."""
    trained = []
    original = engine.train

    def train(settings, out, **options):
        trained.append((settings.method.name, settings.method.names, settings.method.r, settings.method.sc_weight))
        return original(settings, out, **{**options, "progress": False})

    tiny.data = replace(tiny.data, train_count=24, crop=32, size=32)
    tiny.train.epochs = 1
    tiny.method = replace(tiny.method, name="joem-cosine", names="strict")
    tiny.method.generator = replace(tiny.method.generator, samples=8, noise=4, hidden=8)
    tiny.decision.sigma = 0.7071
    monkeypatch.setattr(recipe, "load", lambda name: tiny)
    monkeypatch.setattr(engine, "train", train)
    return trained


@pytest.fixture
def without_folds(monkeypatch):
    """Comparisons of one seed that choose nothing."""
    original = compare.run
    monkeypatch.setattr(compare, "run", lambda *args, **_: original(*args, seeds=1, folds=0, progress=False))


def test_the_ablation_sets_published_values_beside_ours_and_goes_on_where_it_stopped(
    quick, without_folds, tmp_path, capsys
):
    words = ["reproduce", "table2", "--scale", "lite", "--out", str(tmp_path), "--json"]
    assert cli.main(words) == 0
    rows = json.loads(capsys.readouterr().out)
    assert quick == [("joem", "none", r, weight) for r, weight in ((1, 0.0), (4, 0.0), (1, 0.1), (4, 0.1))]
    assert rows[-1]["what"] == "voc-zs3-4-lite: L_ce + L_bar + L_sc, AC"
    assert rows[-1]["published"] == {"seen": 35.7, "unseen": 31.8, "hiou": 33.7}
    assert rows[-1]["published_on"] == "context-zs3-4"
    assert cli.main(words[:-1]) == 0
    assert "35.7 / 31.8 / 33.7  context-zs3-4" in capsys.readouterr().out
    assert len(quick) == 4  # nothing was trained again
    assert json.loads((tmp_path / "table2-lite.json").read_text())["rows"] == rows
    assert cli.main([*words, "--vectors", "use"]) == 1
    assert "holds a run of another recipe" in capsys.readouterr().err


def test_every_class_stands_beside_the_published_one(quick, without_folds, tmp_path):
    rows = reproduce.reproduce("supp-table2", tmp_path, "lite")
    assert [row["published"]["hiou"] for row in rows] == [40.6, 43.4, 44.6]
    assert rows[-1]["published_per_class"][1] == 36.2
    assert "background" in rows[-1]["per_class"]
    assert [name for name, *_ in quick] == ["zs3net", "zs3net_joem", "joem"]
    assert (tmp_path / "supp-table2-lite/voc-zs3-4-lite/methods.md").is_file()


def test_jobs_in_one_folder_share_their_runs_and_a_failure_keeps_the_rest(quick, without_folds, tmp_path, monkeypatch):
    job = reproduce.JOBS["supp-table3"]
    monkeypatch.setitem(reproduce.JOBS, "supp-table3", replace(job, methods=("spnet", "joem")))
    rows = reproduce.reproduce("supp-table3", tmp_path, "lite")
    assert [row["what"] for row in rows] == [f"voc-spnet-lite: {what}" for what in ("SPNet", "JoEm", "JoEm without AC")]
    assert rows[-1]["published"]["hiou"] == 44.1  # without the circle
    monkeypatch.setitem(reproduce.JOBS, "supp-table3", replace(job, methods=("devise", "joem")))

    def fail(*_, **__):
        raise JoemError("out of luck")

    monkeypatch.setattr(engine, "train", fail)
    with pytest.raises(JoemError, match="voc-spnet-lite: devise: out of luck"):
        reproduce.reproduce("supp-table3", tmp_path, "lite")
    kept = json.loads((tmp_path / "supp-table3-lite.json").read_text())["rows"]
    assert [row["what"] for row in kept] == ["voc-spnet-lite: JoEm", "voc-spnet-lite: JoEm without AC"]


def test_figure_5_is_drawn_beside_the_published_scores(quick, tmp_path):
    rows = reproduce.reproduce("fig5", tmp_path, "lite")
    assert [row["what"].split(",")[0] for row in rows] == ["cs", "ac"]
    assert [row["published"]["hiou"] for row in rows] == [32.3, 33.7]
    assert {path.name for path in tmp_path.glob("*.png")} == {"fig5-lite-trade-off.png", "fig5-lite-errors.png"}
    assert quick == [("joem", "none", 4, 0.1)]


def test_a_study_is_drawn_over_its_setting_across_runs(quick, tmp_path, monkeypatch):
    drawn = {}
    original = reproduce.plots.save

    def save(figure, path):
        drawn[path.stem] = figure
        return original(figure, path)

    monkeypatch.setattr(reproduce.plots, "save", save)
    rows = reproduce.reproduce("supp-fig2", tmp_path, "lite")
    assert [r for _, _, r, _ in quick] == [1, 2, 4]
    assert [row["what"] for row in rows] == [f"voc-zs3-4-lite: r {r}" for r in (1, 2, 4)]
    assert [row["published"] and row["published"]["hiou"] for row in rows] == [None, None, 44.6]  # the recipe's own r
    (axes,) = drawn["supp-fig2-lite-voc-zs3-4-lite-r"].axes
    assert axes.get_xlabel() == "r"
    (hiou,) = [line for line in axes.lines if line.get_label() == "hIoU"]
    assert list(hiou.get_xdata()) == [1, 2, 4]
    assert list(hiou.get_ydata()) == [row["hiou"] for row in rows]
    assert set(drawn) == {f"supp-fig2-lite-voc-zs3-4-lite-{name}" for name in ("r", "sigma")}


def test_every_job_trains_recipes_of_the_box_with_their_own_values_on_its_grid():
    for name, job in reproduce.JOBS.items():
        assert "paper" in job.recipes
        for recipes in job.recipes.values():
            for each in recipes:
                settings = recipe.load(each)
                assert settings.data.protocol == each.removesuffix("-lite")
                if isinstance(job, reproduce.Study):
                    assert getattr(settings.method, job.setting) in job.values, name
    table1 = reproduce.JOBS["table1"]
    assert len(table1.recipes["paper"]) == 10
    assert set(table1.methods) == set(protocols.get("voc-zs3-2").published)


def test_figures_train_the_objective_as_its_own_recipe_does(tmp_path):
    found, own = reproduce.Workplace("fig5", tmp_path, "lite").objective("voc-zs3-8-lite", r=1), "voc-zs3-4-lite-joem"
    assert (found.data.protocol, found.method.name, found.method.r) == ("voc-zs3-8", "joem", 1)
    assert (found.train, found.decision) == (recipe.load(own).train, recipe.load(own).decision)


def test_what_cannot_be_run_says_so(tmp_path, capsys):
    with pytest.raises(BadUsage, match="supp-fig4 needs data that have no lite recipe"):
        reproduce.reproduce("supp-fig4", tmp_path, "lite")
    with pytest.raises(BadUsage, match="Unknown job 'fig9'"):
        reproduce.reproduce("fig9", tmp_path)
    with pytest.raises(BadUsage, match="Unknown scale 'tiny'"):
        reproduce.reproduce("fig5", tmp_path, "tiny")
    assert cli.main(["reproduce"]) == 0
    assert "supp-fig3" in capsys.readouterr().out
