"""Labels refined on the picture's own edges, in several ways, against plain ones.

    python benchmarks/refinement.py runs/lite-blend-strict/model
    python benchmarks/refinement.py TUNED/fold-0/model --fold 0 --pictures 100

Prints for each way the mIoU of seen and unseen classes and hIoU; the boundary F-score, which is the harmonic mean of
the share of a class's predicted outline that lies near its true one and of the share of the true one that lies near the
predicted one, near being within 0.75 % of the picture's diagonal, averaged over the classes of a picture, then over
pictures; the share of pixels that change; and the time it takes, by that of the whole prediction. PASCAL VOC leaves
outlines void: a void pixel takes the nearest label, so the true outline runs in the middle of them.

refine       `joem.refinement`, what joem predict --refine does
felzenszwalb the majority of labels in every superpixel of scikit-image's felzenszwalb
slic         the same with its slic
bilateral    five averages of the labels' masks over 24 neighbours, weighted by how alike their colours are
"""

import argparse
import time
from collections.abc import Callable
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import ndimage
from skimage import segmentation
from torch import Tensor

from joem import Segmenter, calibration, decision, engine, scores
from joem.engine import Model
from joem.refinement import refine
from joem.vocabulary import VOID

TOLERANCE = 0.0075
TIMED = 20  # pictures on which whole predictions are timed


def filled(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels whose void pixels take the nearest label."""
    void = labels == VOID
    if void.all():
        return labels
    return labels[tuple(ndimage.distance_transform_edt(void, return_distances=False, return_indices=True))]


def outline(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pixels of a mask beside a pixel that is not of it; the picture's border is no outline."""
    down, across = mask[1:] != mask[:-1], mask[:, 1:] != mask[:, :-1]
    beside = np.pad(down, ((1, 0), (0, 0))) | np.pad(down, ((0, 1), (0, 0)))
    return mask & (beside | np.pad(across, ((0, 0), (1, 0))) | np.pad(across, ((0, 0), (0, 1))))


def near(mask: NDArray[np.bool_], distance: float) -> NDArray[np.bool_]:
    """Pixels within a distance of a mask."""
    return ndimage.distance_transform_edt(~mask) <= distance if mask.any() else mask


def boundary_f(truth: NDArray[np.int64], predicted: NDArray[np.int64], tolerance: float = TOLERANCE) -> float:
    """The mean boundary F-score, in percent, of the classes that either shows; nan where neither has an outline."""
    distance = tolerance * float(np.hypot(*truth.shape))
    found = []
    for label in np.union1d(truth, predicted):
        true, told = outline(truth == label), outline(predicted == label)
        if true.any() or told.any():
            right, met = (told & near(true, distance)).sum(), (true & near(told, distance)).sum()
            precision, recall = right / max(1, told.sum()), met / max(1, true.sum())
            found.append(2 * precision * recall / (precision + recall) if precision + recall else 0.0)
    return 100 * float(np.mean(found)) if found else np.nan


def majority(cut: Callable[[NDArray[np.uint8]], NDArray[np.int64]]) -> Callable[[Tensor, Tensor], Tensor]:
    """Every superpixel takes the label that most of its pixels have."""

    def refined(labels: Tensor, pixels: Tensor) -> Tensor:
        parts = torch.from_numpy(cut(pixels.permute(1, 2, 0).numpy())).long()
        count = int(labels.max()) + 1
        votes = torch.bincount((parts * count + labels).flatten(), minlength=(int(parts.max()) + 1) * count)
        return votes.view(-1, count).argmax(1)[parts]

    return refined


def bilateral(labels: Tensor, pixels: Tensor, rounds: int = 5, reach: tuple[int, ...] = (1, 2, 4)) -> Tensor:
    """Masks averaged over neighbours of similar colours, again and again."""
    guide, widest, present = pixels.float() / 255, max(reach), labels.unique()
    height, width = labels.shape
    offsets = [(y * far, x * far) for far in reach for y, x in product((-1, 0, 1), repeat=2) if (y, x) != (0, 0)]

    def shifted(maps: Tensor) -> list[Tensor]:
        padded = F.pad(maps[None], (widest,) * 4, mode="replicate")[0]
        return [padded[:, widest + y :, widest + x :][:, :height, :width] for y, x in offsets]

    apart = torch.stack([(each - guide).square().sum(0) for each in shifted(guide)])
    weights = torch.softmax(-apart / (0.3 * apart.mean(0) + 1e-4), 0)
    masks = torch.stack([(labels == label).float() for label in present])
    for _ in range(rounds):
        masks = sum(weight * each for weight, each in zip(weights, shifted(masks), strict=True))
    return present[masks.argmax(0)]


KINDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "plain": lambda labels, pixels: labels,
    "refine": refine,
    "felzenszwalb": majority(lambda image: segmentation.felzenszwalb(image, scale=50, sigma=0.5, min_size=20)),
    "slic": majority(lambda image: segmentation.slic(image, n_segments=400, compactness=10, start_label=0)),
    "bilateral": bilateral,
}


class Tally:
    """What one way of refining gives, picture by picture."""

    def __init__(self, count: int) -> None:
        self.confusion = torch.zeros(count, count, dtype=torch.int64)
        self.boundaries: list[float] = []
        self.seconds, self.changed = 0.0, 0.0

    def update(self, kind: str, labels: Tensor, pixels: Tensor, truth: Tensor) -> None:
        """Refine the labels of a picture and score them."""
        started = time.process_time()  # one thread; what else the machine does is not counted
        refined = KINDS[kind](labels, pixels)
        self.seconds += time.process_time() - started
        self.changed += float((refined != labels).double().mean())
        self.confusion += scores.confusion(truth, refined, len(self.confusion))
        self.boundaries.append(boundary_f(filled(truth.numpy()), refined.numpy()))


def seconds_of_prediction(model: Model, pictures: list[Tensor]) -> float:
    """Of a whole plain prediction, the network included."""
    segmenter = Segmenter(model)
    segmenter(pictures[0])
    started = time.process_time()
    for pixels in pictures:
        segmenter(pixels)
    return (time.process_time() - started) / len(pictures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument(
        "--fold", type=int, help="score on this fold of held-out classes, not on the evaluation pictures"
    )
    parser.add_argument("--pictures", type=int, help="only so many, evenly spread")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = Model.load(given.model)
    problem = engine.open_problem(model.recipe.data)
    if given.fold is not None:
        problem = calibration.fold_problems(problem, None, 0)[given.fold]
    names, unseen = problem.vocabulary.names, problem.vocabulary.unseen_indices
    prototypes, step = model.prototypes(names), -(-len(problem.val) // (given.pictures or len(problem.val)))
    indices, tallies = range(0, len(problem.val), step), {kind: Tally(len(names)) for kind in given.kinds}
    for index, features, truth in engine.encoded(model, problem.val, indices):
        ranking = decision.rank(features, prototypes, unseen, size=truth.shape)
        labels, pixels = model.recipe.decision.decide(ranking)[0], problem.val[index].image
        for kind, tally in tallies.items():
            tally.update(kind, labels, pixels, truth)
    whole = seconds_of_prediction(model, [problem.val[index].image for index in indices[:TIMED]])
    print(f"{given.model}: {len(indices)} pictures, {model.recipe.decision}")
    for kind, tally in tallies.items():
        found, share = scores.scores(tally.confusion, unseen), tally.seconds / len(indices) / whole
        print(
            f"{kind:13} {found}  mIoU {found.miou:.2f}  boundary F {np.nanmean(tally.boundaries):.1f}  "
            f"changed {tally.changed / len(indices):.2%}  time {share:.2f} of a prediction"
        )


if __name__ == "__main__":
    main()
