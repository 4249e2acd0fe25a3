"""The search of `joem.decision.ranking` in C, for tensors of float32 on a CPU.

`kernel.c` is compiled once per machine by the C compiler that is there, in a second, and kept in the user's cache
(`~/.cache/joem/kernels`). Where there is none, where it fails, or with JOEM_KERNEL=0 in the environment, torch does the
same work in several times the time (`joem.decision.search`).
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from joem.decision.search import Axis, Best

_SOURCE = Path(__file__).with_name("kernel.c")
# No -ffast-math: it would change how the whole process treats the smallest numbers.
_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-shared", "-fPIC")
_SECONDS = 60
_ROWS = 16  # that are worth a thread of their own


def is_usable(*tensors: Tensor) -> bool:
    """Whether these tensors can be worked on in C."""
    return all(each.device.type == "cpu" and each.dtype == torch.float32 for each in tensors) and _library() is not None


def search(
    table: Tensor, wide: int, labels: Tensor, split: int, axes: "tuple[Axis, Axis]", best: "Best", with_second: bool
) -> None:
    """Improve the best scores of rows of pixels, found among other classes, by those of a table.

    Args:
        table: scores at feature size, (h * wide, columns).
        wide: W, features in a row.
        labels: of the columns.
        split: how many columns are the first side.
        axes: where every row and every column of the pixels lies among the features.
        best: what was found, (2,N) and (1,N), changed in place.
        with_second: whether the second best of the first side is looked for.
    """
    library, (vertical, horizontal) = _library(), axes
    width = len(horizontal.low)
    arguments = [
        *(table.data_ptr(), wide, table.shape[1], split, labels.data_ptr()),
        *(part.data_ptr() for axis in axes for part in axis),
    ]
    results = [
        best.first[0].data_ptr(),
        best.second.data_ptr() if with_second else None,
        *(best.label[0].data_ptr(), best.first[-1].data_ptr(), best.label[-1].data_ptr()),
    ]

    def work(top: int, bottom: int) -> None:
        if library.joem_search(*arguments, top, bottom, width, *results):
            raise MemoryError("there is not enough memory to rank the classes")

    _in_threads(work, len(vertical.low))


def squared_norms(features: Tensor, axes: "tuple[Axis, Axis]") -> Tensor:
    """|v|^2 of every pixel (Ho,Wo) from contiguous features (C,H,W), as `joem.decision.search.squared_norms`."""
    library, (vertical, horizontal) = _library(), axes
    channels, high, wide = features.shape
    products = features.new_empty(4, high, wide)
    squares = features.new_empty(len(vertical.low), len(horizontal.low))
    of_axes = [part.data_ptr() for axis in axes for part in axis]

    def multiply(top: int, bottom: int) -> None:
        library.joem_products(features.data_ptr(), channels, high, wide, top, bottom, products.data_ptr())

    def square(top: int, bottom: int) -> None:
        sizes = (top, bottom, squares.shape[1])
        library.joem_squares(products.data_ptr(), high, wide, *of_axes, *sizes, squares.data_ptr())

    _in_threads(multiply, high)
    _in_threads(square, len(squares))
    return squares


def _in_threads(work: Callable[[int, int], None], rows: int) -> None:
    """Call `work` with parts of the rows, in as many threads as torch has. C gives Python's lock away meanwhile."""
    count = max(1, min(torch.get_num_threads(), rows // _ROWS))
    own, *others = pairwise(rows * number // count for number in range(count + 1))
    waiting = [_pool(count, os.getpid()).submit(work, *part) for part in others]
    work(*own)
    for each in waiting:
        each.result()


@cache
def _pool(count: int, process: int) -> ThreadPoolExecutor:
    """Threads of this process: one that was forked has none of its parent's."""
    return ThreadPoolExecutor(count - 1, thread_name_prefix="joem-decision")


@cache
def _library() -> Any:
    """The compiled kernel; None where there is none."""
    if os.environ.get("JOEM_KERNEL") == "0":
        return None
    try:
        return _declared(ctypes.CDLL(str(_built())))
    except (OSError, subprocess.SubprocessError):
        return None


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    tensor, number = ctypes.c_void_p, ctypes.c_int64
    axes = (tensor, tensor, tensor, tensor)
    three = (number, number, number)
    library.joem_search.argtypes = (tensor, *three, tensor, *axes, *three, tensor, tensor, tensor, tensor, tensor)
    library.joem_products.argtypes = (tensor, *three, number, number, tensor)
    library.joem_squares.argtypes = (tensor, number, number, *axes, *three, tensor)
    library.joem_search.restype = ctypes.c_int
    library.joem_products.restype = library.joem_squares.restype = None
    return library


def _built() -> Path:
    """The file of the compiled kernel, which is made if it is not there."""
    compiler = shlex.split(os.environ.get("CC", "")) or [
        next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), "")
    ]
    if not compiler[0]:
        raise FileNotFoundError("no C compiler")
    # Homes are shared between machines, and what is compiled for one need not run on another.
    made_of = (_SOURCE.read_bytes(), repr((compiler, _FLAGS, platform.machine(), _processor())).encode())
    name = hashlib.sha256(b"".join(made_of)).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "joem" / "kernels"
    file = folder / f"{name}.so"
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as draft:
            made = Path(draft) / file.name
            command = [*compiler, *_FLAGS, "-o", str(made), str(_SOURCE), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
            made.replace(file)
    return file


def _processor() -> str:
    """What the processor can do, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
