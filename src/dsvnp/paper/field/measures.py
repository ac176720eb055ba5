"""What is measured of a model in the field's table: log-likelihoods per point and per task, on four kinds of tasks.

    marginal   per point, by draws that suffice (`dsvnp.estimation`)
    joint      per task, by draws that suffice; for a model without latents the product of its marginals
    chain      per task, by the chain rule: autoregression in random orders

All are means over the targets of a task, then over a batch of 16 tasks, then over batches.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsvnp.estimation import log_likelihood
from dsvnp.metrics import point_mask, point_nll
from dsvnp.models import NeuralProcess
from dsvnp.paper.experiment import EXACT, Drawn, Measurement, read_log
from dsvnp.paper.field import unseen
from dsvnp.paper.measuring import DrawCounts, seeded_predict
from dsvnp.streaming import Per
from dsvnp.task import Task
from dsvnp.training import Fleet


def measure_field(
    nets: Sequence[NeuralProcess], sizes: unseen.TestSizes, chain: bool, device: torch.device
) -> tuple[Measurement, ...]:
    """All rows of a model, one value per net; `chain` asks for autoregression, too."""
    rows: list[Measurement] = []
    for dataset in unseen.PRIORS:
        known = unseen.draw_unseen(dataset, sizes.num_batches, sizes.num_points, device, sizes.drawn_on)
        number = sizes.marginal_batches(dataset, is_random(nets[0]))
        rows += _estimated(dataset, "marginal", nets, unseen.compact(unseen.first(known, number)), sizes)
        some = unseen.compact(unseen.first(known, sizes.joint_batches))
        rows += _estimated(dataset, "joint", nets, some, sizes)
        if chain:
            values = [chain_likelihoods(net, some, sizes) for net in nets]
            drawn = Drawn("prior", sizes.chain_draws, None) if is_random(nets[0]) else EXACT
            rows += unseen.summarised(dataset, "chain", values, [drawn] * len(nets))
    return tuple(rows)


def is_random(net: NeuralProcess) -> bool:
    """Whether predictions depend on draws."""
    return bool(net.noise_shapes(1, 1, 1, 1, shared=True))


def _estimated(
    dataset: str, split: str, nets: Sequence[NeuralProcess], tasks: list[Task], sizes: unseen.TestSizes
) -> list[Measurement]:
    """Log-likelihoods with the draws behind them and, of a model with latents, how far they exceed the ELBO."""
    per: Per = "point" if split == "marginal" else "task"
    limits: dict[str, Any] = {name: getattr(sizes, name) for name in ("max_draws", "tolerance", "chunk")}
    if per == "task":
        limits["max_draws"] = min(sizes.max_draws, sizes.joint_draws)
    method = sizes.method if per == "point" and is_random(nets[0]) else "auto"
    found = [log_likelihood(net, tasks, per, method=method, **limits) for net in nets]
    values = [each.values if per == "task" else task_means(each.values, tasks) for each in found]
    rows = unseen.summarised(dataset, split, values, [Drawn.of(each) for each in found])
    if is_random(nets[0]):
        above = tuple(each.mean - each.bound for each in found)  # both over points, not over batches
        rows.append(Measurement(dataset, "above-elbo", split, unseen.UNIT, above))
    return rows


def task_means(values: Tensor, tasks: Iterable[Task]) -> Tensor:
    """The mean over the targets of each task, [N], of values for each target outside the context, flat."""
    counts = torch.cat([point_mask(task, "P").sum(-1) for task in tasks])
    owners = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    totals = torch.zeros(len(counts), dtype=torch.float64, device=values.device)
    return totals.index_add(0, owners, values.double()) / counts


@torch.no_grad()
def chain_likelihoods(net: NeuralProcess, tasks: Iterable[Task], sizes: unseen.TestSizes) -> Tensor:
    """Joint log-likelihood of each task by autoregression, divided by the number of its targets, [N]."""
    parts = []
    for task in tasks:
        generator = torch.Generator(task.x_target.device).manual_seed(0)
        draws = sizes.chain_draws if is_random(net) else 1
        joint = net.log_prob_joint(
            task, sizes.num_orders, num_global=draws, generator=generator, chunk=sizes.chunk
        )
        parts.append(joint / point_mask(task, "P").sum(-1))
    return torch.cat(parts)


# --- during training ---


def validation(
    num_batches: int, num_points: int, draws: DrawCounts, device: torch.device
) -> Callable[[Fleet], Tensor]:
    """A cheap marginal NLL of each replica of a fleet on unseen RBF tasks, from a few draws."""
    known = unseen.draw_marks(num_batches, num_points, device)

    def measure(fleet: Fleet) -> Tensor:
        nets = [fleet.replica(row) for row in range(len(fleet.seeds))]
        losses = [[point_nll(seeded_predict(net, k.task, draws), k.task, "P") for k in known] for net in nets]
        return torch.stack([torch.cat(each).mean() for each in losses])

    return measure


def read_marks(log: Path) -> dict[str, list[Any]]:
    """Validations of a training from its log: steps, seconds since its start, and log-likelihoods of each seed.

    The seconds are those of the whole fleet, compilation and validation included; a break before a resume is not.
    """
    marks: dict[str, list[Any]] = {"step": [], "seconds": [], "log_likelihood": []}
    seconds, before = 0.0, 0
    for line in read_log(log):
        seconds += (line["step"] - before) / max(line["steps_per_second"], 1e-9)
        before = line["step"]
        if "validation" in line:
            marks["step"].append(before)
            marks["seconds"].append(seconds)
            marks["log_likelihood"].append([None if v is None else -v for v in line["validation"]])
    return marks
