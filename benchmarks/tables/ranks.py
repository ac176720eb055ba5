"""Ranks of models over tables, and when two mean ranks differ: Friedman's test and Nemenyi's critical difference.

With N tables and k models, mean ranks differ at level α if they are more than

    CD = q_α √(k (k + 1) / 6N),   q_α: the studentised range of k groups, ∞ degrees of freedom, over √2

apart (Demšar, 2006, Statistical Comparisons of Classifiers over Multiple Data Sets).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, rankdata, studentized_range

Floats = NDArray[np.float64]


def rank_rows(scores: Floats, lower_is_better: bool = True) -> Floats:
    """Ranks of the models on each table, 1 the best, ties their mean, [tables, models]."""
    return rankdata(scores if lower_is_better else -scores, axis=1)


def friedman(ranks: Floats) -> tuple[float, float]:
    """Friedman's statistic, corrected for ties, and the probability of a larger one if all models were alike."""
    num_tables, num_models = ranks.shape
    centred = ranks - (num_models + 1) / 2
    spread = (centred**2).sum()
    if spread == 0:
        return 0.0, 1.0
    statistic = (num_models - 1) * num_tables**2 * (centred.mean(0) ** 2).sum() / spread
    return float(statistic), float(chi2.sf(statistic, num_models - 1))


def critical_difference(num_models: int, num_tables: int, level: float = 0.05) -> float:
    """Nemenyi's critical difference of mean ranks."""
    q = studentized_range.ppf(1 - level, num_models, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(num_models * (num_models + 1) / (6 * num_tables)))


def cliques(mean_ranks: Floats, difference: float) -> list[tuple[int, int]]:
    """Largest runs of sorted mean ranks within the difference, as (first, last); single models are no run."""
    ordered = np.sort(mean_ranks)
    runs: list[tuple[int, int]] = []
    for first in range(len(ordered)):
        last = int(np.searchsorted(ordered, ordered[first] + difference, side="right")) - 1
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((first, last))
    return runs


def draw(axes: Any, names: list[str], mean_ranks: Floats, difference: float, title: str) -> None:
    """Draw the critical-difference diagram: models on a line of ranks, bars over those that do not differ."""
    order = np.argsort(mean_ranks, kind="stable")
    ranks, count = mean_ranks[order], len(names)
    axes.set(xlim=(0.5, count + 0.5), ylim=(-count / 2 - 1.5, 2.2), title=title)
    axes.axis("off")
    axes.plot([1, count], [0, 0], "k", lw=1)
    for tick in range(1, count + 1):
        axes.plot([tick, tick], [0, 0.15], "k", lw=1)
        axes.text(tick, 0.25, str(tick), ha="center", va="bottom", fontsize=8)
    axes.plot([1, 1 + difference], [1.4, 1.4], "k", lw=2)
    axes.text(1, 1.5, f"CD = {difference:.2f}", ha="left", va="bottom", fontsize=8)
    half = (count + 1) // 2
    for place, model in enumerate(order):
        is_left = place < half
        depth = -1 - (place if is_left else count - 1 - place)
        edge = 0.6 if is_left else count + 0.4
        axes.plot([ranks[place], ranks[place], edge], [0, depth, depth], "k", lw=0.8)
        label, side = f"{names[model]} ({ranks[place]:.2f})", "left" if is_left else "right"
        axes.text(edge, depth + 0.05, label, ha=side, va="bottom", fontsize=8)
    for level, (first, last) in enumerate(cliques(mean_ranks, difference)):
        height = -0.15 - 0.15 * level
        axes.plot([ranks[first] - 0.03, ranks[last] + 0.03], [height, height], "k", lw=3)
