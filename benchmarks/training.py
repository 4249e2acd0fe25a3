"""A training step on the CPU with glibc's defaults and with freed memory kept: time and page faults side by side.

Run it as `python benchmarks/training.py`.
"""

import os
import resource
import subprocess
import sys
import time

STEPS = 8


def measure_here(keep: bool) -> None:
    import torch

    from joem.engine import reuse_freed_memory
    from joem.methods.joem import JoEm, JoEmSettings
    from joem.models.heads import DeepLabV3PlusSettings
    from joem.settings import ModelSettings
    from joem.vocabulary import Vocabulary

    if keep and not reuse_freed_memory():
        sys.exit("glibc did not take the settings")
    torch.manual_seed(0)
    vocabulary = Vocabulary(tuple(f"class {i}" for i in range(21)))
    settings = ModelSettings(backbone="resnet18", head=DeepLabV3PlusSettings())
    method = JoEm(settings, JoEmSettings(), vocabulary, torch.randn(21, 300)).train()
    optimiser = torch.optim.SGD(method.parameters(), lr=1e-3)
    images, labels = torch.randn(4, 3, 312, 312), torch.randint(0, 21, (4, 312, 312))

    def step() -> None:
        optimiser.zero_grad()
        torch.stack(list(method(images, labels).terms.values())).sum().backward()
        optimiser.step()

    step()
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for _ in range(STEPS):
        step()
    seconds = (time.perf_counter() - started) / STEPS
    after = resource.getrusage(resource.RUSAGE_SELF)
    faults = (after.ru_minflt - before.ru_minflt) / STEPS
    system = (after.ru_stime - before.ru_stime) / STEPS
    print(f"{seconds:.3f} {faults:.0f} {system:.3f} {after.ru_maxrss / 1024:.0f}")


def main() -> None:
    print("DeepLabV3+/ResNet-18, four 312x312 pictures, forward + backward + update, mean of", STEPS, "steps")
    print(f"{'memory':<22}{'seconds':>10}{'page faults':>14}{'system s':>10}{'peak MiB':>10}")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    rows = {}
    for name, flag in (("glibc's defaults", "default"), ("kept (joem train)", "keep")):
        command = [sys.executable, __file__, flag]
        output = subprocess.run(command, check=True, capture_output=True, text=True, env=clean).stdout
        seconds, faults, system, peak = output.split()
        rows[name] = float(seconds)
        print(f"{name:<22}{seconds:>10}{faults:>14}{system:>10}{peak:>10}", flush=True)
    before, after = rows.values()
    print(f"{before / after:.1f} times faster")


if __name__ == "__main__":
    if sys.argv[1:] in (["default"], ["keep"]):
        measure_here(sys.argv[1] == "keep")
    else:
        main()
