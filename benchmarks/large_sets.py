"""Time and memory of predictions for many targets and from large contexts, and of a log-likelihood of many.

    python benchmarks/large_sets.py --device cpu --json results/large-sets/cpu.json
    python benchmarks/large_sets.py --device cuda --json results/large-sets/h200.json

TNP and DSVTNP have the field's size (6 layers of width 64); DSVTNP takes 32 draws. Targets: 1,000 context points, up to
1,000,000 targets. Contexts: up to 100,000 points on a GPU and 10,000 on a CPU, 1,000 targets; a tenth of that for an
equivariant TNP. Memory is what the prediction takes at most in addition to what was there before and the arrays that it
returns: of the process on a CPU, of torch on a GPU. The log-likelihood is that of a small DSVNP, untrained, from as
many draws as suffice.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from dsvnp.estimation import log_likelihood
from dsvnp.models import Architecture, Transformer, make_model
from dsvnp.task import Task

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--most", type=int, default=1_000_000, help="largest number of targets, to try it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for row in measure(args.device, args.most):
        rows.append(row)
        print(*(f"{key}={value}" for key, value in row.items()), flush=True)
    if args.json:
        name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU, 1 thread"
        record = {"machine": {"device": name, "torch": torch.__version__}, "rows": rows}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(record, indent=1) + "\n")


def measure(device: str, most: int) -> Iterator[Row]:
    """Targets first, then contexts."""
    predicted(False, 100, 100, device)  # what a first call loads and allocates
    for targets in (most // 100, most // 10, most // 2, most):
        yield predicted(False, 1000, targets, device)
    for targets in (most // 100, most):
        yield predicted(False, 1000, targets, device, "dsvtnp")
    for equivariant in (False, True):
        # An equivariant score is a network of each pair.
        largest = (most // 10 if device == "cuda" else most // 100) // (10 if equivariant else 1)
        for context in (largest // 10, largest):
            yield predicted(equivariant, context, 1000, device)
    for targets in (most // 100, most // 10, most):
        yield estimated(1000, targets, device)


def estimated(context: int, targets: int, device: str) -> Row:
    """Time and memory of one log-likelihood, and the draws behind it."""
    torch.manual_seed(0)
    arch = Architecture(1, 1, encoder=(32, 32), dim_lat=32, dim_local=2, decoder=(32, 32))
    net = make_model("dsvnp", arch).to(device)
    x, x_target = (
        torch.linspace(-2, 2, size, device=device).reshape(1, -1, 1) for size in (context, targets)
    )
    task = Task.from_sets(x, x.sin(), x_target, x_target.sin())
    before, start = memory(device, reset=True), clock(device)
    found = log_likelihood(net, task)
    seconds, extra = clock(device) - start, memory(device) - before
    assert found.still
    sizes = {"context": context, "targets": targets, "draws": found.draws, "method": found.method}
    return {**sizes, "seconds": round(seconds, 3), "extra_mb": round(extra / 1e6, 1)}


def predicted(equivariant: bool, context: int, targets: int, device: str, name: str = "tnp") -> Row:
    """Time and memory of one prediction, by as many draws as a model takes unless told."""
    torch.manual_seed(0)
    net = make_model(name, Architecture(1, 1, transformer=Transformer(equivariant=equivariant))).to(device)
    x, x_target = (
        torch.linspace(-2, 2, size, device=device).reshape(1, -1, 1) for size in (context, targets)
    )
    task = Task.from_sets(x, x.sin(), x_target)
    before, start = memory(device, reset=True), clock(device)
    prediction = net.predict(task)
    seconds = clock(device) - start
    returned = sum(part.numel() * part.element_size() for part in vars(prediction).values())
    extra = memory(device) - before - returned
    assert bool(prediction.mean.isfinite().all())
    sizes = {"model": name, "context": context, "targets": targets, "equivariant": equivariant}
    return {**sizes, "seconds": round(seconds, 3), "extra_mb": round(extra / 1e6, 1)}


def memory(device: str, reset: bool = False) -> int:
    """Bytes in use at the peak since the last reset, or now if it is reset."""
    if device == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated()
    if reset:
        CLEAR.write_text("5")
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def clock(device: str) -> float:
    """Seconds on a GPU; on a CPU those of the process, which other processes do not change."""
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


if __name__ == "__main__":
    main()
