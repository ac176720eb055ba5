"""onnxruntime against torch: the pretrained network for tables answers rows, with one thread each.

python benchmarks/export.py [--rounds 7] [--file tables.onnx] [--out results/export/speed.json]

Both predict the same rows from the same context in turns; times are CPU time of the process, which other processes on
the machine change little. The largest difference of means, in predictive σ, is reported as well.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor

from dsvnp import load_pretrained
from dsvnp.export import pretrained_graph, to_onnx
from dsvnp.pretrained.heads import for_numbers
from dsvnp.pretrained.tables import TableUse, predict_numbers

ROWS = 1000
CONTEXTS = (128, 512, 1000)
COLUMNS = 10


def table(context: int) -> tuple[Tensor, Tensor, Tensor]:
    """A table with noise, in float64: inputs and outputs of the context, and inputs to predict at."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(context + ROWS, COLUMNS, generator=generator, dtype=torch.float64)
    y = (x[:, 0].sin() + x[:, 1] * x[:, 2])[:context]
    return x[:context], y + 0.1 * torch.randn(context, generator=generator, dtype=torch.float64), x[context:]


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process while it works."""
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(session: onnxruntime.InferenceSession, context: int, rounds: int) -> dict[str, float]:
    """Medians over rounds in which both take turns; a first round does not count."""
    x, y, targets = table(context)
    model, one = for_numbers(load_pretrained("tables")), TableUse(num_orders=1)
    feed = {
        "x_context": x[None].numpy(),
        "y_context": y[None, :, None].numpy(),
        "x_target": targets[None].numpy(),
    }
    ways = {
        "onnxruntime": lambda: session.run(["mean"], feed),
        "torch": lambda: predict_numbers(model, x, y, targets, one).mean,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, work in ways.items():
            times[name].append(cpu_seconds(work))
    wanted = predict_numbers(model, x, y, targets, one)
    apart = (torch.from_numpy(session.run(["mean"], feed)[0]) - wanted.mean).abs() / wanted.stddev
    found = {f"{name}_seconds": statistics.median(values[1:]) for name, values in times.items()}
    ratio = statistics.median(
        a / b for a, b in zip(times["onnxruntime"][1:], times["torch"][1:], strict=True)
    )
    return {"context": context, **found, "ratio": ratio, "difference_in_sigma": float(apart.max())}


def main() -> None:
    """Measure, print and, if asked to, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--file", type=Path, help="an exported file; made if there is none")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = arguments.file or Path(tempfile.mkdtemp()) / "tables.onnx"
    if not path.exists():
        to_onnx(pretrained_graph("tables"), path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    record = {
        "rows": ROWS,
        "columns": COLUMNS,
        "rounds": arguments.rounds,
        "threads": 1,
        "megabytes": round(path.stat().st_size / 1e6, 1),
        "versions": {name: version(name) for name in ("torch", "onnxruntime", "numpy")},
        "machine": platform.machine(),
        "results": [compare(session, context, arguments.rounds) for context in CONTEXTS],
    }
    text = json.dumps(record, indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
