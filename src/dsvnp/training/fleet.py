"""Fleet: R replicas of a model trained in one step, compiled and captured as one CUDA graph where there is one.

These networks are tiny, so that a step is launch overhead rather than arithmetic; on a GPU ten replicas (seeds, folds,
values of β) cost about twice what one does. The state is a dictionary of tensors with a replica axis in front, updated
in place: a captured graph goes on working on the same memory after a checkpoint is restored into it.

Each replica draws its data and noise from a generator of its own, outside `vmap`, so that a fleet of R gives what R
single runs with the same seeds give.
"""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial

import torch
from torch import Tensor

from dsvnp.models.base import NeuralProcess
from dsvnp.sources.base import Rotation, TaskSource
from dsvnp.training.distributed import Cluster
from dsvnp.training.settings import Settings
from dsvnp.training.step import TERMS, Step, StepPlan, Tensors, make_step
from dsvnp.training.supply import Supply, describe, fingerprint, make_generator


class Lane:
    """One kind of batch: its supply, what its step is made of, its noise, and its step function once it is prepared.

    A fleet has one lane per shape of batch. All lanes of a fleet write to the same state.
    """

    def __init__(self, supply: Supply, plan: StepPlan, settings: Settings, device: torch.device) -> None:
        self.supply, self.plan = supply, plan
        rows = len(supply.seeds)
        self.normal = torch.empty(rows, plan.normal.size, dtype=settings.dtype, device=device)
        self.uniform = torch.empty(rows, plan.uniform.size, dtype=settings.dtype, device=device)
        self.step: Callable[[], None] | None = None


class Fleet:
    """R replicas of one model and the state of their training.

    Args:
        make: makes a model; called once per replica, with torch's generator seeded by the replica's seed.
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
        models = [_seeded(make, seed).to(self.device, settings.dtype) for seed in self.seeds]
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
            lane.step = self._prepare(lane)
        lane.step()
        self.num_steps_taken += 1

    def _run(self, function: Callable[..., None], lane: Lane) -> None:
        """Draw noise, one generator per replica, and call a step function."""
        for generator, normal, uniform in zip(self.generators, lane.normal, lane.uniform, strict=True):
            normal.normal_(generator=generator)
            uniform.uniform_(generator=generator)
        function(self.state, lane.supply.static, lane.supply.pool, lane.normal, lane.uniform)

    def _prepare(self, lane: Lane) -> Callable[[], None]:
        """Make the step function: compiled and captured where asked for and possible, else as it is."""
        cuda, wanted = self.device.type == "cuda", self.settings.compile
        singly = len(self.seeds) == 1 or self.settings.chunk_size == 1 or wanted == "regions"
        function = make_step(lane.plan, False, singly)
        if wanted == "regions":
            self._compile_regions(function, lane)
        elif cuda if wanted is None else wanted:
            function = self._compiled(lane, singly) or function
        capture = cuda and not self.cluster.splits_data
        if capture if self.settings.capture is None else (self.settings.capture and capture):
            return self._capture(function, lane)
        return lambda: self._run(function, lane)

    def _compiled(self, lane: Lane, singly: bool) -> Step | None:
        """The compiled step, once it has been tried; None if that fails.

        Processes that share each batch try it without a word to each other, and take it together or not at all: one
        that went on by itself would meet the others in another step.
        """
        step, reason = None, "another process could not compile it"
        try:
            if lane is self.lanes[0]:
                torch._dynamo.reset()  # what an earlier fleet compiled counts against this one's limit
            step = make_step(lane.plan, True, singly)
            self._try(partial(step, trial=True) if self.cluster.splits_data else step, lane)
        except Exception as error:  # whatever it may be: no C++ compiler, an operation that it lacks
            first_line = str(error).strip().split("\n")[0]
            step, reason = None, f"{type(error).__name__}: {first_line}"
        if self.cluster.splits_data and self.cluster.largest(step is None):
            step = None
        if step is None:
            warnings.warn(f"training goes on uncompiled: {reason}", stacklevel=2)
        return step

    def _compile_regions(self, function: Step, lane: Lane) -> None:
        """Compile the repeated parts of the network by themselves; what is between them stays as it is."""
        for part in self.model.regions():
            part.compile(dynamic=False)
        # Each shape of each lane is a version of the same few functions.
        with torch._dynamo.config.patch(recompile_limit=64):
            self._try(function, lane)

    def _capture(self, function: Callable[..., None], lane: Lane) -> Callable[[], None]:
        """Record the whole step as one CUDA graph.

        Garbage is collected before and not during the recording: freeing what an earlier fleet left behind is a
        call that CUDA does not allow there.
        """
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._try(function, lane)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        gc.collect()
        torch.cuda.synchronize(self.device)
        collecting = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(graph, stream=stream):
                self._run(function, lane)
        finally:
            if collecting:
                gc.enable()
        return graph.replay

    def _try(self, function: Callable[..., None], lane: Lane) -> None:
        """Take a step and undo it: state and generators are as before."""
        before = {name: value.clone() for name, value in self.state.items()}
        states = [generator.get_state() for generator in self.generators]
        try:
            self._run(function, lane)
        finally:
            for name, value in before.items():
                self.state[name].copy_(value)
            for generator, state in zip(self.generators, states, strict=True):
                generator.set_state(state)

    # --- results ---

    @property
    def active(self) -> list[bool]:
        """Which replicas are still training."""
        return [bool(on) for on in self.state["active"].tolist()]

    def read_metrics(self) -> dict[str, Tensor]:
        """Mean of each term of the bound since the last reading, by replica [R]; starts the next mean."""
        steps = self.state["metric_steps"]
        # NaN where no step told anything: a replica has stopped, or all was context of a CNP.
        means = self.state["metrics"] / steps.unsqueeze(1)
        out = {name: means[:, i].clone() for i, name in enumerate(TERMS)}
        self.state["metrics"].zero_()
        steps.zero_()
        return out

    def replica(self, row: int, best: bool = False) -> NeuralProcess:
        """A copy of one replica as a model of its own, in evaluation mode.

        Args:
            row: which one.
            best: with the weights of its best validation instead of the latest; the latest if there was none.
        """
        prefix = "best." if best and bool(self.state["best_metric"][row].isfinite()) else ""
        model = copy.deepcopy(self.model)
        named = self.plan.layout.unflatten(self.state[f"{prefix}params"][row])
        named |= {name: self.state[f"{prefix}buffers.{name}"][row] for name, _ in model.named_buffers()}
        model.load_state_dict(named)
        return model.eval()

    def note_validation(self, metric: Tensor) -> None:
        """Keep the weights of replicas whose metric is their lowest so far; stop those out of patience.

        Args:
            metric: one value per replica, the lower the better, [R].
        """
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


def _seeded(make: Callable[[], NeuralProcess], seed: int) -> NeuralProcess:
    """Call `make` with torch's generator seeded, and leave that generator as it was."""
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        return make()
    finally:
        torch.default_generator.set_state(before)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Use TF32 for float32 matrix products and convolutions for a while, or make sure that it is not used."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
