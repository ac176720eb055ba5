"""What one of two processes does in the tests of many processes: train in several ways, write down what came out.

Run as `python rank_script.py FOLDER` with the variables that torchrun sets. Weights go to
FOLDER/NAME.rankN.safetensors, what was said and refused to FOLDER/rankN.json.
"""

import io
import json
import shutil
import signal
import sys
import warnings
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist
from rich.console import Console
from safetensors.torch import save_file
from small_fleet import curves, images, make_fleet, make_vgg, run_steps

from dsvnp.objectives import Objective
from dsvnp.training import Cluster, Fleet, Reporter, train

DATA = {
    "cnp": {"name": "cnp"},
    "dsvnp": {"name": "dsvnp", "objective": Objective(epsilon_global=0.5, num_global=2, num_local=2)},
    "mc-dropout": {"name": "mc-dropout"},
    "undivided": {"name": "np", "objective": Objective(divide_global=False)},
}
SEEDS = (1, 2)
SHARED = {"seeds": (1, 2, 3), "validate_every": 2, "log_every": 2, "checkpoint_every": 5}


def write(fleet: Fleet, path: Path) -> None:
    save_file({name: value.clone() for name, value in fleet.state.items()}, path)


def validation(fleet: Fleet) -> torch.Tensor:
    return fleet.state["params"].square().sum(1)


def refusal(action) -> str:
    try:
        action()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return ""


def no_compiler(function, **options):
    raise RuntimeError("no compiler here")


def interrupt(fleet: Fleet, rank: int, step: int) -> Fleet:
    """One of the processes gets a signal at a step."""
    original = fleet.step

    def stepping() -> None:
        original()
        if fleet.cluster.rank == rank and fleet.num_steps_taken == step:
            signal.raise_signal(signal.SIGTERM)

    fleet.step = stepping
    return fleet


def main(out: Path) -> None:
    torch.set_num_threads(1)
    data = Cluster.from_environment("data")
    shared = Cluster.from_environment("replicas")
    rank = data.rank
    notes: dict[str, object] = {"rank": rank, "size": data.size, "writes": data.writes}

    def keep(name: str, fleet: Fleet) -> None:
        write(fleet, out / f"{name}.rank{rank}.safetensors")

    for name, chosen in DATA.items():
        keep(f"data-{name}", run_steps(make_fleet(seeds=SEEDS, cluster=data, **chosen), 10))
    keep("data-vgg", run_steps(make_fleet(source=images(), make=make_vgg, cluster=data), 1))

    with patch("torch.compile", no_compiler if rank else lambda function, **options: function):
        fleet = make_fleet(seeds=SEEDS, cluster=data, compile=True, **DATA["cnp"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            keep("data-one-compiler", run_steps(fleet, 10))
    notes["uncompiled"] = [str(warning.message) for warning in caught]

    keep("data-saved", train(make_fleet(num_steps=5, cluster=data), out / "data"))
    keep("data-resumed", train(make_fleet(num_steps=8, cluster=data), out / "data"))

    dist.barrier()
    if rank == 0:
        shutil.copytree(out / "data" / "step-000000005", out / "apart0" / "step-000000005")
    notes["apart"] = refusal(partial(train, make_fleet(num_steps=8, cluster=data), out / f"apart{rank}"))

    # Every process hands in a reporter; one of them writes.
    console = Console(file=io.StringIO(), width=300)

    def reporter() -> Reporter:
        return Reporter("run", 10, log=out / "log.jsonl", console=console)

    fleet = make_fleet(num_steps=5, cluster=shared, **SHARED)
    notes["share"] = list(fleet.share)
    train(fleet, out / "shared", validation, reporter())
    train(make_fleet(num_steps=10, cluster=shared, **SHARED), out / "shared", validation, reporter())
    notes["said"] = console.file.getvalue()

    folds = [images(seed=seed) for seed in (1, 2, 3)]
    fleet = make_fleet("np", (1, 2, 3), folds, make_vgg().arch, cluster=shared)
    keep("folds", run_steps(fleet, 3))

    broken = Console(file=io.StringIO(), width=300)
    fleet = make_fleet(seeds=(1, 2, 3), cluster=shared, num_steps=4, log_every=2)
    if rank == 1:
        fleet.plan.layout.unflatten(fleet.state["params"])["decoder.rest.0.bias"][0].fill_(float("nan"))
    train(fleet, reporter=Reporter("run", 4, console=broken))
    notes["broken"] = broken.file.getvalue()
    notes["active"] = fleet.active

    fleet = interrupt(make_fleet(num_steps=9, log_every=3, cluster=data), 1, 4)
    notes["interrupted"] = refusal(partial(train, fleet, out / "interrupted"))

    odd = make_fleet(source=curves(batch_size=3), cluster=data)
    notes["odd batch"] = refusal(odd.step)
    notes["few seeds"] = refusal(lambda: make_fleet(seeds=(1,), cluster=shared))
    (out / f"rank{rank}.json").write_text(json.dumps(notes))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
