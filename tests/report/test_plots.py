import torch
from matplotlib.text import Text
from PIL import ImageColor

from joem.report import plots


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


def test_names_stay_between_top_and_bottom():
    figure, axes = plots.new_axes("x", "y", title="seen classes")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    plots.name_points(axes, torch.full((12, 2), 0.97), [f"class {number}" for number in range(12)])
    figure.draw_without_rendering()
    assert all(Text.get_window_extent(text).y1 < axes.bbox.y1 + 3 for text in axes.texts)


def test_figures_stand_in_rows_and_columns():
    colours, figures = ("red", "lime", "blue", "yellow"), []
    for colour in colours:
        figure, axes = plots.new_axes("", "", size=(2, 1), grid=False)
        axes.set_facecolor(colour)
        figures.append(figure)
    image = plots.beside([figures[:2], figures[2:]])
    assert image.size == (640, 320)
    found = [image.getpixel((x, y)) for y in (80, 240) for x in (160, 480)]
    assert found == [ImageColor.getrgb(colour) for colour in colours]
