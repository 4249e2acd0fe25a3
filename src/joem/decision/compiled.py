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
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from joem.errors import JoemError

if TYPE_CHECKING:
    from joem.decision.search import Work

_SOURCE = Path(__file__).with_name("kernel.c")
# No -ffast-math: it would change how the whole process treats the smallest numbers.
_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-shared", "-fPIC")
_SECONDS = 60
_ROWS = 16  # that are worth a thread of their own

_SEEN_BY_GLIBC = 31 << 20  # bytes, just below the largest block that glibc adapts to

_NO_MEMORY = 1
_PROCESS = os.getpid()

_TENSORS = (
    *("features", "centre", "weight", "bias", "labels"),
    *("vertical_low", "vertical_step", "horizontal_low", "horizontal_step"),
    *("known", "squares", "label", "other_label", "distance", "other_distance", "second"),
)
_NUMBERS = (
    *("by_channel", "by_row", "by_column", "channels", "classes", "group", "split", "height", "width"),
    *("parts", "taken", "wrong"),
)


class _Task(ctypes.Structure):
    """The kernel's Task, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _TENSORS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
    ]


def is_usable(*tensors: Tensor) -> bool:
    """Whether these tensors can be worked on in C."""
    return all(each.device.type == "cpu" and each.dtype == torch.float32 for each in tensors) and _library() is not None


def run(work: "Work", order: Tensor, split: int, labels: Tensor, results: Mapping[str, Tensor]) -> None:
    """Search the best classes of every pixel.

    Args:
        work: features, prototypes and where every pixel lies among the features.
        order: which prototypes are compared, those of the first side first.
        split: how many those are.
        labels: the label of each of them.
        results: what is wanted, (B,Ho,Wo) each, by the names of the kernel's Task; `known` is given.
    """
    library, features = _library(), work.features
    _, channels, *_ = features.shape
    vertical, horizontal = work.axes
    height, width = len(vertical.low), len(horizontal.low)
    # Threads of a parent do not live in a process that was forked.
    threads = max(1, min(torch.get_num_threads(), height // _ROWS)) if os.getpid() == _PROCESS else 1
    group, wide = library.joem_group(), library.joem_wide()
    if set(results) == {"label"} and features.stride(1) == 1:  # nothing but scores is needed of the features
        group = -(-len(order) // wide) * wide
    weight, bias = _grouped(work.prototypes, order, work.centre, group)
    tensors = {"centre": work.centre, "weight": weight, "bias": bias, "labels": labels}
    for name, axis in (("vertical", vertical), ("horizontal", horizontal)):
        tensors |= {f"{name}_low": axis.low, f"{name}_step": axis.step}
    for image, own in enumerate(features):
        pointers = {name: each.data_ptr() for name, each in tensors.items()}
        pointers |= {name: each[image].data_ptr() for name, each in results.items()}
        strides = dict(zip(("by_channel", "by_row", "by_column"), own.stride(), strict=True))
        sizes = {"channels": channels, "classes": len(order), "split": split, "height": height, "width": width}
        task = _Task(features=own.data_ptr(), **pointers, **strides, **sizes, group=group, parts=threads)
        if threads == 1:
            library.joem_work(ctypes.byref(task))
        else:
            _parallel()(library.joem_work, ctypes.byref(task), threads, 0)
        if task.wrong == _NO_MEMORY:
            raise MemoryError("there is not enough memory to rank the classes")
        if task.wrong:
            raise not_finite("features")


def keep_freed_blocks() -> None:
    """Let glibc keep what is freed between two calls.

    It gives freed memory back to the system, which must then clear it again, until it has seen a block of this size
    come and go: a quarter of the time with many classes, and of that of a ranking by few.
    """
    torch.empty(_SEEN_BY_GLIBC, dtype=torch.uint8, device="cpu")


def not_finite(name: str) -> JoemError:
    """What is wrong with features or prototypes that are not all numbers."""
    return JoemError(f"{name} hold NaN or infinite values, so no class is nearest: check what made them.")


def _grouped(prototypes: Tensor, order: Tensor, centre: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Weights (groups,C,size) and biases (groups * size) of the scores, classes in groups of a size.

    The last group is filled with some class or other, at whose scores nobody looks.
    """
    chosen = prototypes[F.pad(order, (0, -len(order) % size))].sub_(centre)
    bias = torch.linalg.vector_norm(chosen, dim=1).square_().neg_()
    return chosen.mul_(2).view(-1, size, len(centre)).transpose(1, 2).contiguous(), bias


@cache
def _parallel() -> Any:
    """GOMP_parallel(function, argument, threads, flags) of the OpenMP library that torch runs with.

    Its threads are awake, as they wait for torch's next operation: none of ours would be in time for a millisecond.
    """
    try:
        found = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return _in_threads
    found.argtypes, found.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    return found


def _in_threads(function: Callable[[Any], None], argument: Any, threads: int, _: int) -> None:
    """The same in threads of Python, where torch runs with another library. C gives Python's lock away."""
    with ThreadPoolExecutor(threads) as pool:
        for each in [pool.submit(function, argument) for _ in range(threads)]:
            each.result()


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
    library.joem_work.argtypes, library.joem_work.restype = (ctypes.c_void_p,), None
    library.joem_group.restype = library.joem_wide.restype = ctypes.c_int64
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
