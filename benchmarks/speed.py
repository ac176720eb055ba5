"""Speed of training steps and predictions, ours and a peer's, measured in one run.

    python benchmarks/speed.py --device cuda --json results/speed/h200.json
    python benchmarks/speed.py --device cuda --json results/speed/h200.json --models tnp

The task of every row is the same: 16 functions of 50 context and 50 further points, layers of width 128; TNP has the
tasks and the size of the field's table, 16 functions of 50 points and 6 layers of width 64. Our rows draw their batches
inside the timed step; the peer (`neuralprocesses` from PyPI, where it is installed) gets a fixed batch, which is in its
favour. Times are medians over blocks of steps, after warm-up. With `--models`, only their training steps are measured,
and the rows of other models stay in the file: plain loop and fleet of a model are always of one run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import dsvnp
from dsvnp.models import Architecture, make_model
from dsvnp.objectives import Weights, weighted_loss
from dsvnp.paper.field.recipe import NO_FLOOR, FieldRecipe
from dsvnp.sources.base import TaskSource
from dsvnp.sources.curves import Curves
from dsvnp.sources.gp import GPPrior, GPTasks
from dsvnp.task import Task
from dsvnp.training import Adam, Fleet, Settings
from dsvnp.training.shared import matmul_precision

TASKS, POINTS, WIDTH = 16, 100, 128
ARCHITECTURES = {
    # one hidden layer in the decoder, as in the paper's architecture
    "width 128": Architecture(1, 1, encoder=(WIDTH, WIDTH), dim_lat=WIDTH, decoder=(WIDTH,)),
    # the depth of the peer's networks: three hidden layers in the encoder and in the decoder
    "peer's size": Architecture(1, 1, encoder=(WIDTH,) * 3, dim_lat=WIDTH, decoder=(WIDTH,) * 3),
    "field's size": FieldRecipe().architecture("tnp", 1, 1, **NO_FLOOR),
}
SIZES = {
    "dsvnp": "width 128",
    "np": "peer's size",
    "cnp": "peer's size",
    "attnnp": "width 128",
    "tnp": "field's size",
}
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--quick", action="store_true", help="fewer steps, to see whether it runs")
    parser.add_argument("--models", nargs="+", choices=SIZES, help="measure only training steps of these")
    parser.add_argument("--threads", type=int, default=2, help="threads on a CPU")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console(width=140)
    rows: list[Row] = []
    for row in measure(args.device, args.quick, args.models):
        rows.append(row)
        console.print(
            " ".join(f"{key}={value}" for key, value in row.items()), highlight=False, soft_wrap=True
        )
    console.print(table(rows))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        kept = others(args.json, args.models) if args.models and args.json.exists() else []
        record = {"machine": machine(args.device), "rows": [*kept, *rows]}
        args.json.write_text(json.dumps(record, indent=1) + "\n")


def others(path: Path, models: Iterable[str]) -> list[Row]:
    """The rows of a file that are not our training steps of some models."""
    rows: list[Row] = json.loads(path.read_text())["rows"]
    return [r for r in rows if (r["what"], r["library"]) != ("train", "dsvnp") or r["model"] not in models]


def measure(device: str, quick: bool, models: Sequence[str] | None = None) -> Iterator[Row]:
    """All rows, or those of the training of some models, one at a time."""
    for model in models or SIZES:
        yield from train_rows(model, device, quick)
    if not models:
        yield from peer_rows(device, quick)
        yield from predict_rows(device, quick)


def train_rows(model: str, device: str, quick: bool) -> Iterator[Row]:
    """Our training steps of a model."""
    cuda, size = device == "cuda", SIZES[model]
    yield row("train", "dsvnp", model, "eager", device, 1, eager(model, size, device, quick), size=size)
    ways: list[tuple[str, bool, bool]] = [("fleet step", False, False)]
    if model in ("dsvnp", "np"):
        ways += [("compiled", True, False)]
    if cuda:
        ways += [("captured", False, True), ("compiled and captured", True, True)]
    for how, compiled, captured in ways[-1:] if model == "tnp" else ways:  # it takes long to compile
        for replicas in (1, 10):
            settings: dict[str, Any] = {"compile": compiled, "capture": captured}
            settings["precision"] = "tf32" if cuda else "float32"
            ms = fleet(model, size, device, replicas, quick, **settings)
            extra = {"size": size, "precision": settings["precision"]}
            yield row("train", "dsvnp", model, how, device, replicas, ms, **extra)
    if cuda and model == "dsvnp":  # what the headline leaves out: clipping, and full float32
        for replicas in (1, 10):
            for precision, clip in (("tf32", 1.0), ("float32", None), ("float32", 1.0)):
                ms = fleet(
                    "dsvnp",
                    "width 128",
                    device,
                    replicas,
                    quick,
                    precision=precision,
                    optimizer=Adam(clip_norm=clip),
                )
                extra = {"size": "width 128", "precision": precision, "clip_norm": clip}
                yield row("train", "dsvnp", "dsvnp", "compiled and captured", device, replicas, ms, **extra)


def source_of(size: str, refresh_every: int) -> TaskSource:
    """The tasks of a row; its times leave out what a new pool takes, in nearly all blocks of steps."""
    if size == "field's size":
        return GPTasks(GPPrior(), TASKS, POINTS // 2, refresh_every=refresh_every)
    return Curves(TASKS, POINTS, 50, 50, refresh_every=refresh_every)


def eager(model: str, size: str, device: str, quick: bool) -> float:
    """A plain loop: objective, backward, torch's Adam."""
    source = source_of(size, 256)
    net = make_model(model, ARCHITECTURES[size]).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    generator = torch.Generator(device).manual_seed(0)
    pool = source.pool(generator, torch.device(device))
    counter = iter(range(10**9))

    def step() -> None:
        now = torch.tensor(next(counter), device=device)
        shapes = source.uniform_shapes().items()
        uniforms = {name: torch.rand(shape, generator=generator, device=device) for name, shape in shapes}
        task = source.batch(pool, uniforms, now)
        optimizer.zero_grad(set_to_none=True)
        weighted_loss(net.objective(task, validate=False), Weights()).backward()
        optimizer.step()

    with matmul_precision("tf32" if device == "cuda" else "float32"):
        return timed(step, device, quick)


def fleet(model: str, size: str, device: str, replicas: int, quick: bool, **settings: Any) -> float:
    """The engine's step."""
    precision = settings.get("precision", "float32")
    made = Fleet(
        partial(make_model, model, ARCHITECTURES[size]),
        source_of(size, 4096 if device == "cuda" else 256),
        list(range(replicas)),
        Settings(num_steps=10**9, **settings),
        device,
    )
    with matmul_precision(precision):
        return timed(made.step, device, quick)


def peer_rows(device: str, quick: bool) -> Iterator[Row]:
    """The peer's training steps, where it is installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import lab.torch as lab
            import neuralprocesses.torch as nps
    except ImportError:
        print("the peer `neuralprocesses` is not installed: its rows are left out")
        return
    sizes = {"dim_embedding": WIDTH, "width": WIDTH, "num_enc_layers": 3, "num_dec_layers": 3}
    for model, dim_lv in (("cnp", 0), ("np", WIDTH)):
        net = nps.construct_gnp(
            dim_x=1, dim_y=1, likelihood="het", dim_lv=dim_lv, dtype=torch.float32, **sizes
        )
        with lab.on_device(device):
            ms = timed(peer_step(nps, lab, net, bool(dim_lv), device), device, quick)
        yield row("train", "neuralprocesses", model, "eager", device, 1, ms, size="peer's size")


def peer_step(nps: Any, lab: Any, net: Any, latent: bool, device: str) -> Callable[[], None]:
    """One of the peer's steps: its objective on a fixed batch, backward, torch's Adam."""
    xc, yc, xt, yt = (torch.randn(TASKS, 1, POINTS // 2, device=device) for _ in range(4))
    state = lab.create_random_state(torch.float32, seed=0)

    def score() -> torch.Tensor:
        if latent:
            return nps.elbo(state, net, [(xc, yc)], xt, yt, normalise=True, num_samples=1)[1]
        return nps.loglik(net, [(xc, yc)], xt, yt, normalise=True)

    net.to(device)
    score()  # its layers take their sizes from the first call
    optimizer = torch.optim.Adam(net.to(device).parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        (-score().mean()).backward()
        optimizer.step()

    return step


def predict_rows(device: str, quick: bool) -> Iterator[Row]:
    """Our predictions: one task, 100 context points, more and more targets, one draw of the latents."""
    for model in ("cnp", "np", "attnnp", "dsvnp"):
        net = make_model(model, ARCHITECTURES["width 128"]).to(device)
        for exponent in range(2, 4 if quick else 7):
            x = torch.linspace(-2, 2, 10**exponent, device=device)[None, :, None]
            context = torch.linspace(-2, 2, 100, device=device)[None, :, None]
            task = Task.from_sets(context, context.sin(), x)
            call = partial(net.predict, task, num_global=1, validate=False)
            ms = timed(call, device, quick)
            yield row("predict", "dsvnp", model, "eager", device, 1, ms, targets=10**exponent)


def timed(step: Callable[[], Any], device: str, quick: bool) -> float:
    """Median time of a call, in milliseconds, over five blocks of about a third of a second."""
    sync = torch.cuda.synchronize if device == "cuda" else lambda: None

    def block(calls: int) -> float:
        sync()
        start = time.perf_counter()
        for _ in range(calls):
            step()
        sync()
        return (time.perf_counter() - start) / calls

    block(3)  # the first calls compile, capture and allocate
    calls = 2 if quick else max(2, min(1000, int(0.3 / block(3))))
    return statistics.median(block(calls) for _ in range(2 if quick else 5)) * 1e3


def row(
    what: str, library: str, model: str, how: str, device: str, replicas: int, ms: float, **extra: Any
) -> Row:
    """One row of the table."""
    return {
        "what": what,
        "library": library,
        "model": model,
        "how": how,
        "device": device,
        "replicas": replicas,
        "ms_per_step": round(ms, 4),
        "ms_per_model_step": round(ms / replicas, 4),
        **extra,
    }


def machine(device: str) -> Row:
    """The machine and the versions of a run."""
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return {"device": name, "torch": torch.__version__, "dsvnp": dsvnp.__version__}


def table(rows: list[Row]) -> Table:
    """The rows as a table to read."""
    columns = list(dict.fromkeys(key for each in rows for key in each))
    out = Table(title="milliseconds; a model's step is a step divided by the replicas in it")
    for column in columns:
        out.add_column(column)
    for each in rows:
        out.add_row(*(str(each.get(column, "")) for column in columns))
    return out


if __name__ == "__main__":
    main()
