"""Photos with captions, and the nouns that several people used for one of them."""

import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from joem.data.dataset import Sample
from joem.data.files import file_version, read_image
from joem.errors import JoemError
from joem.semantics import lexicon
from joem.vocabulary import VOID

_AGREEMENT = 2
"""How many captions of a photo must have a noun; one of them alone may be a slip."""

_FEWEST = 10
"""How many photos must have a noun; a rarer one teaches its photos, not its looks."""


# Words of captions that are names of things in WordNet too, but hardly ever mean them.
_NO_NOUNS = """
    the and are was with over near two three four some its his her their they she him them out off one has have for
    from that this into onto while who which there another other others black white red blue green brown yellow orange
    pink purple tan gray grey silver front back side top bottom run runs walk jump stand sit play look hold ride large
    small big little set group pair way part left right can will does air like down young short high open round american
    trick catch swing watch race climb game swim step drink being background area edge line push point pile cross eats
    kiss wear pull drive fall bite tug shot fly flip life dance course base picture slide adult hand use take make get
"""
_THINGS_IN_ING = "awning building ceiling clothing painting railing ring string wing"


class Captioned:
    """The photos of a folder with images/ and captions.csv, whose lines are image,caption.

    A noun is a word of ImageNet-22k's names, in the singular. It counts for a photo whose captions have it twice, or
    once where there is a single caption. The photos have no masks: all their pixels are void.

    Args:
        root: the folder.

    Attributes:
        names: the nouns, the most frequent first.
    """

    background: str | None = None

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser()
        texts = _captions(self.root)
        nouns = {photo: _agreed(captions) for photo, captions in texts.items()}
        counts = Counter(noun for found in nouns.values() for noun in found)
        self.names = tuple(noun for noun, count in counts.most_common() if count >= _FEWEST)
        index = {noun: number for number, noun in enumerate(self.names)}
        kept = {photo: [index[noun] for noun in found if noun in index] for photo, found in sorted(nouns.items())}
        self._photos = [photo for photo, found in kept.items() if found]
        self._nouns = [kept[photo] for photo in self._photos]
        if not self._photos:
            raise JoemError(
                f"{self.root / 'captions.csv'} has no noun that {_FEWEST} photos share, each with {_AGREEMENT} of its "
                f"captions ({len(texts)} photos were read): more photos, or more captions of each, are needed."
            )

    def __len__(self) -> int:
        return len(self._photos)

    def __getitem__(self, index: int) -> Sample:
        image = read_image(self._file(index))
        return Sample(image, torch.full(image.shape[1:], VOID), self.name(index))

    def nouns(self, index: int) -> Tensor:
        """Which nouns a photo has, (N,) booleans."""
        found = torch.zeros(len(self.names), dtype=torch.bool)
        found[self._nouns[index]] = True
        return found

    def labels(self, index: int) -> Tensor:
        """Void; nobody drew a mask."""
        return self[index].labels

    def name(self, index: int) -> str:
        """The photo's file without its ending."""
        return Path(self._photos[index]).stem

    def version(self, index: int) -> str:
        """A text that changes when the photo does."""
        return file_version(self._file(index))

    def _file(self, index: int) -> Path:
        return self.root / "images" / self._photos[index]


def _captions(root: Path) -> dict[str, list[str]]:
    """The captions of every photo."""
    file = root / "captions.csv"
    if not file.is_file() or not (root / "images").is_dir():
        raise JoemError(f"{root} is no folder of captioned photos: expected images/ and captions.csv (image,caption).")
    found: dict[str, list[str]] = {}
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.reader(lines):
            if len(row) >= 2 and row[:2] != ["image", "caption"]:
                found.setdefault(Path(row[0].strip()).name, []).append(",".join(row[1:]))
    return {photo: captions for photo, captions in found.items() if (root / "images" / photo).is_file()}


def _agreed(captions: list[str]) -> list[str]:
    """The nouns that enough captions of one photo have."""
    counts = Counter(noun for caption in captions for noun in set(nouns_of(caption)))
    return [noun for noun, count in counts.items() if count >= min(_AGREEMENT, len(captions))]


def nouns_of(caption: str) -> list[str]:
    """The nouns of a sentence, in the singular.

    >>> nouns_of("Two dogs run over the grass near a boat.")
    ['dog', 'grass', 'boat']
    """
    found = (_noun(word) for word in re.findall(r"[a-z]{3,}", caption.casefold()))
    return [noun for noun in found if noun]


@cache
def _noun(word: str) -> str:
    """The noun that a word is a form of; empty if it is none."""
    if word in _NO_NOUNS.split() or (word.endswith("ing") and word not in _THINGS_IN_ING.split()):  # jumping, riding
        return ""
    return next((form for form in reversed(lexicon.singulars(word)) if lexicon.is_noun(form)), "")
