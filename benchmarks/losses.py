"""Boundary-aware regression, forward and backward: the D-channel map of the definition against `joem.losses`.

Run: python benchmarks/losses.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _measure import measure
from joem.losses import boundary_aware_regression
from joem.vocabulary import VOID

BATCH, CHANNELS, SIZE, IMAGE, R = 4, 256, 78, 312, 4


def definition(features: Tensor, labels: Tensor, vectors: Tensor, encoder: nn.Module) -> Tensor:
    """Stack word vectors, interpolate them, encode every pixel."""
    fine = F.interpolate(labels[:, None].float(), size=(SIZE, SIZE))
    coarse = F.interpolate(fine, size=(SIZE // R, SIZE // R))[:, 0].long()
    words = torch.cat([vectors, vectors.new_zeros(1, vectors.shape[1])])
    stacked = words[coarse.masked_fill(coarse == VOID, len(vectors))].permute(0, 3, 1, 2)
    interpolated = F.interpolate(stacked, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    prototypes = encoder(interpolated.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return torch.linalg.vector_norm(features - prototypes, dim=1)[fine[:, 0] != VOID].mean()


def blocks(classes: int) -> Tensor:
    """A grid of 3 x 3 blocks, each of any class."""
    grid = torch.randint(0, classes, (BATCH, 1, 3, 3)).float()
    return F.interpolate(grid, size=(IMAGE, IMAGE))[:, 0].long()


def regions(classes: int) -> Tensor:
    """Eight regions around random points, of the background and three classes, parted by void as in VOC."""
    rows, columns = torch.meshgrid(torch.arange(IMAGE), torch.arange(IMAGE), indexing="ij")
    pixels = torch.stack([rows, columns], dim=-1).reshape(-1, 2).float()
    images = []
    for _ in range(BATCH):
        nearest_two = torch.cdist(pixels, torch.rand(8, 2) * IMAGE).topk(2, largest=False)
        palette = torch.cat([torch.zeros(1).long(), torch.randint(0, classes, (3,))])
        labels = palette[torch.randint(0, 4, (8,))][nearest_two.indices[:, 0]]
        on_border = nearest_two.values.diff(dim=1)[:, 0] < 5
        images.append(labels.masked_fill(on_border, VOID).reshape(IMAGE, IMAGE))
    return torch.stack(images)


def compare(draw, classes: int, dimension: int, layout: torch.memory_format) -> str:
    """One line: both costs in float32, and both losses in float64 to show that they are the same."""
    labels, vectors, encoder = draw(classes), torch.randn(classes, dimension), nn.Linear(dimension, CHANNELS)
    features = torch.randn(BATCH, CHANNELS, SIZE, SIZE).to(memory_format=layout).requires_grad_()
    cells, seconds = [], []
    for loss in (definition, boundary_aware_regression):
        cost = measure(lambda loss=loss: step(loss, features, labels, vectors, encoder), repeats=5)
        cells.append(f"{cost.seconds * 1e3:7.1f} ms {cost.peak_bytes / 2**20:4.0f} MiB")
        seconds.append(cost.seconds)
    exact = (features.detach().double(), labels, vectors.double(), encoder.double())
    losses = "  ".join(f"{loss(*exact).item():.6f}" for loss in (definition, boundary_aware_regression))
    name = "channels last" if layout == torch.channels_last else "contiguous"
    setting = f"{draw.__name__:8s} {classes:3d}  {dimension}  {name:14s}"
    return f"{setting} {cells[0]}  {cells[1]}  {seconds[0] / seconds[1]:6.1f}  {losses}"


def step(loss, features: Tensor, labels: Tensor, vectors: Tensor, encoder: nn.Module) -> None:
    torch.autograd.grad(loss(features, labels, vectors, encoder), [features, *encoder.parameters()])


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads that wait for each other on a busy machine would hide the difference
    print(f"L_bar, forward and backward, features {BATCH} x {CHANNELS} x {SIZE} x {SIZE}, one thread\n")
    print("labels     K    D  layout          D-channel map        joem.losses          faster  both losses")
    for draw in (blocks, regions):
        for classes, dimension in ((21, 300), (60, 300), (21, 600), (60, 600)):
            for layout in (torch.contiguous_format, torch.channels_last):
                print(compare(draw, classes, dimension, layout))


if __name__ == "__main__":
    main()
