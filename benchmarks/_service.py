"""A service in a process of its own, on loopback (Linux)."""

import json
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import numpy as np
from numpy.typing import NDArray

from joem import decision


class Running:
    """A service that runs.

    Attributes:
        address: where it is.
        exit_code: what it ended with, once it was stopped.
    """

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process, self.address = process, address
        self.exit_code: int | None = None

    def resident(self) -> float:
        """Megabytes of memory that it holds."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("The service has ended by itself.")

    def cached(self) -> float:
        """Megabytes that it counts for the pictures it keeps."""
        figures = httpx.get(f"{self.address}/metrics", timeout=90).text.splitlines()
        return next(float(line.split()[1]) for line in figures if line.startswith("joem_cache_bytes")) / 2**20


@contextmanager
def serving(model: str, *options: str) -> Iterator[Running]:
    """`joem serve` on a model, stopped at the end."""
    command = [sys.executable, "-m", "joem", "serve", "--model", model, "--port", "0", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            running = Running(process, json.loads(process.stdout.readline())["address"])
            yield running
        finally:
            process.send_signal(signal.SIGTERM)
        running.exit_code = process.wait(60)


def decide(content: bytes, rule: str, value: float | None) -> NDArray[np.uint8]:
    """Labels from a ranking that the service sent, by a value of its rule's parameter."""
    (length,) = struct.unpack_from("<I", content)
    header = json.loads(content[4 : 4 + length])
    pixels, start = header["width"] * header["height"], 4 + length
    turning = np.frombuffer(content, "<f4", pixels, start + 12 * pixels)
    seen, unseen = np.frombuffer(content, "u1", 2 * pixels, start + 16 * pixels).reshape(2, -1)
    parameter = decision.RULES[rule].parameter
    limit = np.float32(0 if value is None else value)
    taken = turning < limit if parameter is None or parameter.rises else turning > limit
    return np.where(taken, unseen, seen).reshape(header["height"], header["width"])
