"""What becomes of freed memory: a training step on CPU is twice as fast with it, a service must give it back."""

import ctypes
import os
import platform
from functools import cache
from pathlib import Path

# glibc's mallopt parameters (malloc.h).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_GIBIBYTE = 1 << 30
_CONTAINER = Path("/sys/fs/cgroup")


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
    """Bytes that this process may still take without anything being swapped out; 0 where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return 0
    try:  # a container's own limit
        limit, used = (int((_CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no container, or one without a limit
        return free
    return max(0, min(free, limit - used))


@cache
def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"
