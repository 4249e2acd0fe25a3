"""Thousands of damaged inputs of every kind: `make fuzz`.

    python tests/fuzz/run_fuzz.py [--inputs 10000] [--kinds models,onnx] [--out build/fuzz]

Inputs are tried in batches, each in a process of its own that is killed when an input takes longer than 30 s or 4 GiB.
Whatever was tried is written down in OUT/results.jsonl and not tried again, so a run may be stopped and goes on. An
input is known by its kind and its number; `--show KIND NUMBER` tries one here, with its traceback.
"""

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
SECONDS, BYTES, STARTING = 30.0, 4 << 30, 300.0
"""What an input may take, and what it may take to import everything and make the seeds."""

BATCH = 250
OUTCOMES = ("accepted", "refused", "TRACEBACK", "HANG", "MEMORY", "CRASH")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="how many, over all kinds (default: 10000)")
    parser.add_argument("--kinds", default="", help="some kinds, with commas between; all if not given")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="folder of the results")
    parser.add_argument("--show", nargs=2, metavar=("KIND", "NUMBER"), help="try one input here")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return _child(given.child[0], range(int(given.child[1]), int(given.child[2])))
    if given.show:
        return _show(given.show[0], int(given.show[1]))
    names = given.kinds.split(",") if given.kinds else list(_kinds())
    given.out.mkdir(parents=True, exist_ok=True)
    results = given.out / "results.jsonl"
    for name in names:
        _try_all(name, -(-given.inputs // len(names)), results)
    return _report(results)


def _try_all(name: str, count: int, results: Path) -> None:
    done = {number for kind, number, *_ in _read(results) if kind == name}
    left = [number for number in range(count) if number not in done]
    while left:
        batch = range(left[0], min(left[0] + BATCH, count))
        with results.open("a") as file:
            for number, found, detail in _watched(name, batch):
                file.write(json.dumps([name, number, found, detail]) + "\n")
                file.flush()
                done.add(number)
        left = [number for number in left if number not in done]
        print(f"{name}: {count - len(left)} of {count}", flush=True)


def _watched(name: str, batch: range) -> Iterator[tuple[int, str, str]]:
    """What comes of a batch; it ends with the first input that has to be killed."""
    command = [sys.executable, str(Path(__file__)), "--child", name, str(batch.start), str(batch.stop)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment)
        number, deadline = batch.start, time.monotonic() + STARTING
        try:
            while number < batch.stop:
                ready, _, _ = select.select([child.stdout], [], [], 0.2)
                if ready:
                    line = child.stdout.readline()
                    if not line:
                        child.wait()
                        yield number, "CRASH", f"exit code {child.returncode}: {_last_lines(errors)}"
                        return
                    if line.startswith(b"["):
                        number, found, detail = json.loads(line)
                        yield number, found, detail
                        number += 1
                    deadline = time.monotonic() + SECONDS
                elif time.monotonic() > deadline:
                    yield number, "HANG", f"more than {SECONDS:.0f} s"
                    return
                elif _resident(child.pid) > BYTES:
                    yield number, "MEMORY", f"more than {BYTES >> 30} GiB"
                    return
        finally:
            child.kill()
            child.wait()


def _child(name: str, numbers: range) -> int:
    kinds, outcome = _kinds(), _outcome()
    with tempfile.TemporaryDirectory() as folder:
        kind = kinds[name](Path(folder))
        print("ready", flush=True)
        for number in numbers:
            try:
                found, detail = outcome(kind, name, number), ""
            except Exception:
                found, detail = "TRACEBACK", traceback.format_exc()
            print(json.dumps([number, found, detail]), flush=True)
    return 0


def _show(name: str, number: int) -> int:
    kinds, outcome = _kinds(), _outcome()
    with tempfile.TemporaryDirectory() as folder:
        print(outcome(kinds[name](Path(folder)), name, number))
    return 0


def _report(results: Path) -> int:
    """Counts by kind and outcome, and the errors behind the faults."""
    rows = _read(results)
    counts = Counter((name, found) for name, _, found, _ in rows)
    print(f"{'':12}" + "".join(f"{found:>11}" for found in OUTCOMES))
    for name in dict.fromkeys(name for name, *_ in rows):
        print(f"{name:12}" + "".join(f"{counts[name, found]:>11}" for found in OUTCOMES))
    totals = Counter(found for _, _, found, _ in rows)
    print(f"{'all':12}" + "".join(f"{totals[found]:>11}" for found in OUTCOMES))
    faults = [(name, number, found, detail) for name, number, found, detail in rows if found in OUTCOMES[2:]]
    by_error: dict[tuple[str, str], list[int]] = {}
    for name, number, found, detail in faults:
        by_error.setdefault((name, f"{found}: {(detail.strip().splitlines() or [''])[-1][:160]}"), []).append(number)
    for (name, error), numbers in by_error.items():
        print(f"{name} {numbers[0]} ({len(numbers)} such) {error}")
    return 1 if faults else 0


def _read(results: Path) -> list[tuple[str, int, str, str]]:
    if not results.exists():
        return []
    lines = results.read_text().splitlines()
    return [tuple(json.loads(line)) for line in lines if line.endswith("]")]  # the last one may be cut


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # it has ended
        return 0


def _last_lines(errors: object) -> str:
    errors.seek(0)
    return errors.read()[-2000:].decode(errors="replace")


def _kinds() -> dict:
    sys.path[:0] = [str(HERE), str(HERE.parent)]  # where pytest finds the helpers of tests
    from inputs import KINDS

    return KINDS


def _outcome():
    from inputs import outcome

    return outcome


if __name__ == "__main__":
    sys.exit(main())
