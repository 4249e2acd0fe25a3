"""What is wrong with the files of a dataset: all of it in one message, by kind, with counts."""

from collections.abc import Iterable
from typing import NamedTuple

from joem.errors import JoemError


class Fault(NamedTuple):
    """A kind of fault.

    Attributes:
        one: what one file of the kind is, such as "mask of another size than its picture".
        many: the same in the plural.
        advice: what to do about it, a sentence.
    """

    one: str
    many: str
    advice: str


UNREADABLE = Fault(
    "file that cannot be read", "files that cannot be read", "Replace such a file or leave its picture out."
)
OTHER_SIZE = Fault(
    "mask of another size than its picture",
    "masks of another size than their pictures",
    "Export such a mask again at the size of the picture.",
)
UNKNOWN_LABEL = Fault(
    "mask with a label that is no class",
    "masks with labels that are no classes",
    "List the missing class or repaint such a mask.",
)
UNKNOWN_COLOUR = Fault(
    "mask with a colour that is not listed",
    "masks with colours that are not listed",
    "List the colour, or save such a mask without smoothing and without JPEG compression.",
)
NO_COLOURS = Fault(
    "RGB mask, and no colours are given",
    "RGB masks, and no colours are given",
    "Write each class as 'name #RRGGBB', or save masks as palette or grey PNG that hold the labels.",
)


class FileFault(JoemError):
    """A file that cannot be used.

    Attributes:
        kind: the kind of fault, under which it is counted; None if it is told by its message alone.
        item: the file and what is wrong with it, in a few words, for a list of such files.
    """

    # Only the message is required: a loader's worker process hands on an error by its type and its message.
    def __init__(self, message: str, kind: Fault | None = None, item: str = "") -> None:
        super().__init__(message)
        self.kind, self.item = kind, item

    @classmethod
    def of(cls, kind: Fault, item: str) -> "FileFault":
        """A fault whose message is that of its kind.

        >>> print(FileFault.of(OTHER_SIZE, "a.png"))
        1 mask of another size than its picture: a.png. Export such a mask again at the size of the picture.
        """
        return cls(f"1 {kind.one}: {item}. {kind.advice}", kind, item)


class Faults:
    """All faults that were found, by kind in the order found.

    >>> found = Faults()
    >>> for name in ("a.png", "b.png"):
    ...     found.add(FileFault.of(OTHER_SIZE, name))
    >>> print(*found.lines())
    2 masks of another size than their pictures: a.png, b.png. Export such a mask again at the size of the picture.
    """

    def __init__(self) -> None:
        self._by_kind: dict[Fault | str, list[FileFault | JoemError]] = {}

    def add(self, error: JoemError) -> None:
        """Note a fault; an error that is of no kind is told by its message."""
        kind = error.kind if isinstance(error, FileFault) and error.kind is not None else str(error)
        self._by_kind.setdefault(kind, []).append(error)

    def extend(self, others: "Faults") -> None:
        """Note the faults of another search."""
        for errors in others._by_kind.values():
            for error in errors:
                self.add(error)

    def __len__(self) -> int:
        return sum(len(errors) for errors in self._by_kind.values())

    def lines(self) -> list[str]:
        """A line for every kind: how many, up to five of them, what to do."""
        return [
            str(errors[0]) if isinstance(kind, str) or len(errors) == 1 else _line(kind, _items(errors))
            for kind, errors in self._by_kind.items()
        ]

    def to_dict(self) -> dict[str, list[str]]:
        """Every file of every kind, in a form that JSON can hold."""
        return {
            kind if isinstance(kind, str) else kind.many: [] if isinstance(kind, str) else _items(errors)
            for kind, errors in self._by_kind.items()
        }

    def message(self, where: str) -> str:
        """All lines; more than one stand under a heading."""
        lines = self.lines()
        return lines[0] if len(lines) == 1 else "\n  ".join([f"{where} has {len(self)} faults:", *lines])

    def raise_any(self, where: str) -> None:
        """Raise one error that tells all faults, if there are any."""
        if self:
            raise FaultsFound(self.message(where), self)


class FaultsFound(JoemError):
    """All that is wrong with a dataset.

    Attributes:
        faults: every fault, where the message names up to five of a kind.
    """

    def __init__(self, message: str, faults: Faults | None = None) -> None:
        super().__init__(message)
        self.faults = faults or Faults()


def listed(names: Iterable[str]) -> str:
    """Up to five of the names, and how many more there are.

    >>> listed("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    every = list(names)
    more = f" and {len(every) - 5} more" if len(every) > 5 else ""
    return ", ".join(every[:5]) + more


def _items(errors: Iterable[JoemError]) -> list[str]:
    return [error.item for error in errors if isinstance(error, FileFault)]


def _line(kind: Fault, items: list[str]) -> str:
    return f"{len(items):,} {kind.many}: {listed(items)}. {kind.advice}"
