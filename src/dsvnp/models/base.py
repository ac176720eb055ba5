"""The contract every model meets: `objective(task) -> Bound`, `predict(task, …) -> Predictive`, and `functions`.

A model file fills in four hooks:

    noise_shapes   the random numbers it consumes
    draws          for training: latents from q, given all points of a task
    summarise      for prediction, part one: a summary of the context, once
    decode         part two: raw outputs for some targets, given that summary

and, where each target has a latent of its own, a fifth for estimates of a likelihood by importance sampling:

    local_latent   posterior and prior of z_*, given a summary and the targets with their outputs

Randomness is an argument. `noise` maps names to tensors: "global" [K, B, Z] and "local" [K, S, B, T, Z] are
standard normal, "dropout.i" uniform. None draws them; an empty dictionary puts latents at their means.
"""

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from dsvnp.autoregression import predict_by_chains
from dsvnp.gaussian import DiagonalGaussian
from dsvnp.models.architecture import Architecture, make_likelihood
from dsvnp.models.functions import FunctionDraws
from dsvnp.models.noise import Noise as Noise
from dsvnp.models.noise import check_noise, noise_of
from dsvnp.models.noise import draw_noise as draw_noise
from dsvnp.models.noise import evaluating as evaluating
from dsvnp.models.noise import is_uniform as is_uniform
from dsvnp.naming import at_least_one
from dsvnp.networks import Shape
from dsvnp.objectives import Bound, Draws
from dsvnp.predictive import Predictive
from dsvnp.task import Task


class NeuralProcess(FunctionDraws):
    """A model of p(y_T | x_T, C) behind one contract, of the sizes and choices of an architecture.

    `embedding` is a network of your own from [..., dim_x] to [..., dim_latx], in place of `arch.embed_x`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    scores_context: ClassVar[bool] = True  # whether the objective scores the context's points as well

    def __init__(self, arch: Architecture, embedding: nn.Module | None = None) -> None:
        super().__init__()
        self.arch = arch
        self.likelihood = make_likelihood(arch)
        self._build(embedding)
        if self.likelihood.coherent and "local" in self.noise_shapes(1, 1, 1, 1, shared=True):
            raise ValueError(
                f"a {arch.likelihood!r} likelihood joins all targets and allows no latent of each, got {self.name!r}; "
                "use it with 'tnp', 'cnp' or another model without z_*"
            )

    # --- hooks that a model fills in ---

    @abstractmethod
    def _build(self, embedding: nn.Module | None) -> None:
        """Make the networks."""

    @abstractmethod
    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """Name the random numbers that one pass consumes, and their shapes.

        Args:
            num_tasks: B.
            num_targets: T.
            num_global: K, draws of z_G.
            num_local: S, draws of z_* for each z_G.
            shared: whether noise that belongs to a draw of the whole function has one slot for all its
                points, as in prediction; in training each point has its own.
        """

    @abstractmethod
    def draws(self, task: Task, noise: Noise) -> Draws:
        """Draw latents from the approximate posterior and score the targets; the context is among them."""

    @abstractmethod
    def summarise(self, task: Task, noise: Noise) -> Any:
        """Summarise what the context shows of the task; reads neither x_target nor y_target.

        A context may hold no point at all: no slots, or none that is filled.
        """

    @abstractmethod
    def decode(self, summary: Any, x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs for targets x [B, T, dim_x], [K, S, B, T, dim_raw]."""

    def local_latent(
        self, summary: Any, x_target: Tensor, y_target: Tensor
    ) -> tuple[DiagonalGaussian, DiagonalGaussian] | None:
        """q(z_* | z_G, x_*, y_*) and p(z_* | z_G, x_*) of some targets, each [K, B, T, Z]; None without a z_*.

        `decode` must draw z_* from that prior with `noise["local"]`, mean + scale · noise.
        """
        return None

    def read(self, summary: Any, x_target: Tensor) -> Any:
        """A summary to ask several things about the same targets: it may hold what all answers need of them."""
        return summary

    def read_all(self, task: Task, noise: Noise) -> Any:
        """Summarise the context of a training task and read all its points; a model may do both in one pass."""
        return self.read(self.summarise(task, noise), task.x_target)

    # --- the contract, the same for all ---

    @final
    def objective(
        self,
        task: Task,
        num_global: int = 1,
        num_local: int = 1,
        noise: Noise | None = None,
        *,
        validate: bool = True,
    ) -> Bound:
        """The terms of the Monte-Carlo lower bound (Eq. 15) of a batch of tasks.

        Args:
            task: tasks with y_target; the context counts as part of the target set.
            num_global: draws K of z_G.
            num_local: draws S of each z_*.
            noise: random numbers of `noise_shapes`; drawn if None.
            validate: check the values of the task first; a compiled step does so before it is captured.
        """
        task = task.joined()
        self.check(task, num_global, num_local, validate)
        if task.y_target is None:
            raise ValueError("the task has no y_target and cannot be learned from; pass y_target")
        noise = self.draw_noise(task, num_global, num_local) if noise is None else noise
        return Bound.of(self.draws(task, noise))

    @final
    def predict(
        self,
        task: Task,
        num_global: int = 32,
        num_local: int = 1,
        noise: Noise | None = None,
        *,
        deterministic: bool = False,
        autoregressive: bool = False,
        block: int = 1,
        differentiable: bool = False,
        generator: torch.Generator | None = None,
        chunk: int = 10_000,
        validate: bool = True,
    ) -> Predictive:
        """The predictive distribution of the targets (Eq. 16, 17); `y_target` is never read.

        Targets are decoded `chunk` at a time: a million of them need little more memory than the arrays that are
        returned.

        Args:
            task: context and targets.
            num_global: draws K of z_G from its prior p(z_G | C).
            num_local: draws S of each z_* from p(z_* | z_G, x_*).
            noise: random numbers of `noise_shapes(..., shared=True)`, to hold the draws fixed; drawn if None.
                A points axis of size 1 serves all targets with the same draw.
            deterministic: put each latent at its mean instead (Sec. 3.3); one component.
            autoregressive: make each of the K draws a function that the model sampled at the targets, block by block
                (see `dsvnp.autoregression`), and predict from the context and that function. The part of the
                variance on which the functions differ is then `epistemic`, for models without latents too.
            block: number of targets that are sampled at once, if autoregressive.
            differentiable: keep the graph for gradients with respect to inputs, context and weights. Memory then grows
                with the number of targets.
            generator: where noise is drawn from.
            chunk: number of targets, over all tasks, decoded at once; if autoregressive, of points encoded at once.
            validate: check the values of the task first.
        """
        task = replace(task, y_target=None)
        self.check(task, num_global, num_local, validate)
        at_least_one(block=block)
        if autoregressive and noise is not None:
            raise ValueError(
                "noise fixes the draws of one pass but autoregression makes many, got both; pass a generator instead"
            )
        noise = {} if deterministic else noise
        if noise and validate:
            check_noise(
                noise,
                lambda t, k, s: self.noise_shapes(task.num_tasks, t, k, s, shared=True),
                task.num_targets,
            )
        with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()), evaluating(self):
            if not autoregressive:
                return self._predict(task, num_global, num_local, noise, generator, chunk)
            one = partial(self._one_draw, num_local=num_local, noise=noise, generator=generator, chunk=chunk)
            return predict_by_chains(one, task, num_global, block, generator, chunk)

    @final
    def _predict(
        self,
        task: Task,
        num_global: int,
        num_local: int,
        noise: Noise | None,
        generator: torch.Generator | None,
        chunk: int,
    ) -> Predictive:
        """One pass over the context and, in chunks, over the targets; the model is in evaluation mode."""

        def draw(num_targets: int, local: bool) -> dict[str, Tensor]:
            """Draw the noise that all targets share (once), or the noise of some single targets."""
            shapes = self.noise_shapes(task.num_tasks, num_targets, num_global, num_local, shared=True)
            wanted = {name: shape for name, shape in shapes.items() if (name == "local") is local}
            return draw_noise(wanted, task.x_target, generator)

        step = max(1, chunk // max(1, task.num_tasks))
        whole: list[Tensor] = []
        common = dict(noise) if noise is not None else draw(0, local=False)
        summary = self.summarise(task, common)
        for start in range(0, max(1, task.num_targets), step):  # once at least: no target has a shape, too
            x = task.x_target[:, start : start + step]
            own = draw(x.shape[1], local=True) if noise is None else noise_of(noise, task, start, step)
            parts = self.likelihood.components(self.decode(summary, x, {**common, **own}))
            if not whole:  # filled in place: concatenating at the end would need it all twice
                whole = [part.new_empty(*part.shape[:-2], task.num_targets, part.shape[-1]) for part in parts]
            for target, part in zip(whole, parts, strict=True):
                target[..., start : start + step, :] = part
        return self.likelihood.predictive(*whole)

    @final
    def prior_draws(self, task: Task, noise: Noise, *, propose_local: bool = False) -> Draws:
        """Draw z_G from p(z_G | C), as prediction does, and score the targets; the context is among them.

        `propose_local` draws each z_* from its posterior given that z_G, for an importance-weighted estimate. It is
        drawn from its prior otherwise, and where `local_latent` gives none.
        """
        y_target, _ = task.all_points()
        counted = self.counted(task)
        summary = self.read_all(task, noise)
        local = self.local_latent(summary, task.x_target, y_target) if propose_local else None
        if local is None:
            raw = self.decode(summary, task.x_target, noise)
            return Draws(self.likelihood.score(raw, y_target, counted), counted)
        q_local, p_local = local
        z_local = q_local.unsqueeze(1).sample(noise.get("local"))  # [K, S, B, T, Z]
        prior = p_local.unsqueeze(1)
        own = {**noise, "local": (z_local - prior.mean) / prior.scale}  # `decode` draws mean + scale · noise
        log_likelihood = self.likelihood.score(self.decode(summary, task.x_target, own), y_target, counted)
        return Draws(log_likelihood, counted, q_local=q_local, p_local=p_local, z_local=z_local)

    def forward(self, task: Task, *args: Any, **kwargs: Any) -> Bound:
        """Return the objective; `torch.func.functional_call` calls a module's forward."""
        return self.objective(task, *args, **kwargs)

    def takes(self, dim_x: int) -> bool:
        """Whether the model reads inputs with `dim_x` features; most networks take exactly `arch.dim_x`."""
        return dim_x == self.arch.dim_x

    @final
    def regions(self) -> list[nn.Module]:
        """The repeated parts of a network, which share one compiled program (`Settings.compile`)."""
        return [part for part in self.modules() if getattr(part, "is_region", False)]

    @final
    def counted(self, task: Task) -> Tensor:
        """Which target points the objective scores, [B, T]; needs no forward pass."""
        own = self.arch.score_context
        if (self.scores_context if own is None else own) or task.in_context is None:
            return task.mask_target
        return task.mask_target & ~task.in_context

    @final
    def draw_noise(
        self,
        task: Task,
        num_global: int = 1,
        num_local: int = 1,
        *,
        shared: bool = False,
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """Draw the random numbers that one pass over `task` consumes; see `noise_shapes` for `shared`."""
        shapes = self.noise_shapes(task.num_tasks, task.num_targets, num_global, num_local, shared)
        return draw_noise(shapes, task.x_target, generator)

    @final
    def check(self, task: Task, num_global: int = 1, num_local: int = 1, validate: bool = True) -> None:
        """Refuse bad input before any computation; check values only if `validate`."""
        at_least_one(num_global=num_global, num_local=num_local)
        if not self.takes(task.x_target.shape[-1]):
            raise ValueError(
                f"x has {task.x_target.shape[-1]} features but the model was made for {self.arch.dim_x}; "
                "pass the inputs it was trained on"
            )
        self.likelihood.check(task.y_context, "y_context")
        if task.y_target is not None:
            self.likelihood.check(task.y_target, "y_target")
        if validate:
            dtype = next(self.parameters()).dtype
            if task.x_target.dtype != dtype:
                raise ValueError(
                    f"x is {task.x_target.dtype} but the model computes in {dtype}; pass x.to({dtype}), "
                    "or convert the model"
                )
            task.check()
            self.likelihood.check_values(task.y_context, task.mask_context, "y_context")
            if task.y_target is not None:
                self.likelihood.check_values(task.y_target, task.mask_target, "y_target")
