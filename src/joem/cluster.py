"""Many pictures on a Ray cluster, from and to wherever fsspec reaches. Needs `pip install "joem[ray]"`.

The unit of work is the pictures of one Parquet file: they are fetched together, segmented by one worker and written
under a name that follows from them. So whatever Ray does again, after a worker or a machine was lost, writes the same
file again, and every picture is in exactly one.
"""

import io
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joem import extras, parquet_files, prediction, progress
from joem.errors import BadUsage, JoemError
from joem.picture_files import SUFFIXES
from joem.saving import Saving, claimed, relevant

if TYPE_CHECKING:
    from joem.segmenter import Segmenter

_READERS = 16  # files that one task fetches at the same time: they mostly wait
_CHUNK = "chunk"  # the name of the one column between the stages


@dataclass(frozen=True)
class Part:
    """What became of the pictures of one Parquet file.

    Attributes:
        file: where it is; None if none of its pictures could be segmented.
        pictures: how many are in it.
        errors: why others are not.
    """

    file: str | None
    pictures: int
    errors: tuple[str, ...]


def is_address(source: str) -> bool:
    """Whether a source is for fsspec, such as s3://bucket/folder, and not a path."""
    return "://" in source


def join_cluster() -> None:
    """Join the cluster of RAY_ADDRESS, or start one on this machine, reachable from nowhere else."""
    extras.require("ray", "--engine ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it has a line for every actor that may start again
    import ray

    if ray.is_initialized():
        return
    own: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {"_node_ip_address": "127.0.0.1"}
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", **own)


def find_pictures(sources: Iterable[str], listed: Iterable[str] = (), results: str | None = None) -> list[str]:
    """`prediction.find_pictures` for addresses as well; paths become absolute, as other processes read them."""
    found: dict[str, None] = {}
    own = Path(results) if results and not is_address(results) else None
    for source in sources:
        if source == "-":
            lines = [line.strip() for line in listed]
            pictures = find_pictures([line for line in lines if line not in {"", "-"}], results=results)
        elif is_address(source):
            pictures = _at_address(source)
        else:
            pictures = [str(path.absolute()) for path in prediction.find_pictures([source], results=own)]
        found |= dict.fromkeys(pictures)
    return list(found)


def _at_address(source: str) -> list[str]:
    from fsspec.utils import get_protocol

    system, path = open_address(source)
    if any(sign in path for sign in "*?["):
        paths = system.glob(path)
    elif system.isfile(path):
        return [source]
    else:
        paths = system.find(path)
    chosen = sorted(each for each in paths if Path(each).suffix.lower() in SUFFIXES)
    if not chosen:
        raise BadUsage(f"There are no pictures at {source}: expected files that end in {', '.join(sorted(SUFFIXES))}.")
    return [f"{get_protocol(source)}://{each}" if not is_address(each) else each for each in chosen]


def open_address(address: str) -> tuple[Any, str]:
    """The file system of a path or an address, and the path in it."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:  # an unknown protocol is a ValueError
        raise JoemError(f"{address} cannot be reached: {error}") from None
    return system, path


def predict(
    load: "Callable[[], Segmenter]",
    pictures: Sequence[str],
    request: prediction.Request,
    out: str,
    saving: Saving,
    *,
    workers: int = 1,
    on_gpus: bool = False,
) -> Iterator[Part]:
    """Segment pictures on the cluster into Parquet files below `out`, each told when it is written.

    Args:
        load: gives the model; called by every worker.
        pictures: paths or addresses.
        request: what to segment them into.
        out: a folder that all machines share, or an address.
        saving: how results are kept; they are Parquet.
        workers: how many work at the most; there are as many as the cluster has room for.
        on_gpus: give each of them a GPU, if the cluster has any.
    """
    if workers < 1:
        raise BadUsage(f"--jobs must be at least 1, got {workers}.")
    join_cluster()
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    system, path = open_address(out)
    out = path if getattr(system, "local_file", False) else out  # file:///shared is /shared
    with nullcontext() if is_address(out) else claimed(Path(out), saving):
        done = _finished(out, saving)
        left = [picture for picture in pictures if saving.shard.has(picture) and picture not in done]
        chunks = [left[start : start + saving.rows] for start in range(0, len(left), saving.rows)]
        if not chunks:
            return
        most = min(workers, len(chunks))
        rows = ray.data.from_items([{_CHUNK: chunk} for chunk in chunks], override_num_blocks=len(chunks))
        # Reading waits more than it works: it takes no core, so workers that have all of them do not wait for it.
        ahead = ray.data.TaskPoolStrategy(size=2 * most)
        read = rows.map_batches(_fetch, batch_size=1, batch_format="pyarrow", num_cpus=0, compute=ahead)
        work = read.map_batches(
            _Worker,
            fn_constructor_args=(load, request, out, saving),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=most, initial_size=most),
            num_cpus=1,
            num_gpus=int(on_gpus and "GPU" in ray.cluster_resources()),
        )
        for row in progress.track(work.iter_rows(), "Parquet files", len(chunks)):
            yield Part(row["file"], row["pictures"], tuple(row["errors"]))


def _finished(out: str, saving: Saving) -> set[str]:
    """The pictures that Parquet files at `out` have, as `saving.finished` does for a folder."""
    system, root = open_address(out)
    paths = {Path(each).name: each for each in (system.ls(root, detail=False) if system.exists(root) else ())}
    chosen = relevant((name for name in paths if name.endswith(".parquet") and not name.startswith(".")), saving)
    found: set[str] = set()
    for name in sorted(chosen):
        with system.open(paths[name], "rb") as file:
            found.update(parquet_files.pictures(file, saving.identity, f"{out}/{name}"))
    return found


def _fetch(batch: Any) -> Any:
    """The bytes of the pictures of a chunk; why there are none of some."""
    import pyarrow

    (chunk,) = batch.column(_CHUNK).to_pylist()
    with ThreadPoolExecutor(_READERS) as pool:
        contents, errors = zip(*pool.map(_content, chunk), strict=True)
    columns = {"contents": pyarrow.array([contents], pyarrow.list_(pyarrow.large_binary()))}
    columns["errors"] = pyarrow.array([errors], pyarrow.list_(pyarrow.string()))
    return pyarrow.table({_CHUNK: batch.column(_CHUNK), **columns})


def _content(picture: str) -> tuple[bytes | None, str | None]:
    try:
        system, path = open_address(picture)
        return system.cat_file(path), None
    except Exception as error:  # every file system has errors of its own
        return None, f"{picture}: {error or type(error).__name__}"


class _Worker:
    """Segments chunks and writes their files, in a process of its own."""

    def __init__(self, load: "Callable[[], Segmenter]", request: prediction.Request, out: str, saving: Saving) -> None:
        self._segmenter, self._request, self._out, self._saving = load(), request, out, saving

    def __call__(self, batch: Any) -> Any:
        import pyarrow

        (chunk,), (told,) = (batch.column(name).to_pylist() for name in (_CHUNK, "errors"))
        contents = batch.column("contents")[0]
        rows, errors = [], []
        for index, (picture, error) in enumerate(zip(chunk, told, strict=True)):
            try:
                if error is not None:
                    raise JoemError(error)
                result = self._request.run(self._segmenter, Path(picture), contents[index].as_py())
                rows.append(parquet_files.row(result, picture))
            except (JoemError, OSError, MemoryError, RuntimeError) as failure:
                text = str(failure)
                errors.append(text if picture in text else f"{picture}: {text}")
        name = parquet_files.file_name(chunk, self._saving.shard)
        if rows:
            _write(self._out, name, rows, self._saving.identity)
        file = pyarrow.array([f"{self._out}/{name}" if rows else None], pyarrow.string())
        told = pyarrow.array([errors], pyarrow.list_(pyarrow.string()))
        return pyarrow.table({"file": file, "pictures": [len(rows)], "errors": told})


def _write(out: str, name: str, rows: Sequence[parquet_files.Row], identity: Mapping[str, Any]) -> None:
    """Write a file that is whole or not there: object stores show an object when all of it has come."""
    if not is_address(out):
        parquet_files.write(Path(out) / name, rows, identity)
        return
    file = io.BytesIO()
    parquet_files.write_table(rows, identity, file)
    system, root = open_address(out)
    system.makedirs(root, exist_ok=True)
    system.pipe_file(f"{root}/{name}", file.getvalue())
