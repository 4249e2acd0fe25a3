"""Results of many pictures in few files: Parquet with a row for every picture, its masks as run lengths.

Needs `pip install "joem[parquet]"`. A file is whole or not there, so its rows are the marks of what is done.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from joem.errors import BadUsage
from joem.exchange import run_lengths
from joem.io import atomic_file, damage_told
from joem.jobs import differences
from joem.shards import Shard

if TYPE_CHECKING:
    from joem.result import Result

Row = dict[str, Any]
Identity = Mapping[str, Any]

_NOTE = b"joem"  # the key of what made a file, among the notes of Parquet


def row(result: "Result", picture: str) -> Row:
    """A result as a row: what `result.json` says, and a mask for every class that occurs but the background."""
    found, labels = result.to_dict(), result.compact.numpy()
    segments = [
        {
            "name": name,
            "area": share,
            "confidence": found["confidences"][name],
            "score": found["scores"][name],
            "counts": run_lengths(labels == label)["counts"],
        }
        for label, (name, share) in enumerate(found["areas"].items())
        if share and name != result.background
    ]
    kept = {key: found[key] for key in ("width", "height", "names", "unseen")}
    return {"picture": picture, **kept, "background": result.background, "segments": segments}


def labels(row: Row) -> NDArray[np.int64]:
    """The labels (Ho,Wo) of a row, indices into its names, as `Result.labels` has them.

    >>> segment = {"name": "cow", "counts": [1, 3]}
    >>> labels({"width": 2, "height": 2, "names": ["sky", "cow"], "background": "sky", "segments": [segment]}).tolist()
    [[0, 1], [1, 1]]
    """
    names = list(row["names"])
    rest = names.index(row["background"]) if row["background"] in names else 0
    flat = np.full(row["width"] * row["height"], rest)
    for segment in row["segments"]:
        counts = np.asarray(segment["counts"])
        flat[np.repeat(np.arange(len(counts)) % 2 == 1, counts)] = names.index(segment["name"])
    return cast(NDArray[np.int64], flat.reshape(row["width"], row["height"]).T)


def file_name(pictures: Sequence[str], shard: Shard) -> str:
    """What to call the file of some pictures: the same ones, the same name."""
    digest = hashlib.sha256(json.dumps(list(pictures)).encode()).hexdigest()[:16]
    return f"{shard}-{digest}.parquet"


def write(path: Path, rows: Sequence[Row], identity: Identity) -> Path:
    """Write rows as a file that is whole or not there; `identity` is what made them."""
    with atomic_file(path) as draft:
        write_table(rows, identity, draft)
    return path


def write_table(rows: Sequence[Row], identity: Identity, file: Any) -> None:
    """Write rows into a file, by its path or open."""
    import pyarrow
    import pyarrow.parquet

    schema = _schema().with_metadata({_NOTE: json.dumps(identity).encode()})
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema), file, compression="zstd")


def read(path: Any) -> Iterator[Row]:
    """The rows of a file, some at a time."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(64):
            yield from batch.to_pylist()


def pictures(path: Any, identity: Identity, name: str) -> list[str]:
    """The pictures in a file; one that something else made is refused.

    Args:
        path: its path, or the open file.
        identity: what should have made it.
        name: what errors call it.
    """
    import pyarrow.parquet

    with damage_told(name), pyarrow.parquet.ParquetFile(path) as file:
        made = json.loads((file.schema_arrow.metadata or {}).get(_NOTE, b"null"))
        found: list[str] = file.read(["picture"]).column(0).to_pylist()
    told = "; ".join(list(differences(made, json.loads(json.dumps(identity))))[:3])
    if told:
        raise BadUsage(f"{name} holds results of another request ({told}): give another --out.")
    return found


def _schema() -> Any:
    import pyarrow as pa

    words, share = pa.list_(pa.string()), pa.float32()
    segment = [("name", pa.string()), ("area", share), ("confidence", share), ("score", share)]
    columns = [("picture", pa.string()), ("width", pa.int32()), ("height", pa.int32()), ("names", words)]
    columns += [("unseen", words), ("background", pa.string())]
    return pa.schema([*columns, ("segments", pa.list_(pa.struct([*segment, ("counts", pa.list_(pa.int32()))])))])
