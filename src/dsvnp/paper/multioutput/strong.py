"""The strong recipe for tables: contexts chosen for each target, members stopped by rows they held out, σ learned.

A run chooses on the training rows of a split: the size of contexts and many metrics, which the members share out
(`search.py`), and when to stop. An ensemble's predictive is the mixture of its members' predictions in
each of their metrics. Rows that members held out decide the weight of what networks add to their neighbours' mean; rows
that no member has seen decide one factor that scales the spread of all outputs.

`studies/multioutput_choice.py` chose the settings below on training halves alone; decision 4 says which of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.metrics import pit, pit_coverage
from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.paper.experiment import Experiment, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.measuring import FIXED, Likelihoods
from dsvnp.paper.multioutput.folds import Rows, Split
from dsvnp.paper.multioutput.measures import (
    SplitScores,
    draws_latents,
    measure_parts,
    predict_rows,
    with_draws_that_suffice,
)
from dsvnp.paper.multioutput.search import Contexts, ContextSearch, choose_contexts
from dsvnp.paper.recipe import Recipe
from dsvnp.predictive import GaussianPredictive
from dsvnp.sources.neighbours import Neighbourhood, NeighbourTasks, neighbourhood
from dsvnp.task import Task
from dsvnp.training import Fleet, Schedule, Settings

STRETCHES = torch.linspace(-1, 1, 81).exp().tolist()
LEVEL = 0.9


@dataclass(frozen=True)
class Strong(Recipe):
    """Settings of the recipe, the same for all data sets."""

    learning_rate: float = 3e-3
    schedule: str = "cosine"
    weight_decay: float = 0.1
    train_local: int = 4
    # networks of an ensemble; each holds out one of as many parts of the rows (of 5, if they are fewer)
    members: int = 8
    metrics: int = 5  # of each member
    rounds: int = 12  # changes tried on each metric
    # of the random metrics that are tried first, see `ContextSearch`
    spreads: tuple[float, ...] = (1.0, 1.4, 1.8, 2.2)
    as_good: float = 0.002  # how much worse than the best a larger context may be
    # whether inputs pass through asinh: a value far out then does not decide alone which rows are near
    flatten: bool = True
    # whether outputs are measured from their mean over the context, to which networks then add
    recentre: bool = True
    epochs: int = 200  # visits to each row
    validations: int = 8  # looks at the held-out rows; the weights of the best are kept
    batch_size: int = 64  # targets of a step
    width: int = 128  # of hidden layers
    depth: int = 1  # hidden layers of the embedding of x, and of the decoder
    dim_lat: int = 64  # size of representations and latents
    # hidden sizes between the mean over the context and the parameters of z_G
    latent_hidden: tuple[int, ...] = ()
    sigma_floor: float = 0.02  # smallest σ
    posterior: str = "target"  # what q(z_G) sees in training, see `Architecture`
    num_global: int = 8  # draws of z_G from each member in each of its metrics, in prediction

    def __post_init__(self) -> None:
        for name in ("spreads", "latent_hidden"):  # lists, where they come from JSON
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.spreads:
            raise ValueError(
                "spreads must hold at least one number, got none; (1.0,) tries metrics of one spread"
            )

    def search(self) -> ContextSearch:
        """The search for the contexts of all members."""
        return ContextSearch(self.members * self.metrics, self.rounds, self.spreads, self.as_good)

    def architecture(self, dim_x: int, dim_y: int) -> Architecture:
        """Sizes; the objective is about the target alone, for which the context was chosen."""
        return Architecture(
            dim_x,
            dim_y,
            embed_x="mlp",
            embed_x_hidden=(self.width,) * self.depth,
            dim_latx=self.width // 2,
            dim_laty=self.width // 4,
            encoder=(self.width,),
            dim_lat=self.dim_lat,
            latent_hidden=self.latent_hidden,
            decoder=(self.width,) * self.depth,
            sigma_floor=self.sigma_floor,
            posterior=self.posterior,
            score_context=False,
        )

    def settings_of(self, steps_per_epoch: int, precision: str) -> Settings:
        """Settings of training, with a warm-up of one epoch; to compile so few steps takes longer than it saves."""
        num_steps = self.epochs * steps_per_epoch
        others = {"validate_every": max(1, num_steps // self.validations), "checkpoint_every": 0}
        made = self.settings(num_steps, precision=precision, compile=False, **others)
        return replace(made, schedule=Schedule(self.schedule, min(steps_per_epoch, num_steps // 2)))


class NearMember(NamedTuple):
    """One network's view of a split: rows it learns from, rows it is stopped by, and how it finds neighbours."""

    train: Rows
    held_out: Rows
    metrics: Tensor
    num_context: int
    recentre: bool = True

    def source(self, batch_size: int, slots: int) -> NeighbourTasks:
        """The source of its training tasks."""
        size = min(batch_size, len(self.train.x))
        return NeighbourTasks(*self.train, self.metrics, self.num_context, size, slots, self.recentre)

    def among(self, rows: Rows, targets: Rows, itself: bool = True) -> Neighbourhood:
        """Targets with their contexts among some rows: all targets in the first metric, then all in the next."""
        how = self.num_context, itself, self.recentre
        views = [neighbourhood(rows, targets, metric, *how) for metric in self.metrics]
        centre = torch.cat([view.centre for view in views])
        return Neighbourhood(Task.collate([view.task for view in views]), centre)

    def predict(
        self, net: NeuralProcess, targets: Neighbourhood, num_global: int, damping: Tensor | float = 1.0
    ) -> GaussianPredictive:
        """The mixture over metrics and K draws, [metrics · K, 1, 1, N, dim_y].

        `damping` is how much of what the network adds to the centre is believed, for each output.
        """
        predictive = predict_rows(net, targets.task, (num_global, 1))
        assert isinstance(predictive, GaussianPredictive)
        parts = damping * predictive.loc + targets.centre, predictive.scale
        views = (part.unflatten(2, (len(self.metrics), -1)) for part in parts)  # [K, 1, metrics, N, 1, D]
        return GaussianPredictive(*(view.movedim(2, 0).flatten(0, 1).transpose(2, 3) for view in views))


def make_members(split: Split, strong: Strong, seed: int) -> tuple[NearMember, ...]:
    """Choose contexts on all training rows, and deal rows and metrics out to the members."""
    rows = as_seen(split.train, strong.flatten)
    chosen = find_contexts(split, strong.flatten, strong.search(), seed)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(rows.x), generator=generator).to(rows.x.device)
    size = len(order) // max(5, strong.members)
    members = []
    for number in range(strong.members):
        fold = slice(number * size, (number + 1) * size)
        rest = torch.cat([order[: fold.start], order[fold.stop :]])
        metrics = chosen.metrics[number :: strong.members]
        parts = rows.take(rest), rows.take(order[fold])
        members.append(NearMember(*parts, metrics, chosen.num_context, strong.recentre))
    return tuple(members)


@lru_cache(maxsize=120)  # the same for every model, and for settings of other things
def find_contexts(split: Split, flatten: bool, search: ContextSearch, seed: int) -> Contexts:
    """Choose metrics and the size of contexts on all training rows of a split."""
    return choose_contexts(as_seen(split.train, flatten), search, seed)


def as_seen(rows: Rows, flatten: bool) -> Rows:
    """Rows as networks and metrics see them: with asinh of their inputs, or as they are."""
    return Rows(rows.x.asinh(), rows.y) if flatten else rows


def train_and_measure_strong(
    experiment: Experiment,
    strong: Strong,
    label: Label,
    splits: Sequence[Split],
    seeds: Sequence[int],
    place: Workplace,
    how: Likelihoods = FIXED,
) -> list[SplitScores]:
    """Train the ensembles of all splits as one fleet, then measure each."""
    teams = [make_members(split, strong, seed) for split, seed in zip(splits, seeds, strict=True)]
    everyone = [member for team in teams for member in team]
    slots = max(member.num_context for member in everyone)
    sources = [member.source(strong.batch_size, slots) for member in everyone]
    held_out = [member.among(member.train, member.held_out) for member in everyone]

    def validation(fleet: Fleet) -> Tensor:
        """Squared error of each member on the rows it held out."""
        errors = []
        for row, (member, targets) in enumerate(zip(everyone, held_out, strict=True)):
            made = member.predict(fleet.replica(row), targets, strong.num_global)
            errors.append((made.mean[0] - member.held_out.y).square().mean())
        return torch.stack(errors)

    dim_x, dim_y = (part.shape[-1] for part in (held_out[0].task.x_target, splits[0].train.y))
    make = partial(make_model, label.model, strong.architecture(dim_x, dim_y))
    settings = strong.settings_of(sources[0].refresh_every, experiment.precision)
    replicas = [1000 * seed + number for seed in seeds for number in range(strong.members)]
    fleet = experiment.train_replicas(label, make, sources, replicas, settings, place, validation)
    nets = iter([fleet.replica(row, best=True) for row in range(len(everyone))])
    return [
        measure_ensemble([(next(nets), member) for member in team], split, strong, how)
        for team, split in zip(teams, splits, strict=True)
    ]


Team = Sequence[tuple[NeuralProcess, NearMember]]


def damp_additions(ensemble: Team, num_global: int) -> Tensor:
    """Weights of what networks add to the centre, 0 to 1 for each output, [dim_y].

    By least squares on the rows that each has held out, which together are most of the training rows.
    """
    products, squares = [], []
    for net, member in ensemble:
        targets = member.among(member.train, member.held_out)
        centre = targets.centre.unflatten(0, (len(member.metrics), -1)).mean(0)[:, 0]  # [N, dim_y]
        added = member.predict(net, targets, num_global).mean[0] - centre
        products.append((added * (member.held_out.y - centre)).sum(0))
        squares.append(added.square().sum(0))
    return (torch.stack(products).sum(0) / torch.stack(squares).sum(0).clamp(min=1e-12)).clamp(0, 1)


def measure_ensemble(ensemble: Team, split: Split, strong: Strong, how: Likelihoods = FIXED) -> SplitScores:
    """Damp and stretch to what held-out rows say, and measure."""
    learned = as_seen(split.train, strong.flatten)
    damping = damp_additions(ensemble, strong.num_global)

    def mixture(
        targets: Rows, itself: bool = True, num_global: int = strong.num_global
    ) -> GaussianPredictive:
        asked = as_seen(targets, strong.flatten)
        made = [
            member.predict(net, member.among(learned, asked, itself), num_global, damping)
            for net, member in ensemble
        ]
        return GaussianPredictive(torch.cat([p.loc for p in made]), torch.cat([p.scale for p in made]))

    factor = stretch_to_cover(mixture(split.held_out), split.task(split.held_out))
    predictions = (
        (part, split.task(rows), stretched(mixture(rows, part != "train"), factor))
        for part, rows in (("test", split.test), ("train", split.train))
    )
    measured = measure_parts(predictions, split)
    if how.draws == "fixed":
        return measured

    def predict(rows: Rows, num_global: int) -> GaussianPredictive:
        return stretched(mixture(rows, num_global=num_global), factor)

    first = strong.num_global, sum(len(member.metrics) for _, member in ensemble)
    return with_draws_that_suffice(measured, split, predict, first, draws_latents(ensemble[0][0]), how)


def stretch_to_cover(predictive: GaussianPredictive, task: Task) -> float:
    """The factor of the spread with which 90 % intervals come closest to covering 90 % of the task's outputs."""

    def gap(factor: float) -> tuple[float, float]:
        inside = pit_coverage(pit(stretched(predictive, factor), task), [LEVEL])
        return abs(float(inside) - LEVEL), abs(factor - 1)

    return float(min(STRETCHES, key=gap))


def stretched(predictive: GaussianPredictive, factor: float) -> GaussianPredictive:
    """The same mixture with its spread about the mean changed by a factor."""
    mean = predictive.mean
    return GaussianPredictive(mean + factor * (predictive.loc - mean), factor * predictive.scale)
