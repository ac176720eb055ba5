"""Running sums over draws of a model's latents, from which a log-likelihood is estimated.

A draw of the latents gives each target a weight w = p(y | z) p(z)/q(z), where q is the distribution z was drawn from.
The sums are, per point, output or task,  ln Σ w  (the likelihood),  ln Σ w²  (its error)  and  Σ ln w  (the lower
bound).

A latent is prior mean + prior scale · noise. Therefore a proposal N(μ_q, σ_q²) for the latent is one for its noise,
N((μ_q − μ_p)/σ_p, (σ_q/σ_p)²), whose prior is N(0, 1): `summarise` and `decode` take noise from either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from typing import Any, Literal

import torch
from torch import Tensor

from dsvnp.gaussian import DiagonalGaussian
from dsvnp.likelihoods import Likelihood
from dsvnp.metrics import Points, point_mask
from dsvnp.models.base import NeuralProcess, draw_noise
from dsvnp.task import Task

Per = Literal["point", "task", "output"]
Pair = tuple[DiagonalGaussian, DiagonalGaussian]  # posterior and prior of a latent

SUMS = ("total", "squares", "logs", "count", "open")
MANY_TARGETS = 1024  # of each task; fewer at once would leave small matrices, more would leave few draws


class RunningBatch:
    """One batch of tasks and its running sums; memory for a few numbers per target and one chunk of draws.

    Args:
        model: model in evaluation mode.
        task: tasks with y_target.
        per: "point", "task" or "output": what one value is the likelihood of.
        points: which targets count.
        chunk: number of targets times draws decoded at once.
    """

    def __init__(self, model: NeuralProcess, task: Task, per: Per, points: Points, chunk: int) -> None:
        if task.y_target is None:
            raise ValueError("the task has no y_target and therefore no likelihood; pass y_target")
        self.model, self.task, self.per, self.chunk = model, task, per, chunk
        self.y = torch.where(task.mask_target.unsqueeze(-1), task.y_target, 0)
        known, mask = ~torch.isnan(self.y), point_mask(task, points)
        self.counted = mask.unsqueeze(-1) & known if per == "output" else mask & known.any(-1)
        names = set(model.noise_shapes(task.num_tasks, 1, 1, 1, shared=True))
        self.random, self.local, self.shares_draws = bool(names), "local" in names, bool(names - {"local"})
        self.latent = "global" in names
        self.together = per == "task" and model.likelihood.coherent
        # z_G has a proposal for a whole task, or for a target with draws of its own.
        self.proposes_global = self.latent and (per == "task" or task.num_targets == 1)

    @property
    def proposes(self) -> bool:
        """Whether the model has a posterior to draw a latent from; it reads all outputs and does not suit one alone."""
        local = self.local and type(self.model).local_latent is not NeuralProcess.local_latent
        return self.per != "output" and (self.latent or local)

    def one_target_each(self) -> list[RunningBatch]:
        """Make each counted target a task of its own, in the same order, with its own q(z_G | C, y_t).

        Contexts are views, repeated for as many targets as an encoder reads at once.
        """
        task, parts = self.task, []
        assert task.y_target is not None
        size = max(1, self.chunk // (task.x_context.shape[1] + 1))
        for b in range(task.num_tasks):
            counted = self.counted[b]
            x_target, y_target = task.x_target[b, counted, None], task.y_target[b, counted, None]  # [N, 1, …]
            for x, y in zip(x_target.split(size), y_target.split(size), strict=True):
                part = Task.from_sets(
                    task.x_context[b].expand(len(x), -1, -1),
                    task.y_context[b].expand(len(x), -1, -1),
                    x,
                    y,
                    mask_context=task.mask_context[b].expand(len(x), -1),
                )
                parts.append(RunningBatch(self.model, part, self.per, "J", self.chunk))
        return parts

    # --- drawing ---

    def restart(self, prior_share: float, generator: torch.Generator) -> None:
        """Forget all draws; the next ones come from prior_share · prior + (1 − prior_share) · posterior."""
        like = self.counted[:, 0] if self.per == "task" else self.counted
        self.total = torch.full(like.shape, -math.inf, dtype=self.task.x_target.dtype, device=like.device)
        self.squares, self.logs = self.total.clone(), torch.zeros_like(self.total)
        self.count = self.total.new_zeros(len(like), *[1] * (like.ndim - 1))  # draws of z_G of each task
        self.open = torch.ones(len(like), dtype=torch.bool, device=like.device)
        self.prior_share, self.generator = prior_share, generator

    def settle(self, tolerance: float) -> None:
        """Close tasks whose draws suffice for each of their values.

        ln 1/K Σ w is too low by about 1/2 (1/ESS − 1/K): in a closed task by at most a quarter of the tolerance.
        """
        known = self._sizes() >= 2 / tolerance
        known = known if self.per == "task" else (known | ~self.counted).flatten(1).all(1)
        self.open = self.open & ~known

    def extend(self, num_global: int, num_local: int, again: bool) -> None:
        """Add draws to the tasks that are open, or make new draws of these in place of theirs."""
        rows = self.open.nonzero().squeeze(1)
        if not len(rows):
            return
        some = copy(self)
        some.task = Task(**{name: value[rows] for name, value in self.task.tensors().items()})
        for name in ("y", "counted", *SUMS):
            setattr(some, name, getattr(self, name)[rows])
        if again:
            some.restart(self.prior_share, self.generator)
        some.add(num_global, num_local)
        for name in SUMS:
            setattr(self, name, getattr(self, name).index_copy(0, rows, getattr(some, name)))

    def add(self, num_global: int, num_local: int) -> None:
        """Draw z_G `num_global` times, each z_* `num_local` times for each of them, and add up the weights."""
        tasks, targets = self.task.num_tasks, self.task.num_targets
        together = tasks * min(targets, MANY_TARGETS)
        at_once_local = min(num_local, max(1, self.chunk // together))
        at_once = min(num_global, max(1, self.chunk // (together * at_once_local)))
        step = max(1, self.chunk // (tasks * at_once_local * at_once))
        if self.together:  # one density of all targets cannot be cut
            step = targets
        wanted = self.proposes_global and self.prior_share < 1
        pair = _global_latent(self.model, self.task, self.chunk) if wanted else None
        for draws in _parts(num_global, at_once):
            noise, log_weight = self._draw_global(draws, pair)  # log_weight [K, B]
            summary = self.model.summarise(self.task, noise)
            for start in range(0, targets, step):
                some = slice(start, start + step)
                each = [self._weigh(summary, noise, some, draws, s) for s in _parts(num_local, at_once_local)]
                log_prob = torch.stack(each).logsumexp(0) - math.log(num_local)  # [K, B, T] or [K, B, T, D]
                if self.per == "task":
                    log_weight = log_weight + torch.where(self.counted[:, some], log_prob, 0.0).sum(-1)
                else:
                    own = log_weight.reshape(draws, tasks, *[1] * (log_prob.ndim - 2))
                    self._add_up((slice(None), some), log_prob + own)
            if self.per == "task":
                self._add_up((slice(None),), log_weight)
        self.count = self.count + num_global

    def _draw_global(self, draws: int, pair: Pair | None) -> tuple[dict[str, Tensor], Tensor]:
        """Noise that all targets share, and ln p(z_G)/q(z_G) of each draw, [K, B]."""
        shapes = self.model.noise_shapes(self.task.num_tasks, 0, draws, 1, shared=True)
        shared = {name: shape for name, shape in shapes.items() if name != "local"}
        noise = draw_noise(shared, self.task.x_target, self.generator)
        log_weight = self.task.x_target.new_zeros(draws, self.task.num_tasks)
        if pair is not None:
            noise["global"], log_weight = propose(pair, noise["global"], self.prior_share, self.generator)
        return noise, log_weight

    def _weigh(
        self, summary: Any, noise: dict[str, Tensor], some: slice, num_global: int, num_local: int
    ) -> Tensor:
        """ln Σ_s p(y_t | z_G, z_t) p(z_t)/q(z_t) of some targets, [K, B, T]; per output [K, B, T, D]."""
        x, y = self.task.x_target[:, some], self.y[:, some]
        log_weight: Tensor | None = None
        if self.local:
            tasks, targets = x.shape[:2]
            shapes = self.model.noise_shapes(tasks, targets, num_global, num_local, shared=True)
            local = draw_noise({"local": shapes["local"]}, x, self.generator)["local"]
            pair = None
            if self.prior_share < 1:
                summary = self.model.read(summary, x)
                pair = self.model.local_latent(summary, x, y)
            if pair is not None:
                pair = (pair[0].unsqueeze(1), pair[1].unsqueeze(1))  # an axis for S
                local, log_weight = propose(pair, local, self.prior_share, self.generator)
            noise = {**noise, "local": local}
        raw = self.model.decode(summary, x, noise)  # [K, S, B, T, raw]
        if self.together:
            return self.model.likelihood.score(raw, y, self.counted)[:, 0]
        log_prob = draw_log_prob(self.model.likelihood, raw, y, self.per == "output")
        if log_weight is not None:
            log_prob = log_prob + (log_weight.unsqueeze(-1) if self.per == "output" else log_weight)
        return log_prob.logsumexp(1)

    def _add_up(self, where: tuple[slice, ...], log_weights: Tensor) -> None:
        """Add weights of some draws, [K, …], to the sums of some points."""
        self.total[where] = torch.logaddexp(self.total[where], log_weights.logsumexp(0))
        self.squares[where] = torch.logaddexp(self.squares[where], (2 * log_weights).logsumexp(0))
        self.logs[where] += log_weights.sum(0)

    # --- reading the sums; all flat and of counted points only ---

    def values(self) -> Tensor:
        """ln 1/K Σ w of each point, output or task, [N]; a task's is divided by the number of its points."""
        return self._read(self.total - self.count.log())

    def mean_log(self) -> Tensor:
        """1/K Σ ln w, [N], divided as `values`: a lower bound on average, whatever the number of draws."""
        return self._read(self.logs / self.count)

    def ess(self) -> Tensor:
        """Effective number of draws, (Σw)²/Σw², [N]."""
        return self._sizes()[self.counted.any(-1) if self.per == "task" else self.counted]

    def _sizes(self) -> Tensor:
        """Effective number of draws of all points, counted or not."""
        return (2 * self.total - self.squares).exp()

    def task_errors(self) -> Tensor:
        """Standard error of the sum of a task's values, [B]: that of ln 1/K Σ w is √(Σw²/(Σw)² − 1/K)."""
        variance = (self.squares - 2 * self.total).exp() - 1 / self.count
        errors = variance.clamp(min=0).sqrt()
        if self.per == "task":
            return errors[self.counted.any(-1)] / self.counted.sum(-1)[self.counted.any(-1)]
        return torch.where(self.counted, errors, 0.0).flatten(1).sum(1)

    def _read(self, sums: Tensor) -> Tensor:
        if self.per != "task":
            return sums[self.counted]
        filled = self.counted.any(-1)
        return sums[filled] / self.counted.sum(-1)[filled]


def propose(
    pair: Pair, noise: Tensor, prior_share: float, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Draw a latent's noise from a mixture of its prior and its posterior; ln of prior over mixture is the weight.

    Args:
        pair: posterior and prior of the latent, broadcastable to `noise` but for its first axis.
        noise: standard normal numbers, [..., Z].
        prior_share: share of the prior in the mixture; it bounds the weight by its inverse.
        generator: where the choice between the two is drawn from.

    Returns:
        The noise, [..., Z], and the logarithms of the weights, [...].
    """
    q, p = pair
    posterior = DiagonalGaussian((q.mean - p.mean) / p.scale, q.scale / p.scale)
    uniform = torch.rand(noise.shape[:-1], generator=generator, dtype=noise.dtype, device=noise.device)
    drawn = torch.where((uniform < prior_share).unsqueeze(-1), noise, posterior.sample(noise))
    prior = DiagonalGaussian(torch.zeros_like(drawn), torch.ones_like(drawn))
    ratio = posterior.log_prob(drawn) - prior.log_prob(drawn)
    share = torch.tensor(prior_share, dtype=ratio.dtype, device=ratio.device)
    return drawn, -torch.logaddexp(share.log(), torch.log1p(-share) + ratio)


def draw_log_prob(likelihood: Likelihood, raw: Tensor, y: Tensor, by_output: bool = False) -> Tensor:
    """Log-density of y under each draw, [K, S, B, T], or of each output by itself, [K, S, B, T, D].

    By the predictive of one draw: `likelihood.log_prob` is the training term, which need not be a density.
    """
    shape = (*raw.shape[:2], *y.shape)  # [K, S, B, T, D]
    single = raw.reshape(1, 1, -1, *raw.shape[-2:])  # draws as tasks: [1, 1, K·S·B, T, raw]
    predictive = likelihood.predictive(*likelihood.components(single))
    y = y.expand(shape).reshape(-1, *shape[-2:])
    if not by_output or shape[-1] == 1:
        log_prob = predictive.log_prob(y).reshape(shape[:-1])
        return log_prob.unsqueeze(-1) if by_output else log_prob
    outputs = torch.arange(shape[-1], device=y.device)
    # An output that is missing (NaN) is integrated over.
    alone = [predictive.log_prob(torch.where(outputs == d, y, math.nan)) for d in outputs]
    return torch.stack(alone, dim=-1).reshape(shape)


def _global_latent(model: NeuralProcess, task: Task, chunk: int) -> Pair | None:
    """q(z_G | T) and p(z_G | C), [B, Z], from at most `chunk` targets; any proposal is a valid one."""
    assert task.y_target is not None
    some = task.some_targets(every=-(-task.num_tasks * task.num_targets // chunk))
    draws = model.draws(some.joined(), {})
    return None if draws.q_global is None or draws.p_global is None else (draws.q_global, draws.p_global)


def _parts(total: int, size: int) -> Iterator[int]:
    """Cut a number of draws into parts of at most `size`."""
    for start in range(0, total, size):
        yield min(size, total - start)
