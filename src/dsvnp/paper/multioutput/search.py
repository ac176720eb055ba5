"""The choice of a target's context, on training rows alone, by leave-one-out nearest neighbours.

A metric starts as random weights of the inputs, one of the best of many, and is improved by random changes that are
kept where they help. Different metrics see different neighbours, which is what makes their average better than any of
them; the size of contexts is therefore the one that is best for an average.
"""

from itertools import cycle, islice
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.paper.multioutput.folds import Rows
from dsvnp.sources.neighbours import nearest_rows, smooth_weights

SIZES = (3, 4, 6, 8, 12, 16, 24)  # of contexts
AVERAGED = 8  # metrics for whose average the size is chosen
CANDIDATES = 8  # metrics that are tried for each that is kept
CHANGE = 0.5  # spread of the logarithm of a random change
MOST_ROWS = 2000  # whose errors are looked at


class ContextSearch(NamedTuple):
    """Settings of the search for contexts."""

    num_metrics: int  # metrics to find
    num_rounds: int  # random changes tried on each
    spreads: tuple[float, ...]  # of the logarithms of random weights; metrics of narrow ones are alike
    # of sizes whose errors differ by less than this share, the largest is taken: the smoothest
    as_good: float


class Contexts(NamedTuple):
    """Size of the contexts, and metrics [metrics, dim_x]."""

    num_context: int
    metrics: Tensor


def choose_contexts(rows: Rows, search: ContextSearch, seed: int) -> Contexts:
    """Choose the size of contexts for an average over random metrics, then metrics for that size."""
    generator = torch.Generator().manual_seed(seed)
    dim_x = rows.x.shape[1]
    asked = torch.randperm(len(rows.x), generator=generator)[:MOST_ROWS].to(rows.x.device)

    def change(spread: float) -> Tensor:
        return (spread * torch.randn(dim_x, generator=generator)).exp().to(rows.x.device)

    def error(size: int, *metrics: Tensor) -> float:
        means = torch.stack([leave_one_out(rows, asked, metric, size) for metric in metrics])
        return float((means.mean(0) - rows.y[asked]).square().mean())

    spreads = islice(cycle(search.spreads), CANDIDATES * search.num_metrics)
    tried = [change(spread) for spread in spreads]
    by_size = {size: error(size, *tried[:AVERAGED]) for size in SIZES if size < len(rows.x) // 2}
    enough = (1 + search.as_good) * min(by_size.values())
    size = max(size for size, value in by_size.items() if value <= enough)
    ranked = sorted((error(size, metric), i) for i, metric in enumerate(tried))
    kept = [(value, tried[i]) for value, i in ranked[: search.num_metrics]]
    for _ in range(search.num_rounds):
        for i, (value, metric) in enumerate(kept):
            other = metric * change(CHANGE)
            if (other_value := error(size, other)) < value:
                kept[i] = (other_value, other)
    metrics = torch.stack([metric for _, metric in kept])
    return Contexts(size, metrics / metrics.square().mean(1, keepdim=True).sqrt())


def leave_one_out(rows: Rows, asked: Tensor, metric: Tensor, size: int) -> Tensor:
    """The smooth mean over each asked row's neighbours, itself not among them, [asked, dim_y]."""
    queries = rows.x[asked]
    index = nearest_rows(queries, rows.x, metric, size + 1, itself=True)
    others = index != asked[:, None]
    distance = ((rows.x[index] - queries[:, None]) * metric).square().sum(-1).sqrt()
    return (smooth_weights(distance, others).unsqueeze(-1) * rows.y[index]).sum(1)
