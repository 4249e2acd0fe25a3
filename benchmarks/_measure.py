"""How long a call takes and how much memory it needs at its peak (Linux)."""

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Measurement(NamedTuple):
    """What one call costs."""

    seconds: float
    peak_bytes: int


def measure(function: Callable[[], object], repeats: int = 3) -> Measurement:
    """Call `function` once to see its memory, then `repeats` times to see its time.

    Args:
        function: what to measure; its result is thrown away, but counts as memory while the call lasts.
        repeats: how many timed calls.

    Returns:
        the median of the times, and the growth of resident memory at its peak.
    """
    (found,) = measure_in_turns([function], [repeats], rounds=1)
    return found


def measure_in_turns(
    functions: Sequence[Callable[[], object]], repeats: Sequence[int], rounds: int
) -> list[Measurement]:
    """`measure` for several functions that are compared, called in turns: a slow spell of the machine hits them all.

    Args:
        functions: what to measure.
        repeats: how many timed calls of each in a round.
        rounds: how often every function has its turn.
    """
    peaks = []
    for function in functions:
        before = _start_watching_memory()
        function()
        peaks.append(_resident_bytes("VmHWM") - before)
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, count, times in zip(functions, repeats, seconds, strict=True):
            for _ in range(count):
                start = time.perf_counter()
                function()
                times.append(time.perf_counter() - start)
    return [Measurement(statistics.median(times), peak) for times, peak in zip(seconds, peaks, strict=True)]


def _start_watching_memory() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed blocks that stay mapped would hide the next call's growth
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak (VmHWM) back to what is resident now
    return _resident_bytes("VmRSS")


def _resident_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}: peak memory is measured on Linux only.")
