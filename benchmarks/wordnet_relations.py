"""Make joem/words/lexicon/wordnet-relations.tsv.gz from the database files of WordNet 3.0 (data.noun).

    python benchmarks/wordnet_relations.py DATA_NOUN... OUT.tsv.gz

One line for every line of wordnet.tsv.gz: the lines of its hypernyms and of the wholes that it is a part, member or
substance of, counted from 0. A relative that ImageNet-22k does not have is replaced by its own nearest hypernyms.
"""

import gzip
import sys
from functools import cache
from pathlib import Path

from joem.semantics import lexicon


def main(sources: list[Path], out: Path) -> None:
    """Read WordNet's nouns and write the relations between the entries of the lexicon."""
    text = b"".join(path.read_bytes() for path in sources).decode("latin-1")
    words, pointers, found = {}, {}, {}
    for line in text.split("\n"):
        if line and not line.startswith("  "):
            facts, _, gloss = line.partition(" | ")
            fields = facts.split()
            count = int(fields[3], 16)
            key, first = fields[0], 5 + 2 * count
            words[key] = fields[4 : 4 + 2 * count : 2], gloss.strip()
            pointers[key] = [
                (fields[place], fields[place + 1])
                for place in range(first, first + 4 * int(fields[first - 1]), 4)
                if fields[place + 2] == "n"
            ]
    rows: dict[str, list[tuple[str, int]]] = {}
    for number, row in enumerate(lexicon.rows()):
        rows.setdefault(lexicon.plain(row.entry.names[0]), []).append((_letters(row.entry.gloss), number))
    for key, (names, gloss) in words.items():
        # The lexicon's glosses lack WordNet's examples.
        same = [pair for pair in rows.get(lexicon.plain(names[0]), []) if _letters(gloss).startswith(pair[0])]
        if same:
            found[key] = max(same)[1]
    print(f"{len(found)} of {len(lexicon.rows())} entries found", file=sys.stderr)

    @cache
    def nearest(key: str) -> frozenset[int]:
        if key in found:
            return frozenset({found[key]})
        return frozenset().union(*(nearest(other) for sign, other in pointers[key] if sign in ("@", "@i")))

    lines = [""] * len(lexicon.rows())
    for key, number in found.items():
        kinds = [other for sign, other in pointers[key] if sign in ("@", "@i")]
        wholes = [other for sign, other in pointers[key] if sign in ("#p", "#m", "#s")]
        lines[number] = "\t".join(
            " ".join(map(str, sorted(frozenset().union(*map(nearest, group))))) for group in (kinds, wholes)
        )
    out.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n", mtime=0))


def _letters(gloss: str) -> str:
    return "".join(gloss.split()).casefold()


if __name__ == "__main__":
    *given, target = map(Path, sys.argv[1:])
    main(given, target)
