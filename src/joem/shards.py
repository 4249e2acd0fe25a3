"""A list of pictures divided among machines that need not talk to each other."""

import hashlib
import re
from dataclasses import dataclass

from joem.errors import BadUsage


@dataclass(frozen=True)
class Shard:
    """One of several parts of a list, the same on every machine and whatever else is in the list.

    Args:
        number: which part, counted from 1.
        count: how many there are.
    """

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read "3/8", the third of eight.

        >>> Shard.parse("3/8")
        Shard(number=3, count=8)
        """
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise BadUsage(f"--shard takes I/N with I from 1 to N, such as 3/8, got {text!r}.")
        return cls(int(found[1]), int(found[2]))

    def has(self, name: str) -> bool:
        """Whether an item is in this part, by a hash of its name: it stays there when others come or go.

        >>> [[name for name in ("a.jpg", "b.jpg", "c.jpg") if Shard(number, 2).has(name)] for number in (1, 2)]
        [['b.jpg', 'c.jpg'], ['a.jpg']]
        """
        return self.count == 1 or _hash(name) % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number:05}-of-{self.count:05}"


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest(), "big")
