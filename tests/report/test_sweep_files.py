import json

import pytest

from joem import cli, engine, progress


@pytest.fixture(scope="module")
def trained(shared_tiny, tmp_path_factory):
    run = tmp_path_factory.mktemp("trained") / "run"
    with progress.hidden():
        engine.train(shared_tiny.changed(train={"epochs": 1}, data={"val_count": 6}), run)
    return run


def command(capsys, *words):
    code = cli.main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_sweep_writes_curves_that_agree_with_evaluate(trained, capsys):
    code, printed, _ = command(capsys, "sweep", trained, "--sigmas", "0.9,0.5", "--gammas", "0.5", "--json")
    assert code == 0
    curves = {curve["rule"]: curve for curve in json.loads(printed)}
    assert list(curves) == ["cs", "ac", "ratio", "probability"]
    assert [point["sigma"] for point in curves["ac"]["points"]] == [1.0, 0.9, 0.5]
    assert [point["gamma"] for point in curves["cs"]["points"]] == [0.0, 0.5]
    for rule, parameter in (("ac", "sigma"), ("cs", "gamma")):
        value = curves[rule]["points"][1][parameter]
        _, printed, _ = command(capsys, "evaluate", trained, "--rule", rule, f"--{parameter}", value, "--json")
        for key in ("miou_seen", "miou_unseen", "hiou"):
            assert curves[rule]["points"][1][key] == json.loads(printed)[0][key]
    files = {path.name for path in (trained / "sweep").iterdir()}
    plots = {f"{name}.png" for name in ("trade-off", "errors", *curves)}
    assert files == {"curves.csv", "curves.json", *plots}
    head, *lines = (trained / "sweep" / "curves.csv").read_text().splitlines()
    assert head == "rule,parameter,value,miou_seen,miou_unseen,hiou,true_unseen,seen_as_unseen"
    assert len(lines) == 2 + 3 + 3 + len(curves["probability"]["points"])


def test_sweep_prints_a_table_and_refuses_what_it_cannot_sweep(trained, tmp_path, capsys):
    code, printed, _ = command(capsys, "sweep", trained, "--rules", "ac", "--out", tmp_path / "curves")
    assert code == 0
    assert "best with hindsight" in printed
    assert "area under ac" in printed
    assert (tmp_path / "curves" / "ac.png").exists()
    code, _, error = command(capsys, "sweep", trained, "--rules", "ac,nn")
    assert code == 2
    assert "Unknown rule to sweep 'nn'" in error
    code, _, error = command(capsys, "sweep", trained, "--sigmas", "a,b")
    assert code == 2
    assert "--sigmas takes numbers separated by commas, got 'a,b'" in error
    code, _, error = command(capsys, "sweep", trained, "--sigmas", "1.5")
    assert code == 2
    assert "sigma must be in (0,1]" in error
