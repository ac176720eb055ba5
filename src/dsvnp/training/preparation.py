"""Preparation: how a fleet's step becomes one function, compiled and captured as a CUDA graph where there is one.

Whatever fails on the way falls back with one line: what cannot be compiled runs uncompiled, what cannot be captured is
launched operation by operation, and replicas that do not fit into memory together are handled in smaller numbers.
"""

import gc
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from dsvnp.models.base import NeuralProcess
from dsvnp.training.distributed import Cluster
from dsvnp.training.settings import Settings
from dsvnp.training.shared import building
from dsvnp.training.step import Step, StepPlan, Tensors, make_step
from dsvnp.training.supply import Supply


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


class Preparation:
    """The part of a fleet that turns a plan into a step."""

    cluster: Cluster
    settings: Settings
    device: torch.device
    seeds: Sequence[int]
    model: NeuralProcess
    generators: list[torch.Generator]
    lanes: list[Lane]
    plan: StepPlan
    state: Tensors

    def _first_step(self, lane: Lane) -> None:
        """Prepare a lane and take its first step, with fewer replicas at once where memory does not suffice."""
        while lane.step is None:
            before = self._snapshot()
            try:
                step = self._prepare(lane)
                step()
                lane.step = step
            except torch.OutOfMemoryError as error:
                step = None  # what it holds must go before the next attempt
                self._restore(before)
                self._take_fewer(error)

    def _take_fewer(self, error: Exception) -> None:
        """Halve the number of replicas handled at once, in lanes to come too; at one, say what else would help."""
        rows, chunk = len(self.seeds), self.plan.settings.chunk_size
        now = min(rows, chunk or rows)
        if now == 1 or self.settings.compile == "regions" or self.cluster.splits_data:
            raise torch.OutOfMemoryError(out_of_memory(error, "with one replica at a time")) from error
        fewer = replace(self.plan.settings, chunk_size=now // 2)
        for lane in self.lanes:
            lane.plan = replace(lane.plan, settings=fewer)
        self.plan = self.lanes[0].plan
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        warnings.warn(
            f"{now} replicas at once do not fit into the memory of {self.device}: training continues with {now // 2} "
            f"at once, which changes results by rounding alone. Settings(chunk_size={now // 2}) does so from the start",
            stacklevel=2,
        )

    def _run(self, function: Callable[..., None], lane: Lane) -> None:
        """Draw noise, one generator per replica, and call a step function."""
        for generator, normal, uniform in zip(self.generators, lane.normal, lane.uniform, strict=True):
            normal.normal_(generator=generator)
            uniform.uniform_(generator=generator)
        function(self.state, lane.supply.static, lane.supply.pool, lane.normal, lane.uniform)

    def _prepare(self, lane: Lane) -> Callable[[], None]:
        """Make the step function: compiled and captured where asked for and possible, else as it is."""
        cuda, wanted = self.device.type == "cuda", self.settings.compile
        singly = len(self.seeds) == 1 or lane.plan.settings.chunk_size == 1 or wanted == "regions"
        function = make_step(lane.plan, False, singly)
        with building:
            if wanted == "regions":
                self._compile_regions(function, lane)
            elif cuda if wanted is None else wanted:
                function = self._compiled(lane, singly) or function
            capture = cuda and not self.cluster.splits_data
            if capture if self.settings.capture is None else (self.settings.capture and capture):
                return self._captured(function, lane) or partial(self._run, function, lane)
        return partial(self._run, function, lane)

    def _compiled(self, lane: Lane, singly: bool) -> Step | None:
        """The compiled step, once it has been tried; None if that fails."""
        made: list[Step] = []

        def attempt() -> None:
            if lane is self.lanes[0]:
                torch._dynamo.reset()  # what an earlier fleet compiled counts against this one's limit
            made.append(make_step(lane.plan, True, singly))
            with _fixed_kernels(lane.plan.settings.chunk_size == 1):
                self._try(made[0], lane)

        return made[0] if self._works(attempt) else None

    def _compile_regions(self, function: Step, lane: Lane) -> None:
        """Compile the repeated parts of the network by themselves; what is between them stays as it is."""

        def plain() -> None:
            for part in self.model.regions():
                part._compiled_call_impl = None  # as before `compile`

        def attempt() -> None:
            plain()
            right = self._try(function, lane)
            for part in self.model.regions():
                part.compile(dynamic=False)
            # Each shape of each lane is a version of the same few functions.
            with torch._dynamo.config.patch(recompile_limit=64):
                _compare(self._try(function, lane), right)

        if not self._works(attempt):
            plain()

    def _works(self, attempt: Callable[[], None]) -> bool:
        """Whether an attempt to compile succeeds; a line says why not. What memory lacks is for the caller.

        Processes that share each batch try it without a word to each other, and take it together or not at all: one
        that went on by itself would meet the others in another step.
        """
        reason = ""
        try:
            attempt()
        except Exception as error:  # whatever it may be: no C++ compiler, an operation that it lacks
            if isinstance(error, torch.OutOfMemoryError) and not self.cluster.splits_data:
                raise
            reason = _first_line(error)
        if self.cluster.splits_data and self.cluster.largest(bool(reason)):
            reason = reason or "another process could not compile it"
        if reason:
            warnings.warn(f"training continues uncompiled: {reason}", stacklevel=2)
        return not reason

    def _captured(self, function: Callable[..., None], lane: Lane) -> Callable[[], None] | None:
        """The captured step; None if that fails, with the state and the generators as they were."""
        before = self._snapshot()
        try:
            return self._capture(function, lane)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # an operation that CUDA does not record
            # A recording that broke off keeps its hold on the generators that were registered with it.
            self.generators = [torch.Generator(self.device) for _ in self.generators]
            self._restore(before)
            warnings.warn(f"training continues without a CUDA graph: {_first_line(error)}", stacklevel=2)
            return None

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

    def _try(self, function: Callable[..., None], lane: Lane) -> Tensors:
        """Take a step, undo it, generators too, and return what it changed: the terms of the bound, and m."""
        before = self._snapshot()
        try:
            self._run(partial(function, trial=True) if self.cluster.splits_data else function, lane)
            return {name: self.state[name] - before[0][name] for name in ("metrics", "m")}
        finally:
            self._restore(before)

    def _snapshot(self) -> tuple[Tensors, list[Tensor]]:
        """A copy of the state, and the states of the generators."""
        state = {name: value.clone() for name, value in self.state.items()}
        return state, [generator.get_state() for generator in self.generators]

    def _restore(self, before: tuple[Tensors, list[Tensor]]) -> None:
        """Put a snapshot back, in place."""
        state, generators = before
        for name, value in state.items():
            self.state[name].copy_(value)
        for generator, numbers in zip(self.generators, generators, strict=True):
            generator.set_state(numbers)


def _compare(found: Tensors, right: Tensors) -> None:
    """Refuse a compiled step whose terms or gradient are not those of the plain one, rounding aside.

    It has happened: see results/pretrained.
    """
    for name, value in right.items():
        error, size = (found[name] - value).norm(), value.norm()
        if not error <= 0.2 * size + 5e-3:  # `not` takes NaN too
            raise ArithmeticError(
                f"compiled, a step changes {name} by {error:.3g} of {size:.3g} more than plain"
            )


def _fixed_kernels(wanted: bool) -> AbstractContextManager[object]:
    """Compile without timing kernels against each other, where results must be equal bit by bit.

    The compiler otherwise runs several versions of a sum on the device and takes the fastest. They add in different
    orders, and on a device that others use as well the fastest is a matter of chance.
    """
    from torch._inductor import config  # not before it is needed: it takes a second to import

    return config.patch(deterministic=True) if wanted and hasattr(config, "deterministic") else nullcontext()


def out_of_memory(error: Exception, when: str) -> str:
    """What to do about a device without memory, in one line."""
    return (
        f"out of memory {when}: {_first_line(error)}; choose a smaller batch, fewer draws or a narrower network, "
        "fewer replicas at once (chunk_size), or a device with more memory"
    )


def _first_line(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error).strip().split(chr(10))[0]}"
