"""Trainings that are killed at random moments and resumed must end with the same weights, bit for bit: `make chaos`.

    python tests/fuzz/chaos.py [--kills 50] [--processes 1,2] [--seed 0]

A small training runs once without a stop. Then it runs again and again, is killed with SIGKILL at a random moment, is
resumed, killed, resumed, until it comes to its end, and its weights are compared. Of two processes either both are
killed or one of them; the other must then end by itself and say how to go on.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

STEPS, PATIENCE = 60, 900.0
"""Steps of a training, and seconds that it, or what is left of it, may take to end by itself."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="how many, over all numbers of processes (default: 50)")
    parser.add_argument("--processes", default="1,2", help="numbers of processes (default: 1,2)")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    given = parser.parse_args()
    counts = [int(each) for each in given.processes.split(",")]
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for index, count in enumerate(counts):
            share = given.kills // len(counts) + (index < given.kills % len(counts))
            faults += Chaos(Path(folder) / str(count), count, Random(given.seed + count)).run(share)
    print("All ended with the same weights." if not faults else f"{faults} faults.")
    return 1 if faults else 0


class Chaos:
    """The trainings of one number of processes."""

    def __init__(self, folder: Path, processes: int, random: Random) -> None:
        self.folder, self.processes, self.random = folder, processes, random
        folder.mkdir(parents=True)
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text(yaml.safe_dump(self._recipe()))

    def _recipe(self) -> dict:
        from conftest import make_tiny

        devices = {"devices": self.processes, "strategy": "ddp"} if self.processes > 1 else {}
        return make_tiny(
            model={"dropout": 0.3}, train={"epochs": STEPS // 2, "save_every": 2, "log_every": 1, **devices}
        ).to_dict()

    def run(self, kills: int) -> int:
        """Kill so many times; returns how many faults there were."""
        started = time.monotonic()
        code, errors = self._wait(self._start(self.folder / "whole", resume=False))
        assert code == 0, errors
        seconds = time.monotonic() - started
        print(f"{self.processes} process(es): {seconds:.0f} s without a stop", flush=True)
        done = faults = number = 0
        while done < kills:
            number += 1
            out = self.folder / f"killed-{number}"
            ended = False
            while not ended:
                ended, killed, fault = self._once(out, seconds, kill=done < kills)
                done, faults = done + killed, faults + fault
                if fault:
                    break
            if ended and not self._same(out):
                print(f"FAULT: the weights of {out} differ from those without a stop", flush=True)
                faults += 1
        print(f"{done} kills in {number} trainings, {faults} faults", flush=True)
        return faults

    def _once(self, out: Path, seconds: float, kill: bool) -> tuple[bool, bool, bool]:
        """Start or resume a run and kill it, unless it ends first: whether it ended, was killed, was at fault."""
        resume = any((out / "checkpoints").glob("step-*"))
        process = self._start(out, resume)
        if kill and self._until_a_moment(process, out, seconds):
            return False, True, self._kill(process, out)
        code, errors = self._wait(process)
        if code != 0:
            print(f"FAULT: exit code {code}\n{errors}", flush=True)
        return code == 0, False, code != 0

    def _until_a_moment(self, process: subprocess.Popen, out: Path, seconds: float) -> bool:
        """Wait for a random moment, mostly one among the steps, else one of the start; False if the run ended first."""
        among_steps, before = self.random.random() < 0.8, _logged(out / "metrics.csv")
        step, pause = before + self.random.randrange(1, STEPS // 3), self.random.uniform(0, 0.3)
        moment = time.monotonic() + self.random.uniform(0, seconds / 2)
        while process.poll() is None:
            if _logged(out / "metrics.csv") >= step if among_steps else time.monotonic() > moment:
                time.sleep(pause)
                return process.poll() is None
            time.sleep(0.01)
        return False

    def _kill(self, process: subprocess.Popen, out: Path) -> bool:
        members = _family(process.pid)
        victims = self.random.choice([members, *([each] for each in members)]) if len(members) > 1 else members
        for each in victims:
            _kill(each)
        steps = sorted(path.name for path in (out / "checkpoints").glob("step-*"))
        who = "all" if len(victims) == len(members) else f"process {members.index(victims[0])}"
        logged, newest = _logged(out / "metrics.csv"), steps[-1] if steps else "none"
        print(f"  killed {who} of {len(members)} at step {logged}, newest checkpoint {newest}", flush=True)
        deadline = time.monotonic() + PATIENCE
        while survivors := [each for each in members if _alive(each)]:
            if time.monotonic() > deadline:
                print(f"FAULT: processes {survivors} did not end after the others were killed", flush=True)
                for each in survivors:
                    _kill(each)
                return True
            process.poll()
            time.sleep(0.1)
        process.wait()
        errors = (out.parent / f"{out.name}.txt").read_text()
        if "Traceback" in errors:
            print(f"FAULT: a traceback\n{errors}", flush=True)
        return "Traceback" in errors

    def _start(self, out: Path, resume: bool) -> subprocess.Popen:
        code = "import sys; from joem import cli; sys.exit(cli.main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "train", str(self.recipe), "--out", str(out)]
        if self.processes > 1:  # the launcher starts the other processes with the same script
            script = self.folder / "train.py"
            script.write_text(code.replace("; ", "\n"))
            command[1:3] = [str(script)]
        errors = (out.parent / f"{out.name}.txt").open("w")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [*command, *(["--resume"] if resume else [])], stdout=errors, stderr=errors, env=environment
        )

    def _wait(self, process: subprocess.Popen) -> tuple[int, str]:
        code = process.wait(PATIENCE)
        out = Path(process.args[process.args.index("--out") + 1])
        return code, (out.parent / f"{out.name}.txt").read_text()

    def _same(self, out: Path) -> bool:
        import torch

        from joem.io import read_tensors

        whole, found = (read_tensors(each / "model/weights.safetensors") for each in (self.folder / "whole", out))
        hidden = [path for path in out.rglob("*") if path.name.startswith(".")]
        if hidden:
            print(f"FAULT: left behind: {hidden}", flush=True)
        return not hidden and whole.keys() == found.keys() and all(torch.equal(whole[key], found[key]) for key in whole)


def _logged(metrics: Path) -> int:
    """The last step that a run has written down."""
    try:
        last = metrics.read_text().splitlines()[-1].split(",")[0]
    except (OSError, IndexError):
        return 0
    return int(last) if last.isdigit() else 0


def _family(process: int) -> list[int]:
    """A process and those that it started."""
    tasks = Path(f"/proc/{process}/task")
    children = [
        int(child) for file in tasks.glob("*/children") for child in file.read_text().split() if _is_python(int(child))
    ]
    return [process, *(each for child in children for each in _family(child))]


def _is_python(process: int) -> bool:
    try:
        return b"python" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
