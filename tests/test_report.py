import json
import re
from dataclasses import replace

import pytest
import torch
from matplotlib.text import Text
from PIL import Image

from joem import cli, decision, engine, figures
from joem.errors import BadUsage
from joem.report import Page, contact_sheet, plots, run
from joem.vocabulary import VOID


@pytest.fixture
def trained(tiny, tmp_path):
    tiny.train.epochs, tiny.data.val_count = 1, 6
    engine.train(tiny, tmp_path / "run", progress=False)
    return tmp_path / "run"


def command(capsys, *words):
    code = cli.main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_sweep_writes_curves_that_agree_with_evaluate(trained, capsys):
    code, printed, _ = command(capsys, "sweep", trained, "--sigmas", "0.9,0.5", "--gammas", "0.5", "--json")
    assert code == 0
    curves = {curve["rule"]: curve for curve in json.loads(printed)}
    assert list(curves) == ["cs", "ac", "ratio"]
    assert [point["sigma"] for point in curves["ac"]["points"]] == [1.0, 0.9, 0.5]
    assert [point["gamma"] for point in curves["cs"]["points"]] == [0.0, 0.5]
    for rule, parameter in (("ac", "sigma"), ("cs", "gamma")):
        value = curves[rule]["points"][1][parameter]
        _, printed, _ = command(capsys, "evaluate", trained, "--rule", rule, f"--{parameter}", value, "--json")
        for key in ("miou_seen", "miou_unseen", "hiou"):
            assert curves[rule]["points"][1][key] == json.loads(printed)[0][key]
    files = {path.name for path in (trained / "sweep").iterdir()}
    assert files == {"curves.csv", "curves.json", "trade-off.png", "errors.png", "cs.png", "ac.png", "ratio.png"}
    head, *lines = (trained / "sweep" / "curves.csv").read_text().splitlines()
    assert head == "rule,parameter,value,miou_seen,miou_unseen,hiou,true_unseen,seen_as_unseen"
    assert len(lines) == 2 + 3 + 3


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
    assert "sigma in (0,1]" in error


def test_report_is_one_whole_file(trained, tmp_path, capsys):
    code, printed, _ = command(capsys, "report", trained, "--figures", tmp_path / "figures")
    assert code == 0
    assert "report.html" in printed
    page = (trained / "report.html").read_text()
    for part in ("trade-off", "Every class", "What is taken for what", "Best pictures", "Worst pictures", "Training"):
        assert part in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', page)  # nothing is fetched
    assert plots.INK not in page  # the ink follows the page, so that it can be read in the dark
    names = engine.Model.load(trained).vocabulary.names
    assert all(name in page for name in names)
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert drawn == [
        "apollonius-1.png", "boundary-1.png", "boundary-2.png", "boundary-3.png", "boundary-4.png",
        "relations-1.png", "relations-2.png", "space-1.png", "space-2.png",
    ]  # fmt: skip


@pytest.fixture
def train_method(tiny, tmp_path):
    """Train a method on very little."""

    def train(name):
        tiny.data = replace(tiny.data, train_count=24, val_count=6, crop=32, size=32)
        tiny.train.epochs = 1
        tiny.method = replace(tiny.method, name=name, generator=replace(tiny.method.generator, samples=8, noise=4))
        return engine.train(tiny, tmp_path / "run", progress=False)

    return train


def test_a_method_of_several_stages_has_a_report(train_method, tmp_path, capsys):
    train_method("zs3net")
    assert command(capsys, "report", tmp_path / "run")[::2] == (0, "")
    page = (tmp_path / "run/report.html").read_text()
    assert "from metrics-segment.csv, metrics-generate.csv, metrics-classify.csv." in page


@pytest.mark.parametrize("name", ["cagnet", "supervised", "devise", "two_stage"])
def test_every_kind_of_method_has_figures(train_method, name):
    model = train_method(name)
    drawn = figures.draw(model, engine.open_problem(model.recipe.data))
    without_row_for_void = {"boundary"} if name in {"cagnet", "supervised"} else set()
    assert set(drawn) == set(figures.CAPTIONS) - without_row_for_void


def test_the_page_says_what_evaluate_says(trained):
    model = engine.Model.load(trained)
    problem = engine.open_problem(model.recipe.data)
    found = run.measure(model, problem, progress=False)
    (expected,) = engine.evaluate(model, problem, [model.recipe.decision], progress=False)
    assert torch.equal(found.own.confusion, expected.confusion)
    assert repr(found.own.scores) == repr(expected.scores)  # nan is not nan
    sigma = model.recipe.decision.sigma
    assert repr(found.curves["ac"].scores[found.curves["ac"].values.index(sigma)]) == repr(expected.scores)
    assert len(found.per_picture) == len(problem.val)


def test_pictures_of_void_only_have_no_score_and_are_not_shown(trained):
    model = engine.Model.load(trained)
    problem = engine.open_problem(model.recipe.data)
    pictures = problem.val

    class Blind:
        names, background = pictures.names, pictures.background

        def __len__(self):
            return 2

        def __getitem__(self, index):
            sample = pictures[index]
            return sample._replace(labels=torch.full_like(sample.labels, VOID)) if index == 0 else sample

        def labels(self, index):
            return self[index].labels

        def name(self, index):
            return str(index)

    problem = engine.Problem(problem.vocabulary, problem.rule, problem.train, Blind())
    found = run.measure(model, problem, progress=False)
    assert found.per_picture[0].isnan()
    page = Page("title", "lead")
    run._pictures(page, model, problem, found)
    assert "Best pictures" in "".join(page._parts)
    assert "Worst pictures" not in "".join(page._parts)  # there is one picture with a score, and it is the best


def test_the_plane_of_two_prototypes_keeps_both_distances():
    points, start, end = torch.randn(50, 7), torch.randn(7), torch.randn(7)
    flat = figures._beside_axis(points, start, end)
    span = (end - start).norm()
    torch.testing.assert_close(flat.norm(dim=1), (points - start).norm(dim=1))
    torch.testing.assert_close((flat - torch.tensor([span, 0.0])).norm(dim=1), (points - end).norm(dim=1))


def lines_between(model, pair=None):
    """What is drawn between two prototypes, by label, and the distances of a line's points to both."""
    prototypes = model.prototypes()
    features = torch.randn(300, prototypes.shape[1])
    (figure,) = figures.apollonius(model, features, torch.zeros(300, dtype=torch.int64), pair)
    (axes,) = figure.axes
    span = max(star.get_xdata()[0] for star in axes.lines if star.get_marker() == "*")

    def distances(name):
        (line,) = [line for line in axes.lines if name in str(line.get_label())]
        points = torch.tensor(line.get_xydata()).double()
        return points.norm(dim=1), (points - torch.tensor([span, 0.0])).norm(dim=1)

    return axes, span, distances


def test_the_lines_that_are_drawn_are_where_the_rules_decide(trained):
    model = engine.Model.load(trained)
    model.recipe.decision.sigma = 0.6
    model.recipe.decision.gamma = 0.3 * float(torch.pdist(model.prototypes()).min())
    _, _, distances = lines_between(model)
    seen, unseen = distances("circle")
    torch.testing.assert_close(seen / unseen, torch.full_like(seen, decision.distance_ratio(0.6)), rtol=1e-5, atol=0)
    seen, unseen = distances("hyperbola")
    expected = torch.full_like(seen, model.recipe.decision.gamma)
    torch.testing.assert_close(unseen - seen, expected, rtol=1e-4, atol=1e-5)


def test_the_two_classes_of_the_circle_can_be_chosen(trained):
    model = engine.Model.load(trained)
    pair = (model.vocabulary.seen[-1], model.vocabulary.unseen[0])
    axes, span, _ = lines_between(model, pair)
    ends = model.prototypes(pair)
    assert span == pytest.approx(float((ends[0] - ends[1]).norm()), rel=1e-5)
    assert {text.get_text() for text in axes.texts} == {pair[0], f"{pair[1]} *"}
    with pytest.raises(BadUsage, match="Unknown seen class"):
        lines_between(model, pair[::-1])


def test_a_pair_is_two_names(trained, capsys):
    code, _, error = command(capsys, "report", trained, "--pair", "red circle")
    assert code == 2
    assert "--pair takes a seen and an unseen class" in error


def test_names_of_points_do_not_cover_each_other():
    figure, axes = plots.new_axes("x", "y")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    points = torch.tensor([[0.3, 0.5], [0.31, 0.5], [0.32, 0.51], [0.9, 0.1]])
    plots.name_points(axes, points, ["bottle", "tvmonitor", "cat", "bus"])
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without their lines
    assert len(boxes) == 4
    for place, box in enumerate(boxes):
        assert box.count_overlaps(boxes[place + 1 :]) == 0


def test_the_plane_brings_each_cloud_to_its_prototype_whatever_all_features_have_in_common():
    torch.manual_seed(0)
    prototypes, labels = torch.randn(6, 8), torch.arange(6).repeat_interleave(20)
    features = 0.2 * prototypes[labels] + 5 * torch.ones(8)  # another scale, and far away
    stars, dots = figures._common_plane(prototypes, features, labels, range(6))
    torch.testing.assert_close(dots, stars[labels], rtol=0, atol=1e-4)


def test_virtual_prototypes_follow_the_definition():
    prototypes = torch.tensor([[0.0], [4.0], [100.0]])  # the last one for void
    labels = torch.tensor([[0, 1], [0, 1]])
    assert figures.virtual_prototypes(labels, prototypes, (4, 4), r=1)[0, 0].tolist() == [0, 0, 4, 4]
    assert figures.virtual_prototypes(labels, prototypes, (4, 4), r=2)[0, 0].tolist() == [0, 1, 3, 4]
    void = torch.full((2, 2), VOID)
    assert (figures.virtual_prototypes(void, prototypes, (4, 4), r=2) == 100).all()


def test_a_sheet_keeps_the_shape_of_its_pictures():
    wide, tall = Image.new("RGB", (40, 20), "red"), Image.new("RGB", (20, 40), "blue")
    sheet = contact_sheet([[wide], [tall]], ["a"], cell=100)
    assert sheet.size == (100 + 16, 30 + (50 + 8) + (100 + 8))
    assert sheet.getpixel((8 + 99, 30 + 49)) == (255, 0, 0)
    assert sheet.getpixel((8 + 49, 30 + 58 + 99)) == (0, 0, 255)
    assert sheet.getpixel((8 + 51, 30 + 58 + 99)) == (255, 255, 255)


def test_a_table_escapes_what_it_shows_and_draws_bars():
    page = Page("a < b", "lead")
    page.table(["class", "IoU"], [["<cow>", "12.5"], ["dog", "-"]], bars=True)
    page.code("long", folded="fold & hide")
    text = "".join(page._parts)
    assert "a &lt; b" in text
    assert "&lt;cow&gt;" in text
    assert "width:12%" in text
    assert "width:0%" in text
    assert "<summary>fold &amp; hide</summary>" in text


def test_figures_without_unseen_classes_leave_out_the_circle(trained):
    model = engine.Model.load(trained)
    model.vocabulary = model.vocabulary.with_unseen(())
    features = torch.randn(20, model.prototypes().shape[1])
    assert figures.apollonius(model, features, torch.zeros(20, dtype=torch.int64)) == []
