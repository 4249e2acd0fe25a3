"""Labels with what teachers say of the pixels that masks leave to nobody."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, PngImagePlugin
from torch import Tensor

from joem import progress
from joem.data import Dataset, Sample, class_pixels, mixed
from joem.engine.teachers.networks import NO_OPINION, Network, open_network
from joem.errors import BadUsage
from joem.io import atomic_file
from joem.semantics import lexicon
from joem.settings import DataSettings, TeacherSettings
from joem.vocabulary import VOID, Vocabulary


def taught(pictures: Dataset, settings: DataSettings, cache: str | None) -> "Taught | Dataset":
    """Training pictures with the words of their teachers; as they are if a recipe names none."""
    if not settings.teachers:
        return pictures
    folder = Path(cache).expanduser() if cache is not None else None
    return Taught(pictures, [open_network(each) for each in settings.teachers], folder)


def check_zero_shot(settings: DataSettings, vocabulary: Vocabulary) -> None:
    """Refuse teachers that saw masks of unseen classes: what they teach is no zero-shot."""
    for each in settings.teachers:
        saw = open_network(each).names if each.masks is None else each.masks
        told = sorted({name for name in saw if lexicon.meant(name, vocabulary.unseen) is not None})
        if told:
            raise BadUsage(
                f"The teacher {each.file} saw masks of {', '.join(told)}, which {'is' if len(told) == 1 else 'are'} "
                "unseen here: no zero-shot score may rest on it. Leave the teacher out, or hold other classes out."
            )


class Taught:
    """A dataset whose pixels without a class of their own take the words of teachers; masks are always right.

    Args:
        pictures: the dataset.
        teachers: networks; where several have an opinion, the first one counts.
        cache: folder that keeps their labels, one small picture each; None asks them every time.

    Attributes:
        words: the names that the teachers add, in the order of their labels behind the dataset's own.
    """

    def __init__(self, pictures: Dataset, teachers: Sequence[Network], cache: Path | None = None) -> None:
        self._pictures, self._teachers = pictures, list(teachers)
        self.background = pictures.background
        words: dict[str, None] = {}
        for teacher in self._teachers:
            words |= dict.fromkeys(name for name in teacher.names if self._teaches(teacher.settings, name))
        self.words = tuple(words)
        self.names = (*pictures.names, *self.words)
        self._tables = [self._table(teacher) for teacher in self._teachers]
        self._folders = [_folder(cache, teacher.settings) for teacher in self._teachers]

    def _teaches(self, settings: TeacherSettings, name: str) -> bool:
        return (
            name not in NO_OPINION
            and name not in settings.without
            and lexicon.meant(name, self._pictures.names) is None
        )

    def _table(self, teacher: Network) -> Tensor:
        """The label here of every label of a teacher; void where it has no opinion."""
        taught = (self._teaches(teacher.settings, name) for name in teacher.names)
        pairs = zip(teacher.names, taught, strict=True)
        return torch.tensor([self.names.index(name) if used else VOID for name, used in pairs])

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> Sample:
        return self._pictures[index]._replace(labels=self.labels(index))

    def name(self, index: int) -> str:
        """What the picture is called."""
        return self._pictures.name(index)

    def version(self, index: int) -> str:
        """A text that changes when the picture does."""
        return self._pictures.version(index)

    def labels(self, index: int) -> Tensor:
        """The labels of the masks, and those of the teachers on the pixels that they teach."""
        labels = self._pictures.labels(index)
        background = self.names.index(self.background) if self.background is not None else VOID
        free = {"background": labels == background, "void": labels == VOID}
        free["both"] = free["background"] | free["void"]
        result, open_ = labels.clone(), torch.ones_like(labels, dtype=torch.bool)
        for number, teacher in enumerate(self._teachers):
            said = self._tables[number][self._opinion(number, index)]
            takes = free[teacher.settings.pixels] & open_ & (said != VOID)
            open_ &= ~takes
            if teacher.settings.share < 1:
                generator = torch.Generator().manual_seed(mixed(number, index))
                kept = torch.rand(labels.shape, generator=generator) < teacher.settings.share
                said = torch.where(kept, said, VOID)  # it is not background either
            result = torch.where(takes, said, result)
        return result

    def class_pixels(self) -> Tensor:
        """Pixels per picture and class (N, K) that masks show; those of the teachers' words are not counted."""
        counts = class_pixels(self._pictures)
        return torch.cat([counts, counts.new_zeros(len(counts), len(self.words))], dim=1)

    def fill(self, rank: int = 0, world: int = 1) -> None:
        """Ask the teachers about every picture that they were not asked about yet; processes share the work."""
        for number, folder in enumerate(self._folders):
            if folder is not None:
                missing = [index for index in range(rank, len(self), world) if not self._kept(number, index)]
                for index in progress.track(missing, f"labels of {self._teachers[number].file.name}"):
                    self._opinion(number, index)

    def _opinion(self, number: int, index: int) -> Tensor:
        """The labels of one teacher, from its file where they are kept."""
        file = self._file(number, index)
        if file is None:
            return self._teachers[number].labels(self._pictures[index].image)
        if not self._kept(number, index):
            file.parent.mkdir(parents=True, exist_ok=True)
            labels = self._teachers[number].labels(self._pictures[index].image)
            notes = PngImagePlugin.PngInfo()
            notes.add_text("picture", self.version(index))
            with atomic_file(file, lasting=False) as draft:
                Image.fromarray(labels.numpy().astype(np.uint16)).save(draft, "PNG", pnginfo=notes)
        with Image.open(file) as kept:
            return torch.from_numpy(np.asarray(kept).astype(np.int64))

    def _kept(self, number: int, index: int) -> bool:
        """Whether the labels of a picture as it is now are kept."""
        file = self._file(number, index)
        if file is None or not file.is_file():
            return False
        try:
            with Image.open(file) as kept:
                return kept.info.get("picture") == self.version(index)
        except OSError:
            return False

    def _file(self, number: int, index: int) -> Path | None:
        folder = self._folders[number]
        return None if folder is None else folder / f"{self.name(index)}.png"


def _folder(cache: Path | None, settings: TeacherSettings) -> Path | None:
    """Where the labels of a teacher are kept: a folder for each file and preparation of pictures."""
    if cache is None:
        return None
    file = Path(settings.file).expanduser()
    stamp = file.stat().st_size if file.is_file() else 0
    key = json.dumps([str(file.resolve()), stamp, settings.mean, settings.std])
    return cache / f"teacher-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
