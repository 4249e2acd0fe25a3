"""Deciding a 512x512 picture: `joem.decision` against upsampling, measuring every distance and sorting.

Run it as `python benchmarks/decision.py`. Random features are the worst case, smooth ones are closer to a network's.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from _measure import measure_in_turns
from joem import decision

SIZE = (512, 512)
SIGMA = 0.95
TIE = 1e-5  # relative difference below which float32 cannot tell two distances apart


def plain_distances(features: Tensor, prototypes: Tensor) -> Tensor:
    upsampled = F.interpolate(features, size=SIZE, mode="bilinear", align_corners=False)
    return torch.cdist(upsampled.permute(0, 2, 3, 1).flatten(1, 2), prototypes)


def plain_apollonius(features: Tensor, prototypes: Tensor, unseen: Tensor) -> Tensor:
    near, labels = plain_distances(features, prototypes).topk(2, largest=False)
    (d1, d2), (first, second) = near.unbind(-1), labels.unbind(-1)
    flip = ~unseen[first] & unseen[second] & (d1 / d2 > SIGMA)
    return torch.where(flip, second, first).view(-1, *SIZE)


def different_pixels(features: Tensor, prototypes: Tensor, unseen: Tensor) -> tuple[int, int]:
    """How many labels of `nearest` and of `apollonius` differ from the plain way, ties aside."""
    near, labels = plain_distances(features, prototypes).topk(3, largest=False)
    d1, d2, d3 = near.unbind(-1)
    nearest = decision.nearest(features, prototypes, SIZE).flatten(1)
    apollonius = decision.apollonius(features, prototypes, unseen, SIGMA, SIZE).flatten(1)
    clear = d2 - d1 > TIE * d1
    clear_apollonius = clear & (d3 - d2 > TIE * d2) & ((d1 / d2 - SIGMA).abs() > TIE)
    plain = plain_apollonius(features, prototypes, unseen).flatten(1)
    return int((nearest != labels[..., 0])[clear].sum()), int((apollonius != plain)[clear_apollonius].sum())


def compare(kind: str, features: Tensor, classes: int) -> None:
    prototypes = torch.randn(classes, 256)
    unseen = torch.arange(classes) % 5 == 0
    plain, nearest, apollonius = measure_in_turns(
        [
            lambda: plain_apollonius(features, prototypes, unseen),
            lambda: decision.nearest(features, prototypes, SIZE),
            lambda: decision.apollonius(features, prototypes, unseen, SIGMA, SIZE),
        ],
        repeats=[1, 5, 5],
        rounds=5,
    )
    different = different_pixels(features, prototypes, unseen)
    for name, ours, wrong in zip(("nearest", "apollonius"), (nearest, apollonius), different, strict=True):
        print(
            f"{kind:<7}{classes:>4}  {name:<11}{plain.seconds * 1e3:>7.0f}{ours.seconds * 1e3:>8.0f} ms"
            f"{plain.seconds / ours.seconds:>8.1f} x{plain.peak_bytes / 1e6:>8.0f}{ours.peak_bytes / 1e6:>7.0f} MB"
            f"{plain.peak_bytes / ours.peak_bytes:>8.1f} x{wrong:>12}",
            flush=True,
        )


def very_many(classes: int = 20_000) -> None:
    """So many classes that the plain way does not fit into memory; features as the model in the box has them."""
    features, prototypes = torch.randn(1, 768, 40, 40), torch.randn(classes, 768)
    (found,) = measure_in_turns([lambda: decision.rank(features, prototypes, [0], SIZE)], repeats=[1], rounds=2)
    print(
        f"{classes} classes, features 1x768x40x40: {found.seconds:.1f} s, {found.peak_bytes / 1e6:.0f} MB", flush=True
    )


def main() -> None:
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, features 1x256x128x128 -> 512x512")
    print("features  K  rule         plain    ours       faster   plain   ours      smaller   different")
    random = torch.randn(1, 256, 128, 128)
    smooth = F.interpolate(torch.randn(1, 256, 16, 16), size=(128, 128), mode="bicubic")
    for kind, features in (("random", random), ("smooth", smooth)):
        for classes in (21, 60, 847):
            compare(kind, features, classes)
    very_many()


if __name__ == "__main__":
    main()
