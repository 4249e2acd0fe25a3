import torch
from matplotlib.text import Text

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
