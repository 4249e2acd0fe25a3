"""From the classes of a source to those of the folder: which are taken, which pixels are void, what the rest is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joem.data.folder import read_class
from joem.data.importing.annotated import Labels, Rest, Source
from joem.data.importing.drawing import UNLABELLED
from joem.errors import BadUsage, JoemError, choose
from joem.vocabulary import VOID, Vocabulary

BACKGROUND = "background"
_BACKGROUNDS = {"background", "_background_", "__background__"}
_VOIDS = {"void", "__ignore__"}


@dataclass(frozen=True)
class ClassChoice:
    """The classes of the folder, and which of them every label of the source becomes.

    Args:
        vocabulary: the classes of the folder.
        table: the label of the folder for void, for no class and for every class of the source.
    """

    vocabulary: Vocabulary
    table: NDArray[np.uint8]

    @classmethod
    def make(
        cls, source: Source, classes: Sequence[str] | None, void: Sequence[str], rest: Rest | None
    ) -> "ClassChoice":
        """Settle the classes.

        Args:
            source: what is imported.
            classes: those to take, in this order; pixels of others count as not labelled by anybody.
            void: classes whose pixels are void.
            rest: what pixels of no class are; as the source says if None.
        """
        clean = [_clean(name) for name in source.names]
        voids = {*_VOIDS, *(choose("class", _clean(name), clean) for name in void)}
        known = list(dict.fromkeys(name for name in clean if name not in voids))
        wanted = source.usual if classes is None else classes
        taken = known if wanted is None else [choose("class", _clean(name), known) for name in wanted]
        rest = rest or source.rest
        has_background = rest == "background" or BACKGROUND in taken
        names = [*([BACKGROUND] if has_background else []), *(name for name in taken if name != BACKGROUND)]
        _check(names)
        rest_label = 0 if rest == "background" else VOID
        labels = {name: index for index, name in enumerate(names)} | dict.fromkeys(voids, VOID)
        table = [VOID, rest_label, *(labels.get(name, rest_label) for name in clean)]
        vocabulary = Vocabulary(tuple(names), background=BACKGROUND if has_background else None)
        return cls(vocabulary, np.array(table, np.uint8))

    def of_folder(self, labels: Labels) -> NDArray[np.uint8]:
        """The labels of the folder for those of the source."""
        return self.table[labels - UNLABELLED]


def _clean(name: str) -> str:
    """A name in one line; the ways to write background and void are one."""
    plain = " ".join(str(name).split())
    return BACKGROUND if plain.lower() in _BACKGROUNDS else plain.lower() if plain.lower() in _VOIDS else plain


def _check(names: Sequence[str]) -> None:
    if not names:
        raise JoemError("The source has no class that is not void: nothing would be left to learn.")
    if len(names) > VOID:
        raise BadUsage(f"A mask file holds at most {VOID} classes, the source has {len(names)}: choose with --classes.")
    for name in names:
        if read_class(name, "the classes of the source") != (name, None):
            raise JoemError(f"classes.txt would read a colour in the class name {name!r}: rename it in the source.")
