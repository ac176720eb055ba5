"""Log-likelihoods of a model, from as many draws of its latents as suffice.

    p(y_t | C) = E[p(y_t | z_G, z_t)]                          per point; per output for one number of it
    p(y_T | C) = E_{z_G}[Π_t E_{z_t}[p(y_t | z_G, z_t)]]       per task

The logarithm of a mean over K·S draws is too low on average; the bias shrinks as draws grow. Therefore the draws are
doubled until the mean over all points is still: two doublings in a row change it by less than a tolerance. A task whose
values rest on so many effective draws that their bias is a quarter of the tolerance gets no more. Only running sums are
kept, never the draws. The method is

    "exact"        the model draws nothing
    "prior"        z_G ~ p(z_G | C), z_t ~ p(z_t | z_G, x_t)
    "importance"   z_G ~ q(z_G | T) per task, q(z_G | C, y_t) per point, z_t ~ q(z_t | z_G, x_t, y_t), weighted by p/q

All are lower bounds on average: the larger mean is the better estimate. The running sums are in `streaming`.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from dsvnp.metrics import Points
from dsvnp.models.base import NeuralProcess, evaluating
from dsvnp.naming import at_least_one
from dsvnp.streaming import Per, RunningBatch
from dsvnp.task import Task

Method = Literal["auto", "prior", "importance"]

FIRST = 32  # draws before the first doubling; two doublings later is the least that can be still
BOUND_DRAWS = 64
PRIOR_SHARE = 0.25  # of a proposal, which bounds its weights by 4 (a defensive mixture; Hesterberg, 1995)
PATIENCE = 2048  # draws from the prior before the posterior is tried
LEAST_ESS = 10.0  # a value from fewer effective draws is not reliable …
FEW = 0.01  # … and a larger share of such values calls for importance sampling


class Level(NamedTuple):
    """The mean after some draws: K of z_G, each with S of every z_*."""

    method: str
    num_global: int
    num_local: int
    mean: float

    @property
    def draws(self) -> int:
        """Number of draws that each target was decoded with, K·S."""
        return self.num_global * self.num_local


@dataclass(frozen=True)
class LogLikelihood:
    """An estimated log-likelihood, with measures of its error."""

    # one number per counted point, output or task, flat, [N], in the order of the tasks; a task's is divided by the
    # number of its points
    values: Tensor
    mean: float  # mean of the values
    # Monte-Carlo standard error of the mean by the delta method, with the errors of a task's points taken as fully
    # correlated, because they share draws of z_G: an upper bound. NaN where K is 1
    stderr: float
    bound: float  # the evidence lower bound, the check from below: never above the exact mean, on average
    method: str  # "exact", "prior" or "importance", see the module
    draws: int  # K·S, the number of draws behind those `values` that needed the most
    still: bool  # whether the last two doublings each changed the mean by less than the tolerance
    low_ess: float  # share of values with fewer than ten effective draws, (Σw)²/Σw²; NaN where K is 1
    history: tuple[Level, ...]  # the mean at each number of draws, of each method that was tried

    @property
    def changes(self) -> tuple[float, ...]:
        """Changes of the mean at the last two doublings, or at fewer if there were fewer."""
        means = [level.mean for level in self.history if level.method == self.method]
        return tuple(after - before for before, after in pairwise(means[-3:]))


def log_likelihood(
    model: NeuralProcess,
    tasks: Task | Iterable[Task],
    per: Per = "point",
    points: Points = "P",
    *,
    method: Method = "auto",
    tolerance: float = 0.01,
    max_draws: int = 16384,
    chunk: int = 2**17,
    seed: int = 0,
) -> LogLikelihood:
    """Estimate the predictive log-likelihood of the targets of one batch of tasks or of many.

    Args:
        model: any model behind the contract.
        tasks: a batch of tasks with y_target, or several; all are kept, with a few numbers per target.
        per: "point", all outputs of a target ("marginal" in the field's tables); "task", all counted targets of a task
            together ("joint"); "output", each output of a target by itself, from the prior only.
        points: "P" counts targets outside the context, "J" all.
        method: "auto" draws from the prior and, where that is not still after 2048 draws, is below the lower bound or
            has too few effective draws, from the posterior; the larger mean is returned. Or one of the two alone.
        tolerance: a change of the mean below it, in nats, counts as none.
        max_draws: limit of K·S; there the estimate is returned, still or not.
        chunk: number of targets times draws decoded at once.
        seed: seed of all draws; the same seed and chunk give the same result.
    """
    _check_arguments(per, method, tolerance, max_draws, chunk)
    with torch.no_grad(), evaluating(model):
        batches = []
        for task in [tasks] if isinstance(tasks, Task) else tasks:
            model.check(task)
            batches.append(RunningBatch(model, task, per, points, chunk))
        if not any(int(batch.counted.sum()) for batch in batches):
            raise ValueError("no target counts; pass tasks with such points, or points='J'")
        if not any(batch.random for batch in batches):
            return _exact(batches)
        proposes = any(batch.proposes for batch in batches)
        if method == "importance" and not proposes:
            raise ValueError(
                f"{model.name!r} has no posterior to draw from for an estimate per {per}; pass method='prior'"
            )
        return _estimate(batches, method if proposes else "prior", tolerance, max_draws, seed)


def _estimate(
    batches: list[RunningBatch], method: str, tolerance: float, max_draws: int, seed: int
) -> LogLikelihood:
    """Draw from the prior, from the posterior, or from one after the other; return the larger mean."""
    bound = _lower_bound(batches, seed)
    tried: list[LogLikelihood] = []
    if method != "importance":
        limit = max_draws if method == "prior" else min(max_draws, PATIENCE)
        tried.append(_double(batches, "prior", tolerance, limit, seed))
        trusted = tried[0].still and tried[0].mean >= bound and not tried[0].low_ess > FEW
        method = "prior" if trusted else method
    if method != "prior":
        own = batches[0].per != "task" and batches[0].latent
        parts = [part for batch in batches for part in batch.one_target_each()] if own else batches
        tried.append(_double(parts, "importance", tolerance, max_draws, seed))
    best = max(tried, key=lambda estimate: estimate.mean)
    if method == "auto" and not best.still and max_draws > PATIENCE:
        # not still with the posterior either: the prior up to the limit
        tried[0] = _double(batches, "prior", tolerance, max_draws, seed)
        best = max(tried, key=lambda estimate: estimate.mean)
    return replace(best, bound=bound, history=tuple(level for each in tried for level in each.history))


def _double(
    batches: list[RunningBatch], method: str, tolerance: float, max_draws: int, seed: int
) -> LogLikelihood:
    """Double the draws of one method until the mean is still or the limit is reached."""
    prior_share = 1.0 if method == "prior" else PRIOR_SHARE
    generator = _generator(batches, seed)
    history: list[Level] = []
    still = False
    for num_global, num_local in _levels(batches[0], max_draws):
        # A product over a task's points needs all draws of z_* for a z_G at once: with more of them, start again.
        again = not history or history[-1].num_local != num_local
        done = 0 if again else history[-1].num_global
        for batch in batches:
            if not history:
                batch.restart(prior_share, generator)
            batch.extend(num_global - done, num_local, again)
            batch.settle(tolerance)
        history.append(Level(method, num_global, num_local, _mean(batches)))
        changes = [abs(after.mean - before.mean) for before, after in pairwise(history[-3:])]
        still = len(changes) == 2 and max(changes) < tolerance
        if still or math.isnan(history[-1].mean):
            break
    return _result(batches, history, still)


def _levels(batch: RunningBatch, max_draws: int) -> Iterator[tuple[int, int]]:
    """K and S of each level, their product doubling.

    Per point a draw of both latents counts most, S = 1. Per task the error of each Π_t shrinks with S and that of
    their mean with K: both double in turn, and two doublings in a row test both.
    """
    for power in range(FIRST.bit_length() - 1, max_draws.bit_length()):
        if not batch.shares_draws:  # nothing but z_*: its draws alone matter
            yield 1, 2**power
        elif batch.per == "task" and batch.local:
            yield 2 ** (power // 2), 2 ** (power - power // 2)
        else:
            yield 2**power, 1


def _lower_bound(batches: list[RunningBatch], seed: int) -> float:
    """Mean over draws from the posterior of ln p(y | z) p(z)/q(z), averaged as the values are."""
    generator = _generator(batches, seed)
    for batch in batches:
        batch.restart(0.0, generator)
        batch.add(BOUND_DRAWS, 1)
    return float(torch.cat([batch.mean_log() for batch in batches]).double().mean())


def _exact(batches: list[RunningBatch]) -> LogLikelihood:
    """One pass: there is nothing to draw."""
    for batch in batches:
        batch.restart(1.0, _generator(batches, 0))
        batch.add(1, 1)
    result = _result(batches, [Level("exact", 1, 1, _mean(batches))], still=True)
    return replace(result, stderr=0.0, bound=result.mean, low_ess=0.0)


def _result(batches: list[RunningBatch], history: list[Level], still: bool) -> LogLikelihood:
    """Read the running sums."""
    values = torch.cat([batch.values() for batch in batches])
    stderr = low_ess = math.nan
    if history[-1].num_global > 1:
        squares = sum(float(batch.task_errors().double().square().sum()) for batch in batches)
        stderr = math.sqrt(squares) / len(values)
        low_ess = sum(int((batch.ess() < LEAST_ESS).sum()) for batch in batches) / len(values)
    last = history[-1]
    return LogLikelihood(
        values, last.mean, stderr, math.nan, last.method, last.draws, still, low_ess, tuple(history)
    )


def _mean(batches: list[RunningBatch]) -> float:
    """Mean over the values of all batches."""
    totals = [(float(values.double().sum()), len(values)) for batch in batches for values in [batch.values()]]
    return sum(total for total, _ in totals) / sum(count for _, count in totals)


def _generator(batches: list[RunningBatch], seed: int) -> torch.Generator:
    """A seeded generator where the tasks are."""
    return torch.Generator(batches[0].task.x_target.device).manual_seed(seed)


def _check_arguments(per: str, method: str, tolerance: float, max_draws: int, chunk: int) -> None:
    """Refuse arguments that allow no estimate."""
    if per not in ("point", "task", "output"):
        raise ValueError(f"per must be 'point', 'task' or 'output', got {per!r}; pass one of them")
    if method not in ("auto", "prior", "importance"):
        raise ValueError(f"method must be 'auto', 'prior' or 'importance', got {method!r}; pass one of them")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance}; 0.01 nats is usual")
    if max_draws < FIRST:
        raise ValueError(f"max_draws must be at least {FIRST}, got {max_draws}; raise it")
    at_least_one(chunk=chunk)
