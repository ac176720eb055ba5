"""Seating: what held-out rows say of views and of their mixture.

A view gets seats in proportion to its weight in the mixture under which held-out rows are the most likely; the mixture
is then stretched by a factor that these rows prefer.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dsvnp.predictive import Predictive
from dsvnp.tabular.panel.panel import stretch_all
from dsvnp.tabular.trained.correcting import STRETCHES, toll

PSEUDO_ROWS = 2.0  # of the weights of views beforehand: equal ones for numbers
# For classes they are softmax(ln p of the held-out labels / 5). Few labels are uncertain, and few thus decide; a view
# that gives all of them more probability is believed sooner than a mixture that suits those few.
PSEUDO_LABELS, TEMPERING = 20.0, 5.0
WITHIN = 2.0  # in place of 5 among settings of one model, which are too alike for a mixture
CLASS_TOLL = 4.0  # times the toll of numbers: a few labels that are all right prove no certainty
LEAST = -1e6  # ln p of a view that gets no seat


def give_seats(
    scores: Tensor,
    number: int,
    costly: Sequence[bool],
    most: int,
    families: Sequence[Sequence[int]] | None = None,
) -> list[int]:
    """Distribute seats by the weights of the mixture of views under which held-out rows are the most likely.

    Args:
        scores: ln p of held-out rows under each view, [V, N].
        number: of seats.
        costly: which views the network must read for.
        most: number of different views among those; the others with the least weight go.
        families: for classes, the views that are one model with different settings, see `label_weights`.
    """

    def weigh(scores: Tensor) -> Tensor:
        return mixture_weights(scores) if families is None else label_weights(scores, families)

    weights = weigh(scores)
    dear = torch.tensor(costly, device=scores.device)
    if int(dear.sum()) > most:
        kept = torch.where(dear, weights, -1.0).topk(most).indices
        out = dear & ~torch.isin(torch.arange(len(scores), device=scores.device), kept)
        weights = weigh(torch.where(out[:, None], LEAST, scores))
    share = number * weights
    seats = share.floor()
    rest = (share - seats).topk(number - int(seats.sum())).indices
    seats[rest] += 1
    return [view for view, count in enumerate(seats.tolist()) for _ in range(int(count))]


def mixture_weights(scores: Tensor, before: Tensor | None = None, steps: int = 100) -> Tensor:
    """Weights [V] of the mixture that makes rows with ln p [V, N] the most likely, by EM.

    Weights beforehand count as so many more rows, `PSEUDO_ROWS` in all if none are given: few rows decide little.
    """
    weights = torch.full_like(scores[:, 0], 1 / len(scores))
    before = PSEUDO_ROWS * weights if before is None else before
    for _ in range(steps):
        held = (scores + weights.log()[:, None]).softmax(0).sum(1) + before
        weights = held / held.sum()
    return weights


def label_weights(scores: Tensor, families: Sequence[Sequence[int]]) -> Tensor:
    """Weights [V] of views that give held-out labels ln p [V, N]: of families first, then within each."""
    within = [(scores[family].sum(1) / WITHIN).softmax(0) for family in families]
    each = torch.stack(
        [(scores[f] + w.log()[:, None]).logsumexp(0) for f, w in zip(families, within, strict=True)]
    )
    shares = mixture_weights(each, PSEUDO_LABELS * (each.sum(1) / TEMPERING).softmax(0))
    weights = torch.zeros_like(scores[:, 0])
    for family, inside, share in zip(families, within, shares, strict=True):
        weights[family] = share * inside
    return weights


def fit_stretch(mixture: Predictive, y: Tensor) -> Tensor:
    """The factor of each output, or of the classes, under which held-out rows are the most likely, [D].

    Every fifth factor is tried first, and then those around the best.
    """
    price = 1.0 if y.is_floating_point() else CLASS_TOLL
    factors = STRETCHES.to(y.device)
    tolls = price * torch.tensor([toll(factor) for factor in STRETCHES.tolist()], device=y.device)

    def best(places: Tensor) -> Tensor:
        """The best of places [P, D], [D]."""
        costs = [
            tolls[each] - stretch_all(mixture, factors[each]).log_prob_each(y[None])[0].sum(0)
            for each in places
        ]
        return places.gather(0, torch.stack(costs).argmin(0, keepdim=True))[0]

    outputs = mixture.shape[-1] if y.is_floating_point() else 1
    around = torch.arange(-4, 5, device=y.device)[:, None]
    coarse = best(torch.arange(0, len(factors), 5, device=y.device)[:, None].expand(-1, outputs))
    return factors[best((coarse + around).clamp(0, len(factors) - 1))]
