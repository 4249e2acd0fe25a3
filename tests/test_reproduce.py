import json

import pytest

from joem import cli, engine, recipe, reproduce
from joem.errors import BadUsage


@pytest.fixture
def quick(tiny, monkeypatch):
    """Every recipe of the box is the tiny one, and what was trained is noted."""
    trained = []
    original = engine.train

    def train(settings, out, **options):
        trained.append((settings.method.r, settings.method.sc_weight))
        return original(settings, out, progress=False, **options)

    tiny.train.epochs = 1
    monkeypatch.setattr(recipe, "load", lambda name: tiny)
    monkeypatch.setattr(engine, "train", train)
    return trained


def test_the_ablation_sets_published_values_beside_ours_and_goes_on_where_it_stopped(quick, tmp_path, capsys):
    words = ["reproduce", "table2", "--scale", "lite", "--out", str(tmp_path), "--json"]
    assert cli.main(words) == 0
    rows = json.loads(capsys.readouterr().out)
    assert quick == [(1, 0.0), (4, 0.0), (1, 0.1), (4, 0.1)]
    assert [row["what"] for row in rows][-2:] == ["ce+bar+sc, cs", "ce+bar+sc, ac"]
    assert rows[-1]["published"] == {"seen": 35.7, "unseen": 31.8, "hiou": 33.7}
    assert cli.main(words[:-1]) == 0
    assert "35.7 / 31.8 / 33.7" in capsys.readouterr().out
    assert len(quick) == 4  # nothing was trained again
    assert json.loads((tmp_path / "table2-lite.json").read_text())["rows"] == rows
    assert cli.main([*words, "--vectors", "use"]) == 2
    assert "holds a run of another recipe" in capsys.readouterr().err


def test_figure_5_is_drawn(quick, tmp_path):
    rows = reproduce.reproduce("fig5", tmp_path, "lite")
    assert [row["what"].split(",")[0] for row in rows] == ["cs", "ac"]
    assert {path.name for path in tmp_path.glob("*.png")} == {"fig5-lite-trade-off.png", "fig5-lite-errors.png"}


def test_every_job_has_its_runs_and_names_its_protocol():
    for job in reproduce.JOBS.values():
        assert "paper" in job.runs
        for runs in job.runs.values():
            assert len({run.name for run in runs}) == len(runs)
    assert len(reproduce.JOBS["supp-fig3"].runs["lite"]) == 25


def test_rows_of_a_parameter_study_carry_the_split_s_published_scores(quick, tmp_path):
    rows = reproduce.reproduce("supp-fig2", tmp_path, "lite")
    assert rows[1]["published"]["hiou"] == 44.6
    assert rows[0]["what"] == "voc-zs3-4-lite-r-1, nn"


def test_what_cannot_be_run_says_so(tmp_path, capsys):
    with pytest.raises(BadUsage, match="supp-fig4 needs data that have no lite recipe"):
        reproduce.reproduce("supp-fig4", tmp_path, "lite")
    with pytest.raises(BadUsage, match="Unknown job 'fig9'"):
        reproduce.reproduce("fig9", tmp_path)
    with pytest.raises(BadUsage, match="Unknown scale 'tiny'"):
        reproduce.reproduce("fig5", tmp_path, "tiny")
    assert cli.main(["reproduce"]) == 0
    assert "supp-fig3" in capsys.readouterr().out
