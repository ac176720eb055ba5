"""What the field's models are tested on, and what nothing can beat there: tasks and their exact likelihoods."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.estimation import Method
from dsvnp.naming import lookup
from dsvnp.paper.experiment import EXACT, Drawn, Measurement
from dsvnp.sources.gp import GPPrior, Hyperparameters, KnownTask, gp_tasks
from dsvnp.sources.gp_exact import ExactLikelihoods, exact, integrated
from dsvnp.task import Task

TRAINED = GPPrior()  # what models learn from: RBF
PRIORS = {
    "rbf": TRAINED,
    "matern52": GPPrior("matern52"),
    "periodic": GPPrior("periodic"),
    "student-t": GPPrior(contamination=0.15),
}
SHARE = 16  # tasks of a batch, whose mean is taken first
BATCHES_AT_ONCE = 32
UNIT = "nats/point"


@dataclass(frozen=True)
class TestSizes:
    """How much is tested, in batches of 16 tasks, and with how many draws."""

    __test__ = False  # pytest takes it for a test

    num_batches: int = 3000  # batches of models that draw nothing, and of the exact GP
    # the first of these, for models with latents, which are decoded for each draw, on kernels outside `all_batches`
    latent_batches: int = 1000
    # the first of these, for likelihoods of whole tasks, and the GP with integrated hyper-parameters
    joint_batches: int = 500
    num_orders: int = 8  # random orders of the targets that autoregression visits
    chain_draws: int = 32  # draws of the latents, where there are any, at each step of autoregression
    max_draws: int = 16384  # limit of the draws of an estimate
    joint_draws: int = 2048  # the same for whole tasks
    tolerance: float = 0.01  # change of an estimate that is none, in nats
    num_nodes: int = 24  # nodes of the grid for each hyper-parameter that is integrated over
    num_points: int = 50  # slots of a task
    # of the marginal estimates, see `log_likelihood`; where draws from the prior do not suffice, "auto" takes as many
    # passes as there are targets
    method: Method = "prior"
    chunk: int = 2**19  # number of targets times draws that are decoded at once
    # kernels on which models with latents have all batches, too: a few hundred draws suffice there
    all_batches: tuple[str, ...] = ("rbf", "matern52")
    # where tasks are drawn: "cpu" gives the same ones on every device, and kept weights the same table; "device" is for
    # rows next to those of runs from before this setting
    drawn_on: str = "cpu"

    def __post_init__(self) -> None:
        lookup(self.drawn_on, dict.fromkeys(("cpu", "device")), "tests.drawn_on")
        for name in self.all_batches:
            lookup(name, PRIORS, "kernel")
        for name in (
            "num_batches",
            "latent_batches",
            "joint_batches",
            "num_orders",
            "chain_draws",
            "joint_draws",
            "num_nodes",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"tests.{name} must be at least 1, got {getattr(self, name)}")

    def marginal_batches(self, dataset: str, random: bool) -> int:
        """The batches of a kernel that a model, `random` where it has latents, is tested on point by point."""
        return self.latent_batches if random and dataset not in self.all_batches else self.num_batches


def draw_unseen(
    dataset: str, num_batches: int, num_points: int, device: torch.device, drawn_on: str = "cpu"
) -> list[KnownTask]:
    """Batches of 16 tasks of one kernel, the same for every model."""
    place = torch.device("cpu") if drawn_on == "cpu" else device
    generator = torch.Generator(place).manual_seed(1_000_000 + list(PRIORS).index(dataset))
    size = BATCHES_AT_ONCE * SHARE
    drawn = gp_tasks(PRIORS[dataset], num_batches * SHARE, generator, size, SHARE, num_points)
    return [
        KnownTask(known.task.to(device), Hyperparameters(*(each.to(device) for each in known.hyper)))
        for known in drawn
    ]


def draw_marks(num_batches: int, num_points: int, device: torch.device) -> list[KnownTask]:
    """RBF tasks that training is validated on."""
    generator = torch.Generator(device).manual_seed(2_000_000)
    size = num_batches * SHARE
    return gp_tasks(TRAINED, size, generator, size, SHARE, num_points)


def learner_mark(known: list[KnownTask], num_nodes: int) -> float:
    """Log-likelihood per point of the ideal learner where training is validated.

    All targets weigh the same there; in the rows of the table each batch does, which favours large contexts.
    """
    found = [integrated(k.task, TRAINED, num_nodes).per_point for k in known]
    return float(torch.cat([each.flatten() for each in found]).nanmean())


def first(known: list[KnownTask], num_batches: int) -> list[KnownTask]:
    """The first batches of 16, in whole groups of those that are drawn at once."""
    return known[: -(-num_batches // BATCHES_AT_ONCE)]


def compact(known: list[KnownTask]) -> list[Task]:
    """The tasks without empty slots and without the context among the targets, batches of few targets first.

    A quarter of the slots are targets on average: whatever is decoded for each draw would otherwise take four times as
    long. Each batch of 16, whose tasks have the same sizes, stays together.
    """
    batches = []
    for task in (k.task for k in known):
        contexts, filled = (mask[::SHARE].sum(-1).tolist() for mask in (task.mask_context, task.mask_target))
        for x, y, seen, end in zip(
            task.x_target.split(SHARE), task.all_points()[0].split(SHARE), contexts, filled, strict=True
        ):
            parts = x[:, :seen], y[:, :seen], x[:, seen:end], y[:, seen:end]
            batches.append(Task.from_sets(*parts))
    batches.sort(key=lambda batch: batch.num_targets)
    starts = range(0, len(batches), BATCHES_AT_ONCE)
    return [Task.collate(batches[start : start + BATCHES_AT_ONCE]) for start in starts]


def batch_means(per_task: Tensor) -> Tensor:
    """The mean of each batch of 16 tasks in a row, in float64."""
    return per_task.double().unflatten(0, (-1, SHARE)).mean(1)


def summarised(dataset: str, split: str, values: list[Tensor], drawn: Sequence[Drawn]) -> list[Measurement]:
    """Mean and median over batches of a log-likelihood of each net, given for each task [N]."""
    batches = [batch_means(each) for each in values]
    means, medians = (tuple(float(f(b)) for b in batches) for f in (torch.mean, torch.median))
    basis = tuple(drawn), tuple(map(len, batches))
    return [
        Measurement(dataset, "log-likelihood", split, UNIT, means, *basis),
        Measurement(dataset, "log-likelihood-median", split, UNIT, medians, *basis),
    ]


def measure_ceiling(variant: str, sizes: TestSizes, repeats: int, device: torch.device) -> list[Measurement]:
    """What the exact GP has on each kernel; the same value for each of `repeats` seeds.

    A variant is "" for known hyper-parameters, "floor" for the same with σ ≥ 0.1, "integrated" for a learner that knows
    the prior of the training tasks alone. None of them models contamination.
    """
    rows, drawn = [], [EXACT] * repeats
    whole = variant != "integrated"
    number = sizes.num_batches if whole else min(sizes.joint_batches, sizes.num_batches)
    for dataset, prior in PRIORS.items():
        tasks = draw_unseen(dataset, number, sizes.num_points, device, sizes.drawn_on)
        found = [_ceiling(variant, known, prior, sizes.num_nodes) for known in tasks]
        marginal = torch.cat([likelihoods.task_means() for likelihoods in found])
        rows += summarised(dataset, "marginal", [marginal] * repeats, drawn)
        if variant != "floor":
            joint = torch.cat([likelihoods.per_task for likelihoods in found])
            rows += summarised(dataset, "joint", [joint] * repeats, drawn)
    return rows


def _ceiling(variant: str, known: KnownTask, prior: GPPrior, num_nodes: int) -> ExactLikelihoods:
    """The likelihoods of some tasks under one of the exact GPs."""
    if variant == "integrated":
        return integrated(known.task, TRAINED, num_nodes)
    return exact(known.task, known.hyper, prior, 0.1 if variant == "floor" else 0.0)
