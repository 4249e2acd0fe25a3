"""Labels of an encoded picture at any size, such as that of the photo it was reduced from, some rows at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from joem import decision
from joem.examples import Points
from joem.result import check_min_score
from joem.scene import Scene
from joem.vocabulary import OTHER


@dataclass(frozen=True)
class Bands:
    """Labels in bands of rows.

    Attributes:
        names: one per label.
        rest: the class of pixels that nobody wants, where there is one.
        rows: labels (rows,W) int64 from top to bottom; each band is decided when it is asked for.
    """

    names: tuple[str, ...]
    rest: str | None
    rows: Iterator[Tensor]


def segment(
    scene: Scene,
    size: tuple[int, int],
    names: Sequence[str] | None,
    rule: str | None = None,
    *,
    background: bool = True,
    strict_words: bool = False,
    points: Points | None = None,
    min_score: float | None = None,
    **values: float | None,
) -> Bands:
    """What `Scene.segment` would give for the same features if the picture were as large as `size`, (H,W).

    Memory stays that of a band, `decision.windows`, however large the size is. Points are on the scene's own picture.
    """
    chosen = scene.segmenter.model.recipe.decision.replace(rule, **values)
    check_min_score(min_score, chosen)
    second = chosen.second or min_score is not None
    classes, _ = scene.ranked(names, background, strict_words, points, second)
    found = classes.names if min_score is None or OTHER in classes.names else (*classes.names, OTHER)

    def rows() -> Iterator[Tensor]:
        for window in decision.windows(size):
            ranking = classes.rank(scene.features, window, classes.unseen, on_it=bool(points), second=second)
            labels = chosen.decide(ranking)
            if min_score is not None:
                scores = replace(scene, window=window).scores_of(classes, ranking, labels)
                labels = torch.where(scores.to(labels.device) < min_score, found.index(OTHER), labels)
            yield labels[0].cpu()

    return Bands(found, classes.rest, rows())
