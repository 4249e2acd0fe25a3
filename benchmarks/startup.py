"""How long joem takes to start: CPU seconds of fresh processes, in a ratio against `import torch` alone.

    python benchmarks/startup.py            # the median of three runs each
    python benchmarks/startup.py --runs 5 --json

CPU time (user and system) hardly depends on what else the machine does; on a busy one the ratio is the fairer number.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PHOTO = Path(__file__).parents[1] / "src" / "joem" / "web" / "photos" / "cat.jpg"
WAYS = {
    "import torch": ["-c", "import torch"],
    "from joem import Segmenter": ["-c", "from joem import Segmenter"],
    "joem predict, one photo": ["-m", "joem", "predict", str(PHOTO), "--classes", "kitten, wooden floor", "--out"],
}
AIMS = {"from joem import Segmenter": 2.0, "joem predict, one photo": 4.0}


def cpu_seconds(words: list[str]) -> float:
    """User and system seconds of a Python process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        ending = [folder] if words[-1] == "--out" else []
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # it makes every start compile anew
        subprocess.run([sys.executable, *words, *ending], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(runs: int) -> dict[str, dict[str, float]]:
    """The median of each way; the ways take turns, so that a busy minute hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(runs):
        for name, words in WAYS.items():
            found[name].append(cpu_seconds(words))
    medians = {name: statistics.median(each) for name, each in found.items()}
    torch = medians["import torch"]
    return {name: {"seconds": round(each, 2), "ratio": round(each / torch, 2)} for name, each in medians.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    cpu_seconds(WAYS["joem predict, one photo"])  # so that files are in memory and bytecode is written
    found = measure(given.runs)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, each in found.items():
        aim = f"   (to be under {AIMS[name]:g} s on a quiet machine)" if name in AIMS else ""
        print(f"{name:28} {each['seconds']:6.2f} s CPU   {each['ratio']:5.2f} x import torch{aim}")


if __name__ == "__main__":
    main()
