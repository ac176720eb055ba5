"""One training step of a whole fleet as one function of tensors: batch, bound, gradient, Adam.

Axes: R replicas, P parameters. Model code knows nothing of replicas: `vmap` adds the axis, or they are handled one by
one. The function draws no random number (noise is an argument), looks at no value, and writes its results into the
state in place: it compiles without a break and can be captured as one CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._pytree import tree_map

from dsvnp.likelihoods import Gaussian
from dsvnp.losses import training_loss
from dsvnp.models.base import NeuralProcess, is_uniform
from dsvnp.networks import Shape
from dsvnp.objectives import Draws, Objective, Weights
from dsvnp.sources.base import TaskSource
from dsvnp.task import Task
from dsvnp.training.distributed import Cluster
from dsvnp.training.layout import Layout
from dsvnp.training.optimizer import norm_of_each
from dsvnp.training.settings import Settings

Tensors = dict[str, Tensor]
Further = tuple[Tensor, Tensor, Tensor, Tensors]  # terms, global KL per task, points that are scored, buffers
Gradient = tuple[Tensor, Further]

TERMS = ("log_likelihood", "kl_local", "kl_global")  # of the bound, per point
STOP_REASONS = (*TERMS, "gradient")


class NoiseLayout:
    """The layout of named noise tensors in one flat row of random numbers."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.shapes = dict(shapes)
        self.size = sum(math.prod(shape) for shape in self.shapes.values())

    def cut(self, flat: Tensor) -> Tensors:
        """Cut a flat [..., size] into named [..., *shape]."""
        out, start = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            out[name] = flat[..., start : start + size].unflatten(-1, shape)
            start += size
        return out


@dataclass(frozen=True)
class StepPlan:
    """The parts of the step function that do not change while a fleet trains."""

    model: NeuralProcess
    source: TaskSource
    layout: Layout
    settings: Settings
    normal: NoiseLayout
    uniform: NoiseLayout
    cluster: Cluster
    static_per_replica: bool
    every: int = 1  # sources that take turns: each sees every such step

    @classmethod
    def make(
        cls,
        model: NeuralProcess,
        source: TaskSource,
        example: Task,
        settings: Settings,
        cluster: Cluster,
        static_per_replica: bool,
        every: int = 1,
    ) -> StepPlan:
        """Work out which random numbers a step needs from a batch like those to come."""
        objective = settings.objective
        shapes = model.noise_shapes(
            example.num_tasks, example.num_targets, objective.num_global, objective.num_local, shared=False
        )
        latent = {name: shape for name, shape in shapes.items() if not is_uniform(name)}
        dropout = {name: shape for name, shape in shapes.items() if is_uniform(name)}
        return cls(
            model,
            source,
            Layout(model),
            settings,
            NoiseLayout(latent),
            NoiseLayout({**source.uniform_shapes(), **dropout}),
            cluster,
            static_per_replica,
            every,
        )


Step = Callable[..., None]


def make_step(plan: StepPlan, compile: bool, singly: bool = False) -> Step:
    """Make the step: `step(state, static, pool, normal, uniform)` advances the state in place.

    With `trial=True` processes do not sum what each has: another one may not get that far.

    Args:
        plan: what it is made of.
        compile: compile it, as one function; in two where replicas are handled singly, or where processes sum their
            gradients in between.
        singly: handle replicas one after the other, without `vmap`.
    """
    options: dict[str, Any] = {"dynamic": False, "fullgraph": True}
    in_two = singly or plan.cluster.splits_data
    loss, in_dims = _make_loss(plan), (0, 0, 0 if plan.static_per_replica else None, 0, 0, 0, None)

    def of_one(*inputs: Any) -> Gradient:
        grad, (_, further) = grad_and_value(loss, has_aux=True)(*inputs)
        return grad, further

    def of_all(*inputs: Any) -> Gradient:
        grads: Gradient = vmap(of_one, in_dims, chunk_size=plan.settings.chunk_size)(*inputs)
        return grads

    gradient: Callable[..., Gradient] = of_all
    apply: Callable[..., None] = partial(_apply, plan)
    if singly:
        gradient = _each(torch.compile(of_one, **options) if compile else _by_autograd(loss), in_dims)
    elif compile and in_two:
        gradient = torch.compile(of_all, **options)
    if compile and in_two:
        apply = torch.compile(apply, **options)
    if singly:
        apply = _apply_each(apply)
    buffers_of_model = [f"buffers.{name}" for name, _ in plan.model.named_buffers()]
    per_replica = ["beta_local", "beta_global", "log_multipliers", *buffers_of_model]

    def step(
        state: Tensors, static: Tensors, pool: Tensors, normal: Tensor, uniform: Tensor, trial: bool = False
    ) -> None:
        replica = {name: state[name] for name in per_replica}
        grads, (terms, kl_task, scored, buffers) = gradient(
            state["params"], replica, static, pool, normal, uniform, state["step"]
        )
        if plan.cluster.splits_data and not trial:
            plan.cluster.all_reduce(grads, terms, kl_task)
            buffers = plan.cluster.average(buffers)
        apply(state, grads, terms, kl_task, scored, buffers)

    return torch.compile(step, **options) if compile and not in_two else step


def _make_loss(plan: StepPlan) -> Callable[..., tuple[Tensor, Further]]:
    """Make the loss of one replica; with it the terms, the points that are scored, and new buffers."""
    model, objective = plan.model, plan.settings.objective
    buffer_names = [name for name, _ in model.named_buffers()]
    scores = _Scores(model, objective)

    def loss(
        params: Tensor,
        replica: Tensors,  # scalars and buffers of this replica
        static: Tensors,
        pool: Tensors,
        normal: Tensor,
        uniform: Tensor,
        step: Tensor,
    ) -> tuple[Tensor, Further]:
        uniforms = plan.uniform.cut(uniform)
        task = plan.source.batch({**static, **pool}, uniforms, step // plan.every)
        noise = plan.normal.cut(normal) | {name: u for name, u in uniforms.items() if is_uniform(name)}
        scored, tasks = model.counted(task).sum(), task.num_tasks  # of the joint batch
        points = (task.mask_target.sum() if objective.divide_by == "all" else scored).clamp(min=1)
        task, noise = plan.cluster.my_part(task, noise)
        buffers = {name: replica[f"buffers.{name}"].clone() for name in buffer_names}
        common = objective.common_sigma(step)
        with torch.autocast(params.device.type, torch.bfloat16, enabled=plan.settings.precision == "bf16"):
            posterior, prior = functional_call(
                scores, _inside(plan.layout.unflatten(params), buffers), (task, noise, common)
            )
        base = Weights(replica["beta_local"], replica["beta_global"])
        weights = objective.weights(base, step, replica["log_multipliers"])
        value, bound = training_loss(objective, posterior, prior, weights, points, tasks)
        terms = torch.stack([getattr(bound, name).sum() / scored.clamp(min=1) for name in TERMS])
        return value, (terms, bound.kl_global.sum() / tasks, scored, buffers)

    return loss


class _Scores(nn.Module):
    """The draws that an objective asks of a model, as a module: `functional_call` puts a replica's tensors into it."""

    def __init__(self, model: NeuralProcess, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        if objective.common_steps and not isinstance(model.likelihood, Gaussian):
            raise ValueError(
                f"common_steps needs a Gaussian likelihood, got {model.arch.likelihood!r}; leave it out"
            )

    def forward(
        self, task: Task, noise: Tensors, common: Tensor | None = None
    ) -> tuple[Draws | None, Draws | None]:
        self.model.likelihood.common = common  # of this step only: what is measured has each output's own σ
        try:
            return self._draws(task.joined(), noise)
        finally:
            self.model.likelihood.common = None

    def _draws(self, task: Task, noise: Tensors) -> tuple[Draws | None, Draws | None]:
        """Draws from the posteriors and from the priors, where they are needed."""
        posterior = self.model.draws(task, noise) if self.objective.uses_posterior else None
        prior = (
            self.model.prior_draws(task, noise, propose_local=self.objective.propose_local)
            if self.objective.uses_prior
            else None
        )
        return posterior, prior


def _inside(*named: Tensors) -> tuple[Tensors, ...]:
    """Tensors by the names that they have in `_Scores`."""
    return tuple({f"model.{name}": value for name, value in each.items()} for each in named)


def _by_autograd(loss: Callable[..., tuple[Tensor, Further]]) -> Callable[..., Gradient]:
    """The gradient of one replica by plain autograd; uncompiled, it takes half the time that `torch.func` does."""

    def gradient(params: Tensor, *inputs: Any) -> Gradient:
        leaf = params.detach().requires_grad_()
        with torch.enable_grad():
            value, further = loss(leaf, *inputs)
            (grad,) = torch.autograd.grad(value, leaf)
        return grad, tree_map(Tensor.detach, further)

    return gradient


def _each(of_one: Callable[..., Gradient], in_dims: tuple[Any, ...]) -> Callable[..., Gradient]:
    """Gradients of all replicas, one after the other by the same function: each equals that of a single run.

    A single replica is faster this way too, because the rule of `vmap` for convolutions copies every weight.
    """

    def gradients(*inputs: Any) -> Gradient:
        return _stacked([of_one(*_of_replica(row, inputs, in_dims)) for row in range(len(inputs[0]))])

    return gradients


def _stacked(rows: Sequence[Gradient]) -> Gradient:
    """Results of single replicas with the replica axis in front; of one alone without a copy."""

    def stack(*values: Tensor) -> Tensor:
        return torch.stack(values) if len(values) > 1 else values[0].unsqueeze(0)

    stacked: Gradient = tree_map(stack, *rows)
    return stacked


def _of_replica(row: int, inputs: tuple[Any, ...], in_dims: tuple[Any, ...]) -> list[Any]:
    """What one replica gets of inputs that have a replica axis in front, unless it is None in `in_dims`."""
    return [
        value if dim is None else tree_map(lambda tensor: tensor[row], value)
        for value, dim in zip(inputs, in_dims, strict=True)
    ]


def _apply_each(apply: Callable[..., None]) -> Callable[..., None]:
    """Take the step of one replica after the other, by the same function as that of a single run.

    A compiler may round a step of three rows other than one of a single row: replicas would differ in their last
    digits.
    """

    def apply_each(state: Tensors, *results: Any) -> None:
        last = len(state["params"]) - 1
        for row in range(last + 1):
            mine, found = tree_map(lambda t, row=row: t[row : row + 1] if t.ndim else t, (state, results))
            step = (
                state["step"] if row == last else state["step"].clone()
            )  # all share it, and the last one counts it
            apply({**mine, "step": step}, *found)

    return apply_each


def _apply(
    plan: StepPlan,
    state: Tensors,
    grads: Tensor,
    terms: Tensor,
    kl_task: Tensor,
    scored: Tensor,
    buffers: Tensors,
) -> None:
    """Take the optimiser's step for every replica that is on and whose loss and gradient are finite.

    By `torch.where`, never by a product with 0: 0 · NaN is NaN. A batch without a scored point, as where all points are
    context of a CNP, counts neither in the means of the terms nor for the multipliers.
    """
    settings, step = plan.settings, state["step"]
    norm = norm_of_each(grads)
    finite = torch.cat([terms.isfinite(), norm.isfinite()], dim=1)  # [R, 4]
    on = state["active"] & finite.all(1)
    lr = (state["learning_rate"] * settings.schedule.factor(step, settings.num_steps)).to(grads.dtype)
    params, m, v = settings.optimizer.update(
        state["params"], grads, norm, state["m"], state["v"], step, lr.unsqueeze(1)
    )
    counts, multipliers = scored > 0, state["log_multipliers"]
    if settings.objective.constrained:
        ascend = vmap(settings.objective.ascend)
        ascended = ascend(multipliers, terms[:, TERMS.index("kl_local")], kl_task)
        multipliers = torch.where(counts.unsqueeze(1), ascended, multipliers)
    new = {"params": params, "m": m, "v": v, "log_multipliers": multipliers}
    new |= {f"buffers.{name}": value for name, value in buffers.items()}
    new |= {"metrics": state["metrics"] + torch.where(counts.unsqueeze(1), terms, 0.0)}
    new |= {"metric_steps": state["metric_steps"] + counts}
    broken = state["active"] & ~on
    for name, value in new.items():
        keep = on.view(-1, *[1] * (value.ndim - 1))
        state[name].copy_(torch.where(keep, value, state[name]))
    first_bad = (~finite).to(torch.uint8).argmax(1)
    state["stop_reason"].copy_(torch.where(broken, first_bad, state["stop_reason"]))
    state["stop_step"].copy_(torch.where(broken, step, state["stop_step"]))
    state["active"].copy_(on)
    step.add_(1)
