"""Correcting: what rows that a replica has not seen say of its means and of its spread.

Networks of a small table trust what they learned too much. A handful of numbers for all replicas together, fitted to
the rows that each held out, corrects most of it.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.predictive import GaussianPredictive, Predictive
from dsvnp.tabular.rows.scaling import ClassScaling, OutputScaling, stretched

STRETCHES = torch.linspace(-3, 2, 51, dtype=torch.float64).exp()
TRUSTS = (0.0, 0.25, 0.5, 0.75, 1.0)
POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_ROWS = 1000  # of each fold: more would change the second digit of nothing


class Answer(NamedTuple):
    """A replica's prediction of rows x that it had not seen."""

    predictive: Predictive  # the prediction, [K, S, 1, T, D]
    outputs: OutputScaling | ClassScaling  # the replica's scaling of y
    linear: Tensor  # its linear part for these rows, [T, D]: ridge, or the log-odds of logistic regression
    y: Tensor  # what came out, [T, D]


def fit_damping(answers: Sequence[Answer]) -> dict[str, Tensor]:
    """How much of the residuals to believe, 0 to 1 for each output: least squares, [D]."""
    both = []
    for answer in answers:
        true = answer.y - answer.linear
        predicted = torch.where(torch.isnan(true), 0.0, answer.predictive.mean[0] - answer.linear)
        both.append(((predicted * true).nansum(0), predicted.square().sum(0)))
    products, squares = (torch.stack(column).sum(0) for column in zip(*both, strict=True))
    return {"damping": torch.where(squares > 0, products / squares, 1.0).clamp(0, 1)}


def fit_spread(answers: Sequence[Answer]) -> dict[str, Tensor]:
    """The stretch and the power of σ for each output that give the held-out rows the most probability, [D] each."""
    grid = [(power, stretch) for power, stretch in product(POWERS, STRETCHES.tolist())]
    rows = [_residuals(answer) for answer in answers]
    costs = []
    for power, stretch in grid:
        each = [
            -stretched(p, stretch * p.scale.pow(power - 1)).log_prob_each(y[None])[0].sum(0) for p, y in rows
        ]
        costs.append(torch.stack(each).sum(0) + toll(stretch))
    best = torch.stack(costs).argmin(0).cpu()  # [D]
    chosen = torch.tensor(grid, dtype=torch.float64)[best].to(answers[0].y.device)
    return {"power": chosen[:, 0], "stretch": chosen[:, 1]}


def fit_pool(answers: Sequence[Answer]) -> dict[str, Tensor]:
    """The temperature and the trust in logistic regression that give the held-out labels the most probability."""
    like = torch.ones(1, dtype=torch.float64, device=answers[0].y.device)
    trusts = TRUSTS if answers[0].linear.shape[-1] else TRUSTS[:1]
    grid = list(product(STRETCHES.tolist(), trusts))
    costs = []
    for temperature, trust in grid:
        scaling = ClassScaling(temperature * like, trust=trust * like)
        each = [-scaling.pooled(a.predictive, a.linear).log_prob(a.y[None]).sum() for a in answers]
        costs.append(torch.stack(each).sum() + toll(1 / temperature + trust))
    temperature, trust = grid[int(torch.stack(costs).argmin())]
    return {"temperature": temperature * like, "trust": trust * like}


CORRECTIONS: dict[type, tuple[Callable[[Sequence[Answer]], dict[str, Tensor]], ...]] = {
    OutputScaling: (fit_damping, fit_spread),
    ClassScaling: (fit_pool,),
}


def toll(stretch: float) -> float:
    """What a factor far from 1 has to earn, in nats: much for a few rows, nothing for many."""
    return 2 * torch.tensor(stretch).log().square().item()


def _residuals(answer: Answer) -> tuple[GaussianPredictive, Tensor]:
    """A prediction and its outputs in units of the residual, of some rows."""
    outputs, some = answer.outputs, slice(MOST_ROWS)
    assert isinstance(outputs, OutputScaling)
    part = answer.predictive.map(lambda array: array[..., some, :])
    assert isinstance(part, GaussianPredictive)
    linear = answer.linear[some]
    return part.affine(-linear / outputs.scale, 1 / outputs.scale), (answer.y[some] - linear) / outputs.scale
