"""Backbones in bfloat16, channels-last and compiled, as ratios to float32 as it is: forward passes without gradients.

Run: python benchmarks/backbones.py [--compile] [NAME ...]
"""

import sys

import torch

from _measure import measure_in_turns
from joem.engine.fabric import bfloat16_works
from joem.models import build_backbone

NAMES = ("tu-tf_efficientnet_lite0", "tu-resnet18", "tu-convnext_atto", "tu-vit_tiny_patch16_224")
SIZE = 224


def variants(name: str, compiled: bool) -> dict:
    pictures = torch.randn(2, 3, SIZE, SIZE)
    plain = build_backbone(name, stride=16).eval()
    last = build_backbone(name, stride=16).eval().to(memory_format=torch.channels_last)
    as_last = pictures.to(memory_format=torch.channels_last)

    def mixed() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            plain(pictures)

    found = {"plain": lambda: plain(pictures), "channels-last": lambda: last(as_last)}
    if bfloat16_works():  # elsewhere it would end the process
        found["bfloat16"] = mixed
    if compiled:
        fast = torch.compile(plain)
        fast(pictures)
        found["compiled"] = lambda: fast(pictures)
    return found


@torch.no_grad()
def main() -> None:
    compiled = "--compile" in sys.argv
    names = [each for each in sys.argv[1:] if not each.startswith("-")] or NAMES
    for name in names:
        each = variants(name, compiled)
        costs = measure_in_turns(list(each.values()), [3] * len(each), rounds=2)
        ratios = (f"{kind} {costs[0].seconds / cost.seconds:.2f}" for kind, cost in zip(each, costs, strict=True))
        print(f"{name:30} {costs[0].seconds * 1000:7.0f} ms; times as fast: {', '.join(list(ratios)[1:])}", flush=True)


if __name__ == "__main__":
    main()
