"""Spread: the units of experiments over the workers of a Dask cluster, an existing one or one on this machine.

A unit runs on one worker. Its checkpoints are in the run's folder, which all workers must see: where a worker dies,
Dask gives its unit to another one, which continues from the last checkpoint. The process that asked for the run
collects the results and alone writes `units.json.gz`, `results.json` and figures.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from dsvnp.devices import one_thread, pick_device
from dsvnp.locks import folder_lock
from dsvnp.paper.experiment import Experiment, Unit, UnitResult, Workplace, fleet_name
from dsvnp.paper.label import Label
from dsvnp.paper.runner import measured
from dsvnp.training import CheckpointError

WAIT = 60  # seconds for the first worker


@dataclass(frozen=True)
class Spread:
    """A client of a cluster, as `Workplace.spread` wants it."""

    client: Any  # of `distributed`
    device: str  # name of the device to compute on, which each worker looks for by itself

    def __call__(
        self, experiment: Experiment, units: Sequence[Unit], place: Workplace
    ) -> Iterator[tuple[int, UnitResult]]:
        """Run units wherever there is a worker; yield the number and the result of each as it ends."""
        from distributed import as_completed

        there = Place(
            place.out.absolute(), place.data_dir and place.data_dir.absolute(), place.weights, self.device
        )
        work = partial(run_there, experiment, there)
        futures = {self.client.submit(work, *unit, pure=False): n for n, unit in enumerate(units)}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                number = futures[future]
                result = _result(future, units[number])
                label, seeds = units[number]
                what = f"{experiment.name} {label}, seeds {seeds[0]}–{seeds[-1]}"
                place.console.print(
                    f"{what}: {result.seconds:g} s; {done} of {len(units)} units",
                    markup=False,
                    soft_wrap=True,
                )
                yield number, result
        finally:
            self.client.cancel(list(futures))


class Place(NamedTuple):
    """What a worker needs of a `Workplace`."""

    out: Path
    data_dir: Path | None
    weights: Path | None
    device: str


def run_there(experiment: Experiment, place: Place, label: Label, seeds: Sequence[int]) -> UnitResult:
    """Run a unit on a worker; what it prints goes nowhere, its log is a file.

    A worker that the cluster believes to be dead may still write: the lock has its successor wait for it.
    """
    device = pick_device(place.device)
    quiet = Console(file=StringIO())
    here = Workplace(place.out, device, quiet, place.data_dir, weights=place.weights)
    folder = place.out / "checkpoints" / fleet_name(label, seeds)
    alone = folder_lock(folder, wait=True, say=lambda line: None)
    with alone, one_thread() if device.type == "cpu" else nullcontext():
        return measured(experiment, (label, seeds), here)


def _result(future: Any, unit: Unit) -> UnitResult:
    """The result of a unit; what ended it is an error of one line."""
    from distributed import KilledWorker

    try:
        result: UnitResult = future.result()
    except (KilledWorker, torch.OutOfMemoryError) as error:
        raise OSError(
            f"{unit[0]}: its workers died ({type(error).__name__}); do they have memory enough?"
        ) from error
    except (ValueError, OSError, CheckpointError):
        raise
    except Exception as error:
        raise OSError(f"{unit[0]}: {type(error).__name__} on a worker: {error}") from error
    return result


@contextmanager
def joined_cluster(address: str | None, workers: int | None, device: str) -> Iterator[Spread | None]:
    """Join a cluster by its address, or start workers on this machine; None if neither is asked for."""
    if address is None and workers is None:
        yield None
        return
    if address is not None and workers is not None:
        raise ValueError("--dask names a cluster and --workers starts one; pass one of them")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("torchrun and Dask both spread a run over processes; use one of them")
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ValueError("Dask is not installed; pip install 'dsvnp[dask]'") from None
    own = None
    if workers is not None:
        own = LocalCluster(
            workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs="ERROR"
        )
    try:
        with Client(own or address, timeout=WAIT) as client:
            client.wait_for_workers(1, timeout=WAIT)
            yield Spread(client, device)
    except TimeoutError:
        raise OSError(
            f"no worker at {address} within {WAIT} s; are the scheduler and its workers running?"
        ) from None
    finally:
        if own is not None:
            own.close()
