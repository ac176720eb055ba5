"""Fleet: R replicas of a model trained in one step, compiled and captured as one CUDA graph where there is one.

These networks are tiny: a step is launch overhead rather than arithmetic, and on a GPU ten replicas (seeds, folds,
values of β) cost about twice what one does. The state is a dictionary of tensors with a replica axis in front, updated
in place: a captured graph works on the same memory after a checkpoint is restored into it.

Each replica draws its data and noise from a generator of its own, outside `vmap`: a fleet of R gives what R single
runs with the same seeds give.
"""

import copy
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from dsvnp.models.base import NeuralProcess
from dsvnp.sources.base import Rotation, TaskSource
from dsvnp.training.distributed import Cluster
from dsvnp.training.preparation import Lane, Preparation
from dsvnp.training.settings import Settings
from dsvnp.training.shared import refuse_odd_modes, seeded
from dsvnp.training.step import TERMS, StepPlan, Tensors
from dsvnp.training.supply import Supply, describe, fingerprint, make_generator


class Fleet(Preparation):
    """R replicas of one model and the state of their training.

    Args:
        make: makes a model; called once per replica, with random numbers of the replica's seed.
        source: where tasks come from; one for all, one for each replica (folds), or a `Rotation` of sources whose
            batches differ in shape, which take turns.
        seeds: a seed for each replica.
        settings: how to train.
        device: where.
        cluster: this process among others.
    """

    def __init__(
        self,
        make: Callable[[], NeuralProcess],
        source: TaskSource | Sequence[TaskSource] | Rotation,
        seeds: Sequence[int],
        settings: Settings,
        device: torch.device | str = "cpu",
        cluster: Cluster | None = None,
    ) -> None:
        refuse_odd_modes()
        if not seeds:
            raise ValueError("a fleet needs at least one seed; pass one for each replica")
        self.cluster = cluster or Cluster()
        self.settings = settings
        self.device = torch.device(device)
        self.all_seeds = tuple(int(seed) for seed in seeds)
        self.share = self.cluster.share(len(self.all_seeds))
        self.seeds = tuple(self.all_seeds[i] for i in self.share)
        if self.cluster.splits_replicas and len(seeds) < self.cluster.size:  # all say so, none waits
            raise ValueError(f"{len(seeds)} replicas are too few for {self.cluster.size} processes")
        # Those of all processes: a list for each lane, one source for all replicas or one for each.
        turns: Sequence[TaskSource | Sequence[TaskSource]] = (
            source.sources if isinstance(source, Rotation) else [source]
        )
        self._sources = [[one] if isinstance(one, TaskSource) else list(one) for one in turns]
        models = [seeded(make, seed).to(self.device, settings.dtype) for seed in self.seeds]
        self.model = models[0].train()
        self.generators = [make_generator(seed, "noise", self.device) for seed in self.seeds]
        self.num_steps_taken = 0
        self.lanes = [self._lane(number) for number in range(len(self._sources))]
        self.plan = self.lanes[0].plan
        self.state = self._initial_state(models)

    # --- stepping ---

    def step(self) -> None:
        """Take one step with every replica that is on."""
        turn, number = divmod(self.num_steps_taken, len(self.lanes))
        lane = self.lanes[number]
        lane.supply.refresh(turn)
        if lane.step is None:
            self._first_step(lane)
        else:
            lane.step()
        self.num_steps_taken += 1

    # --- results ---

    @property
    def active(self) -> list[bool]:
        """Which replicas are still training."""
        return [bool(on) for on in self.state["active"].tolist()]

    def read_metrics(self) -> dict[str, Tensor]:
        """Mean of each term of the bound since the last reading, by replica [R]; starts the next mean."""
        steps = self.state["metric_steps"]
        # NaN where no step scored a point: a replica has stopped, or all points were context of a CNP.
        means = self.state["metrics"] / steps.unsqueeze(1)
        out = {name: means[:, i].clone() for i, name in enumerate(TERMS)}
        self.state["metrics"].zero_()
        steps.zero_()
        return out

    def replica(self, row: int, best: bool = False) -> NeuralProcess:
        """A copy of one replica as a model of its own, in evaluation mode.

        With `best` it has the weights of its best validation instead of the latest; the latest if there was none.
        """
        prefix = "best." if best and bool(self.state["best_metric"][row].isfinite()) else ""
        model = copy.deepcopy(self.model)
        named = self.plan.layout.unflatten(self.state[f"{prefix}params"][row])
        named |= {name: self.state[f"{prefix}buffers.{name}"][row] for name, _ in model.named_buffers()}
        model.load_state_dict(named)
        return model.eval()

    def note_validation(self, metric: Tensor) -> None:
        """Keep the weights of replicas whose metric [R] is their lowest so far; stop those out of patience."""
        state = self.state
        metric = metric.to(state["best_metric"])  # or the same value would be below its own rounding
        if metric.shape != state["best_metric"].shape:
            raise ValueError(
                f"a validation must give one value per replica, {tuple(state['best_metric'].shape)}, "
                f"got {tuple(metric.shape)}"
            )
        # Ranks that share a batch would part for good over a last digit.
        metric = self.cluster.average({"metric": metric})["metric"]
        better = state["active"] & (metric < state["best_metric"])
        state["validation"].copy_(metric)
        state["best_metric"].copy_(torch.where(better, metric, state["best_metric"]))
        state["waited"].copy_(torch.where(better, 0, state["waited"] + state["active"].long()))
        for name in [n for n in state if n.startswith("best.")]:
            latest = state[name.removeprefix("best.")]
            keep = better.view(-1, *[1] * (latest.ndim - 1))
            state[name].copy_(torch.where(keep, latest, state[name]))
        if self.settings.patience:
            state["active"].logical_and_(state["waited"] < self.settings.patience)

    def describe(self) -> dict[str, object]:
        """What decides the outcome of this run, for a checkpoint to be compared with."""
        return {
            "model": self.model.name,
            "architecture": self.model.arch.to_dict(),
            "parameters": {name: list(shape) for name, shape in self.plan.layout.shapes.items()},
            "settings": self.settings.outcome(),
            "seeds": list(self.all_seeds),
            "source": self._described[0] if len(self.lanes) == 1 else list(self._described),
        }

    @cached_property
    def _described(self) -> list[dict[str, object]]:
        """Settings of each lane's source, and a digest of its data, which may be large and does not change."""
        return [{**describe(sources[0]), "data": fingerprint(sources)} for sources in self._sources]

    # --- making ---

    def _my_sources(self, sources: Sequence[TaskSource]) -> Sequence[TaskSource]:
        """One source for all, or this rank's share of one for each replica."""
        given, replicas = len(sources), len(self.all_seeds)
        if given not in (1, replicas):
            raise ValueError(f"got {given} sources for {replicas} replicas; pass one each, or one for all")
        return sources if given == 1 else [sources[i] for i in self.share]

    def _lane(self, number: int) -> Lane:
        """Draw a first pool, look at one batch, refuse it if it is bad, and plan the step."""
        supply = Supply(self._my_sources(self._sources[number]), self.seeds, self.device, number)
        supply.refresh(0)
        example = supply.example(self.settings.dtype)
        with torch.no_grad():  # the model's own checks say what is wrong with a batch
            copy.deepcopy(self.model).eval().objective(example, noise={})
        plan = StepPlan.make(
            self.model,
            supply.sources[0],
            example,
            self.settings,
            self.cluster,
            supply.per_replica,
            len(self._sources),
        )
        return Lane(supply, plan, self.settings, self.device)

    def _initial_state(self, models: Sequence[NeuralProcess]) -> Tensors:
        """Parameters, moments, scalars and bookkeeping, each with the replica axis first."""
        settings, rows, total = self.settings, len(self.seeds), len(self.all_seeds)
        params = torch.stack([self.plan.layout.flatten(dict(m.named_parameters())) for m in models])

        def scalars(name: str) -> Tensor:
            values = settings.per_replica(name, total)
            return torch.tensor([values[i] for i in self.share], dtype=settings.dtype, device=self.device)

        def full(value: float, *shape: int, dtype: torch.dtype = settings.dtype) -> Tensor:
            return torch.full((rows, *shape), value, dtype=dtype, device=self.device)

        state = {
            "params": params,
            "m": torch.zeros_like(params),
            "v": torch.zeros_like(params),
            "step": torch.zeros((), dtype=torch.int64, device=self.device),
            "active": full(1, dtype=torch.bool),
            "learning_rate": scalars("learning_rate"),
            "beta_local": scalars("beta_local"),
            "beta_global": scalars("beta_global"),
            "log_multipliers": full(0, 2),
            "metrics": full(0, len(TERMS)),
            "metric_steps": full(0),
            "stop_step": full(-1, dtype=torch.int64),
            "stop_reason": full(0, dtype=torch.int64),
            "validation": full(float("nan")),
            "best_metric": full(float("inf")),
            "waited": full(0, dtype=torch.int64),
        }
        for name, _ in self.model.named_buffers():
            state[f"buffers.{name}"] = torch.stack([dict(m.named_buffers())[name] for m in models]).clone()
        if settings.validate_every:
            for name in [n for n in state if n == "params" or n.startswith("buffers.")]:
                state[f"best.{name}"] = state[name].clone()
        return state
