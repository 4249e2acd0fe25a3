"""A picture that has been encoded: ask it for any names, as often as you like."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from joem import decision, examples, refinement, tiles, windowed
from joem.asking import NOT, Asked
from joem.classes import BY_EXAMPLE, AskedClasses
from joem.decision import Decision, Norms, Ranking, Score, Window
from joem.errors import BadUsage
from joem.examples import Examples, Point, Points
from joem.model import Model
from joem.pictures import Mask, Picture, mask_of, pixels_of, reduced
from joem.result import NO_SCORE, Explanation, Neighbour, Result, check_min_score

if TYPE_CHECKING:
    from joem.segmenter import Segmenter


class _Kept(NamedTuple):
    """The latest question to a scene: the classes that it asks for, and their ranking once that is needed."""

    key: tuple[Any, ...]
    classes: AskedClasses
    again: bool
    """Whether other names were ranked before."""
    ranking: Ranking | None = None
    second: bool = False
    """Whether the ranking knows the second seen distance."""
    nearest: Tensor | None = None
    """The labels, where they needed no ranking."""


@dataclass(frozen=True)
class Scene:
    """A picture that has been through the visual encoder; deciding again costs next to nothing.

    Attributes:
        segmenter: what encoded it.
        pixels: the picture, (3,Ho,Wo) uint8.
        features: v, (1,C,H,W).
        window: the rows that are meant, of a picture too large to work on at once; None for all of them.
    """

    segmenter: "Segmenter"
    pixels: Tensor
    features: Tensor
    _latest: dict[int, _Kept] = field(default_factory=dict, init=False, repr=False, compare=False)
    window: Window | None = None

    @classmethod
    def of(cls, segmenter: "Segmenter", image: Picture, longest: int | None = None) -> "Scene":
        """Run the visual encoder on a picture, see `Segmenter.encode`."""
        pixels, model = pixels_of(image), segmenter.model
        smaller = reduced(pixels, longest)
        if model.recipe.model.side is not None:  # the encoder resizes pictures itself, so none is too large
            return cls(segmenter, pixels, model.features(smaller))
        unit: int | None
        if isinstance(model, Model):
            stride = model.method.stride
            unit = math.lcm(stride, *model.method.trunk.strides)
        else:
            stride, unit = model.stride, model.unit
        return cls(segmenter, pixels, tiles.encode(model.features, smaller, stride, unit))

    @property
    def size(self) -> tuple[int, int]:
        """(Ho, Wo), the size of the picture."""
        _, height, width = self.pixels.shape
        return height, width

    def segment(
        self,
        names: Asked = None,
        rule: str | None = None,
        *,
        background: bool = True,
        strict_words: bool = False,
        points: Points | None = None,
        min_score: float | None = None,
        refine: bool = False,
        **values: float | None,
    ) -> Result:
        """Give every pixel one of the names.

        Args:
            names: class names, see `Segmenter.classes`; the model's own vocabulary if None. Names without training
                masks count as unseen for the rules.
            rule: one of `decision.RULES`; the model's own if None.
            background: add the model's background class where the names have none.
            strict_words: refuse words that are in no dictionary at hand, instead of noting them.
            points: examples on this picture, {"flag": [(x, y), (x, y, False)]}; False where it is no flag.
            min_score: pixels whose score is below it become "other".
            refine: let outlines follow the picture's own edges (`refinement.refine`); scores stay those of before.
            values: parameters of rules, such as sigma=0.8 or gamma=0.5; the model's own where not given.
        """
        decision = self._decision(rule, values)  # a mistake in it is told before the work
        check_min_score(min_score, decision)
        parts_of = partial(self._parts, names, background, strict_words, points)
        kept = self._asked(names, background, strict_words, points)
        classes, parts = kept.classes, parts_of(decision.second)

        if kept.ranking is not None or not classes.nearest_wins:
            found = windowed.labels(parts, len(classes.names), lambda part: decision.decide(part.rank()))
        elif kept.nearest is not None:
            found = kept.nearest.clone()
        else:
            nearest = partial(classes.nearest, self.features)
            found = windowed.labels(parts, len(classes.names), lambda part: nearest(part.window))
            if windowed.is_kept(self.size):
                self._latest[0] = kept._replace(nearest=found.clone())

        def measured(score: Score | None) -> Iterator[Tensor]:
            whole = parts if decision.second or classes.one_word_each else parts_of(second=True)
            return windowed.compute(whole, found, lambda window, *each: self._rows(window)._sure(score, classes, *each))

        result = Result(
            refinement.refine(found, self.pixels) if refine else found,
            classes.names,
            tuple(classes.names[index] for index in classes.unseen),
            self.pixels,
            classes.rest,
            partial(measured, None),
            classes.notes,
            None if decision.score is None else partial(measured, decision.score),
        )
        return result if min_score is None else result.at_least(min_score)

    def example(self, name: str, where: Mask | Sequence[Point]) -> Examples:
        """The prototypes of a class by a mask of this picture or by points on it, for `Segmenter.knowing`."""
        if isinstance(where, str | Path | Image.Image | np.ndarray | Tensor):
            return {name: examples.of_mask(self.features, mask_of(where, self.size)).cpu()}
        found = examples.of_points(self.features, name, where, self.size, NOT)
        return {each: prototypes.cpu() for each, prototypes in found.items()}

    def ranking(self, names: Asked = None, background: bool = True) -> Ranking:
        """The nearest seen and unseen class of every pixel, (1,Ho,Wo) each; kept until other names are asked for."""
        return self.ranked(names, background)[1]

    def ranked(
        self,
        names: Asked = None,
        background: bool = True,
        strict_words: bool = False,
        points: Points | None = None,
        second: bool = True,
    ) -> tuple[AskedClasses, Ranking]:
        """The classes that are asked for, and the ranking by them; `second` as in `AskedClasses.rank`."""
        kept = self._asked(names, background, strict_words, points)
        classes, found = kept.classes, kept.ranking
        if found is None or (second and not kept.second):
            # To be kept, norms cost a pass of their own, which pays when other names are asked for.
            norms = self._norms if kept.again or found is not None else None
            found = classes.rank(self.features, self.size, classes.unseen, norms, bool(points), second)
            self._latest[0] = kept._replace(ranking=found, second=second, nearest=None)
        return classes, found

    def _asked(self, names: Asked, background: bool, strict_words: bool, points: Points | None) -> _Kept:
        """The classes that are asked for, with what is known of them."""
        listed = names if names is None or isinstance(names, str) else tuple(names)
        at = tuple((name, tuple(map(tuple, each))) for name, each in (points or {}).items())
        key, latest = (listed, background, strict_words, at), self._latest.get(0)
        if latest is not None and latest.key == key:
            return latest
        again = latest is not None and (latest.again or latest.ranking is not None)
        found = _Kept(key, self.segmenter.classes(listed, background, strict_words, self._at(points)), again)
        self._latest[0] = found  # in one go: other threads may ask for other names
        return found

    def scores_of(self, classes: AskedClasses, ranking: Ranking, labels: Tensor) -> Tensor:
        """How often such a pixel is right, (Ho,Wo), if it takes these labels (1,Ho,Wo) from its ranking."""
        score = self.segmenter.model.recipe.decision.score
        if score is None:
            raise BadUsage(NO_SCORE)
        return self._sure(score, classes, ranking, labels)

    def _parts(
        self, names: Asked, background: bool, strict_words: bool, points: Points | None, second: bool
    ) -> list[windowed.Part]:
        """The picture in parts, each ranked when it is needed."""
        if windowed.is_kept(self.size):
            whole = cache(lambda: self.ranked(names, background, strict_words, points, second)[1])
            return windowed.parts(self.size, lambda window: windowed.rows_of(whole(), window))
        classes = self._asked(names, background, strict_words, points).classes
        return windowed.parts(
            self.size,
            lambda window: classes.rank(self.features, window, classes.unseen, on_it=bool(points), second=second),
        )

    def _rows(self, window: Window) -> "Scene":
        return self if window.rows == slice(0, self.size[0]) else replace(self, window=window)

    def distances(self, names: Asked = None, background: bool = True) -> Tensor:
        """Distances (K,Ho,Wo) of every pixel to the classes."""
        return self.segmenter.classes(names, background).distances(self.features, self.size)[0].cpu()

    def explain(
        self,
        x: int,
        y: int,
        names: Asked = None,
        *,
        background: bool = True,
        points: Points | None = None,
        **values: float | None,
    ) -> Explanation:
        """Why the pixel in column x and row y takes its class."""
        height, width = self.size
        if not (0 <= x < width and 0 <= y < height):
            raise BadUsage(f"The picture has columns 0 to {width - 1} and rows 0 to {height - 1}, got ({x}, {y}).")
        classes = self.segmenter.classes(names, background, shown=self._at(points))
        # What bilinear upsampling gives at this one pixel, as grid_sample counts from -1 to 1.
        position = self.features.new_tensor([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1]).view(1, 1, 1, 2)
        feature = F.grid_sample(self.features, position, padding_mode="border", align_corners=False)
        distances = classes.distances(feature, None).flatten()
        order = distances.argsort(stable=True)[:2].tolist()
        first, *rest = (Neighbour(classes.names[i], float(distances[i]), i not in classes.unseen) for i in order)
        ranking = self._ranking_at(feature, classes, bool(points))
        winners = {rule: classes.names[int(self._decision(rule, values).decide(ranking))] for rule in decision.RULES}
        second = rest[0] if rest else None
        ratio = first.distance / second.distance if second and second.distance else None
        return Explanation(x, y, first, second, ratio, winners)

    def _ranking_at(self, feature: Tensor, classes: AskedClasses, on_it: bool) -> Ranking:
        """The ranking of one pixel, by its feature (1,C,1,1)."""
        rivals = classes.regions(self.features) if on_it else None
        return classes.with_examples(classes.rank_words(feature, None, classes.unseen), feature, None, rivals)

    def _at(self, points: Points | None) -> Examples:
        return examples.joined(*(self.example(name, listed) for name, listed in (points or {}).items()))

    @cached_property
    def _norms(self) -> Norms:
        return decision.norms(self.features, self.window or self.size)

    def _decision(self, rule: str | None, values: Mapping[str, float | None]) -> Decision:
        return self.segmenter.model.recipe.decision.replace(rule, **values)

    def _sure(self, score: Score | None, classes: AskedClasses, ranking: Ranking, labels: Tensor) -> Tensor:
        """How often such a pixel is right, (Ho,Wo); the nearest other class is sought among those of the model too.

        Without a score 1 - d / d', d the distance to its class and d' that to the nearest other one; at least 0.
        """
        taken, other = self._taken_and_other(classes, ranking, labels)
        if score is None:
            return (1 - taken / other).clamp(min=0).nan_to_num(0)[0].cpu()
        unasked = tuple(name for name in self.segmenter.vocabulary.seen if name not in classes.words)
        if unasked:
            own = self.segmenter.model.prototypes(unasked)
            known = decision.rank(self.features, own, (), self.window or self.size, self._norms)
            other = torch.minimum(other, known.seen_distance)
        new = torch.isin(labels, torch.tensor(classes.unseen, dtype=torch.int64, device=labels.device))
        chance = score(taken, other, new)
        if len(classes.shown):  # an example against what was trained, as Gaussians of one spread
            margin = ranking.second_seen_distance.square() - ranking.seen_distance.square()
            chance = torch.where(ranking.unseen == BY_EXAMPLE, torch.sigmoid(margin / 2), chance)
        return chance[0].cpu()

    def _taken_and_other(self, classes: AskedClasses, ranking: Ranking, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The distance of every pixel to its class, and that to the nearest other one, (1,Ho,Wo) each."""
        is_unseen = labels == ranking.unseen
        taken = torch.where(is_unseen, ranking.unseen_distance, ranking.seen_distance)
        other = torch.where(is_unseen, ranking.seen_distance, ranking.unseen_distance)
        second = ranking.second_seen_distance
        # Where the class is unseen and the nearest of all, the second nearest unseen one may be the nearest other, and
        # the ranking does not hold it.
        if len(classes.unseen) > 1 and (is_unseen & (taken < other)).any():
            seen = [index for index in range(len(classes.names)) if index not in classes.unseen]
            by_unseen = classes.rank(self.features, self.window or self.size, seen, self._norms)
            second = torch.where(is_unseen, by_unseen.second_seen_distance, second)
        return taken, torch.minimum(other, second)
