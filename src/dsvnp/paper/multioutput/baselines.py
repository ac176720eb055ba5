"""Baselines that a practitioner would use on a table, on the same splits: ridge, 5-NN, extra-trees; the GP is apart.

Each learns from the rows that the neural processes learn from. They predict a mean; σ is, as under a squared-error
likelihood, the root mean square of the residuals on the held-out rows.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from torch import Tensor

from dsvnp.naming import lookup
from dsvnp.paper.multioutput.folds import Split
from dsvnp.paper.multioutput.measures import SplitScores, measure_gaussians, residual_scale

REGRESSORS: dict[str, Callable[[int, int], Any]] = {
    # Its α is chosen by leave-one-out on the rows it is fitted to.
    "ridge": lambda num_trees, n_jobs: RidgeCV(np.logspace(-2, 4, 13)),
    "5-nn": lambda num_trees, n_jobs: KNeighborsRegressor(5, n_jobs=n_jobs),
    "extra-trees": lambda num_trees, n_jobs: ExtraTreesRegressor(num_trees, n_jobs=n_jobs, random_state=0),
}


def measure_baseline(name: str, splits: Sequence[Split], num_trees: int, n_jobs: int) -> list[SplitScores]:
    """Fit and measure one of `REGRESSORS` on each split."""
    make = lookup(name, REGRESSORS, "baseline")
    return [_measure_regressor(make(num_trees, n_jobs), split) for split in splits]


def _measure_regressor(regressor: Any, split: Split) -> SplitScores:
    """Fit to the training rows, take σ from the held-out rows, and measure."""
    regressor.fit(*(part.double().cpu().numpy() for part in split.train))

    def mean(x: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(regressor.predict(x.double().cpu().numpy()))).to(x)

    sigma = residual_scale(mean(split.held_out.x), split.held_out.y)
    return measure_gaussians(split, (mean(split.test.x), sigma), (mean(split.train.x), sigma))
