"""What becomes of freed memory: a training step on CPU is twice as fast with it, a service must give it back."""

import ctypes
import math
import os
import platform
from functools import cache
from pathlib import Path

# glibc's mallopt parameters (malloc.h).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_GIBIBYTE = 1 << 30
_CONTAINER = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def reuse_freed_memory() -> bool:
    """Ask glibc to keep freed blocks instead of returning them to the system after every tensor.

    By default a block above 32 MiB at most is mapped and unmapped each time, and every page of it faults in again.
    Does nothing where another C library is used or the user has set a MALLOC_ variable. Returns whether it took
    effect. Memory use stays at the peak of the process instead of falling between steps.
    """
    if not _is_glibc() or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    options = {_M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 2 * _GIBIBYTE - 1, _M_TOP_PAD: 256 << 20}
    accepted = [mallopt(ctypes.c_int(option), ctypes.c_int(value)) == 1 for option, value in options.items()]
    return all(accepted)


def return_freed_memory() -> None:
    """Ask glibc to return freed blocks to the system, in some milliseconds.

    By itself it keeps those that lie below a block in use, for every thread apart: a process that keeps some tensors
    of many grows to several times what it uses. Does nothing where another C library is used.
    """
    if _is_glibc():
        ctypes.CDLL(None).malloc_trim(0)


def available_memory() -> int:
    """Bytes that this process may still take without anything being swapped out; 0 where the system does not tell.

    Limits of the first version of control groups are not looked at.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return 0
    return int(max(0, min([free, *map(_left_of, _groups())])))


def _groups() -> list[Path]:
    """The control groups that this process is in, the innermost first: of a container, a service or a job of SLURM."""
    try:
        lines = _OWN_GROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    folder = _CONTAINER / own
    return [folder, *(each for each in folder.parents if each.is_relative_to(_CONTAINER))]


def _left_of(group: Path) -> float:
    """How many bytes a control group still lets its processes take; infinite without a limit."""
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        counted = (group / "memory.stat").read_text().split()
    except (OSError, ValueError):  # no such group, or one without a limit
        return math.inf
    told = dict(zip(counted[::2], map(int, counted[1::2]), strict=True))
    return limit - used + told.get("inactive_file", 0)  # what files were read into memory is given up when needed


@cache
def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"
