"""Share of a pretraining step that drawing synthetic functions takes.

    python benchmarks/drawing.py results/pretrained/drawing.json --device cuda

A fleet takes as many steps as the longest pool of its recipe serves, several times over, drawing included; then each
pool is drawn alone, as often. The share is the drawing time of one step over the whole time of one step, both medians.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dsvnp.paper.runner import machine_name
from dsvnp.pretrained.recipes import RECIPES, PretrainingRecipe
from dsvnp.training import Fleet

WARMUP = 2  # rounds that are not counted: compilation, and the allocator's first requests


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Time of a call, with all that it queued on the device."""
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def share_of(
    recipe: PretrainingRecipe, device: torch.device, precision: str, rounds: int, steps: int | None = None
) -> dict[str, Any]:
    """Milliseconds of a step, those of them that drawing takes, and their quotient."""
    sources = recipe.source.sources
    whole = len(sources) * math.lcm(
        *(source.refresh_every for source in sources)
    )  # every pool is drawn at least once
    steps = whole if steps is None else steps
    fleet = Fleet(recipe.make, recipe.source, [0], recipe.settings(10**6, precision, device), device)

    def train() -> None:
        for _ in range(steps):
            fleet.step()

    generator = torch.Generator(device).manual_seed(0)
    times: list[float] = []
    draws: list[list[float]] = [[] for _ in sources]
    for count in range(rounds + WARMUP):  # in turns: other work on the machine slows both alike
        step_time = seconds(train, device) / steps
        draw_times = [
            seconds(lambda source=source: source.pool(generator, device), device) / source.refresh_every
            for source in sources
        ]
        if count >= WARMUP:
            times.append(step_time)
            for mine, each in zip(draws, draw_times, strict=True):
                mine.append(each)
    step = statistics.median(times)
    draw = statistics.fmean(map(statistics.median, draws))  # sources take turns
    return {
        "step_ms": 1e3 * step,
        "draw_ms": 1e3 * draw,
        "share": draw / step,
        "steps": steps,
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recipes", nargs="*", default=["tables", "curves"], choices=sorted(RECIPES))
    args = parser.parse_args()
    device = torch.device(args.device)
    found: dict[str, Any] = {"machine": machine_name(device), "precision": args.precision}
    for name in args.recipes:
        found[name] = share_of(RECIPES[name](), device, args.precision, args.rounds)
        print(name, {key: round(value, 3) for key, value in found[name].items()})
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
