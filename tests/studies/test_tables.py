import json

from small_studies import small_recipe

from joem import engine, studies
from joem import recipe as recipes
from joem.studies.comparison import summary


def test_the_best_zero_shot_row_stands_out_and_published_deviations_are_shown(tmp_path):
    rows = studies.rows("methods", recipes.load("lite"), ["joem", "spnet", "supervised"])
    recipe = small_recipe()
    problem = engine.open_problem(recipe.data)

    def result(rule, hiou):
        scores = {"rule": rule, "miou_seen": 50.0, "miou_unseen": 10.0, "hiou": hiou, "sigma": 0.8}
        scores["per_class"] = dict.fromkeys(problem.vocabulary.names, 1.0)
        return {"rules": {rule: scores}, "train_seconds": 1.0, "recipe": recipe.to_dict()}

    results = {
        "joem": (result("ac", 20.0), result("ac", 30.0)),
        "spnet": (result("probability", 26.0), result("probability", None)),
        "supervised": (result("nn", 90.0),),
    }
    results["spnet"][0]["ausuc"] = 12.5
    found = studies.Comparison("methods", recipe, problem, rows, results, folds=1)
    _, body = studies.score_table(found)
    assert body[0][4:9] == ["25.0 ± 7.1", "-", "67.0 ± 1.2", "33.4 ± 0.4", "44.6 ± 0.3"]
    assert body[1][4:9] == ["26.0", "12.5", "67.3", "21.8", "32.9"]
    for head, cells in (studies.score_table(found), studies.rule_table(found)):
        (before,) = {row[head.index("had seen before")] for row in cells}
        assert before == "backbone: nothing; words: text"
    studies.write(found, tmp_path, "joem compare")
    assert "<tr class=best><td>SPNet</td>" in (tmp_path / "methods.html").read_text()
    first, second = (tmp_path / "methods.csv").read_text().splitlines()[:2]
    assert first.startswith("row,method,rule,gamma,sigma,discount,seed,")
    assert second.startswith("JoEm,joem,ac,,0.8,,0,")
    assert "train_seconds,had_seen_before," in first
    assert "1.0,backbone: nothing; words: text," in second
    saved = json.loads((tmp_path / "methods.json").read_text())["rows"]
    assert saved[0]["had_seen_before"] == "backbone: nothing; words: text"


def test_summary_of_nothing_and_of_one():
    assert summary([]) == {"mean": None, "deviation": None}
    assert summary([3.0, None]) == {"mean": 3.0, "deviation": None}


def test_latex_escapes_and_markdown_aligns():
    head, body = ["method", "hIoU"], [["S->V: L_bar", "1.0 ± 0.1"], ["a & b", "12%"]]
    assert r"S$\to$V: L\_bar & 1.0 $\pm$ 0.1 \\" in studies.latex(head, body)
    assert r"a \& b & 12\% \\" in studies.latex(head, body)
    assert len({len(line) for line in studies.markdown(head, body).splitlines()}) == 1
