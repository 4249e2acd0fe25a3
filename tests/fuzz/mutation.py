"""Deterministic damage: to bytes, to text, and to trees of JSON or YAML values."""

import copy
import math
import struct
from collections.abc import Callable
from random import Random
from typing import Any

_NUMBERS = (0, 1, -1, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
_WORDS = (
    "",
    " ",
    "\0",
    "\n",
    "é",
    "\ud800",
    "𝔁",
    "{}",
    "|",
    "not:",
    "a" * 1000,
    "../../etc/passwd",
    "1e999",
    "%s",
    "<b>",
)
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 255, 2**31, -(2**31), 2**63, 10**30, 10**400, 0.0, -0.0, 0.5, 1e-30, 1e30, 1e308),
    *(math.nan, math.inf, -math.inf, [], {}, [[]], [0], [None], {"": 0}, {"name": "x"}, [0.5, 1.5], *_WORDS),
)


def damaged_bytes(content: bytes, random: Random) -> bytes:
    """A file with a few places changed, cut, doubled or replaced."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        random.choice(_ON_BYTES)(data, random)
    return bytes(data)


def _flip(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _replace(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] = random.randrange(256)


def _number(data: bytearray, random: Random) -> None:
    """A number that is often mishandled, in one of the ways that files store numbers."""
    form = random.choice(("<B", "<H", ">H", "<I", ">I", "<Q", ">Q"))
    size = struct.calcsize(form)
    if len(data) >= size:
        place = random.randrange(min(len(data), random.choice((64, len(data)))) - size + 1) if len(data) > size else 0
        struct.pack_into(form, data, place, random.choice(_NUMBERS) % 256**size)


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data) + 1) :]


def _remove(data: bytearray, random: Random) -> None:
    place = random.randrange(len(data) + 1)
    del data[place : place + random.choice((1, 2, 4, 100))]


def _insert(data: bytearray, random: Random) -> None:
    place = random.randrange(len(data) + 1)
    data[place:place] = random.randbytes(random.choice((1, 2, 4, 100)))


def _double(data: bytearray, random: Random) -> None:
    place = random.randrange(len(data) + 1)
    part = data[place : place + random.choice((1, 4, 16, 1000))]
    data[place:place] = part * random.choice((1, 2, 50))


_ON_BYTES: tuple[Callable[[bytearray, Random], None], ...] = (
    *(_flip, _flip, _replace, _replace, _number, _number, _number),
    *(_cut, _remove, _insert, _double),
)


def damaged_text(text: str, random: Random) -> str:
    """A text with a few of its lines or characters changed, in characters that a file can hold."""
    for _ in range(random.choice((1, 1, 2, 5))):
        lines = text.split("\n")
        line = random.randrange(len(lines))
        kind = random.randrange(6)
        if kind == 0:
            lines[line] = random.choice(_WORDS)
        elif kind == 1:
            lines.insert(line, lines[random.randrange(len(lines))])
        elif kind == 2:
            del lines[line]
        elif kind == 3:
            lines[line] = lines[line] * random.choice((2, 40))
        elif kind == 4:
            lines[line] = random.choice(("  ", "- ", "? ", "&a ", "*a ", "!!", "[", "{", "|", "#", "\t")) + lines[line]
        else:
            place = random.randrange(len(lines[line]) + 1)
            lines[line] = lines[line][:place] + random.choice(_WORDS) + lines[line][place + random.randrange(3) :]
        text = "\n".join(lines)
    return text


def damaged_tree(tree: Any, random: Random) -> Any:
    """A tree of values with a few of them changed, removed, moved or nested."""
    tree = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        holders = [holder for holder in _holders(tree) if len(holder)]
        if not holders:
            return random.choice(_ODD)
        holder = random.choice(holders)
        if isinstance(holder, list) and len(holder) > 8 and random.random() < 0.8:
            holder = random.choice(
                [each for each in holders if isinstance(each, dict)] or holders
            )  # not rows of numbers
        key = _key(holder, random)
        if random.random() < 0.4:
            other = random.choice(holders)
            holder[key] = copy.deepcopy(other[_key(other, random)])  # a value that is right elsewhere
        else:
            _change(holder, key, random)
    return tree


def _key(holder: Any, random: Random) -> Any:
    return random.choice(list(holder)) if isinstance(holder, dict) else random.randrange(len(holder))


def _change(holder: Any, key: Any, random: Random) -> None:
    kind = random.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = [holder[key]]
    elif kind == 2 and isinstance(holder, dict):
        holder[random.choice((*_WORDS, str(key) + "x"))] = holder.pop(key)
    elif kind == 3 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    elif kind == 4 and isinstance(holder[key], int | float) and abs(holder[key]) < 1e9:
        holder[key] *= random.choice((-1, 0, 0.5, 2, 1000, 1e9))
    else:
        holder[key] = copy.deepcopy(random.choice(_ODD))


def _holders(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [tree, *(each for value in tree.values() for each in _holders(value))]
    if isinstance(tree, list):
        return [tree, *(each for value in tree for each in _holders(value))]
    return []
