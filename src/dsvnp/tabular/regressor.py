"""NPRegressor: regression with one or many outputs, in the user's units."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array
from torch import Tensor

from dsvnp.predictive import GaussianPredictive, Predictive
from dsvnp.tabular.base import BaseNP, Uncertainty
from dsvnp.tabular.columns import kind_of, names_of, values_of


class NPRegressor(RegressorMixin, BaseNP):
    """A neural process for regression, sensible without tuning.

    Replicas are trained on different folds of the rows in one fleet; a prediction is the mixture of them all, around a
    linear part. Missing outputs (NaN) do not count. A row's prediction does not depend on the rows asked with it.
    Answers are of the kind of table that was asked with: an array, or a frame or series of pandas or polars.

    Args:
        model: which of `dsvnp.MODELS`.
        n_replicas: members of the ensemble.
        max_steps: training steps of each, at most; None chooses for the number of rows.
        learning_rate: the largest; None is the recipe's.
        width: width of the networks; None is the recipe's.
        n_draws: latent draws of each replica in a prediction.
        max_context: rows of the fit that a prediction is made from, at most; None lets held-out rows choose. A context
            of your own (`context=`, `condition`) is used whole.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        output: "same" for answers of the kind of table that was asked with; "array" for arrays whatever was asked with,
            as those tools of scikit-learn want them that score by probabilities, calibrate or stack.
        random_state: an integer gives the same result each time.
        verbose: show progress.

    Attributes:
        validation_: what the held-out rows of the training table say of the fit, beside a mean predictor and ridge.
        recipe_: the sizes and rates that were used.
        target_names_: names of the outputs.
    """

    kind: ClassVar[str] = "regressor"

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, context: Any = None) -> Any:
        """Mean of the prediction, [rows] or [rows, outputs].

        Args:
            X: inputs.
            return_std: return the standard deviation as well, of the same shape.
            return_cov: return the covariance between rows instead, [rows, rows] or [rows, rows, outputs].
            context: a pair (X, y) to predict from in place of the rows of the fit.
        """
        if return_std and return_cov:
            raise ValueError("ask for the standard deviation or for the covariance, not for both")
        if return_cov:
            return self._predict_cov(X, context)
        mean, variance = self._ask(X, lambda p, _: (p.mean[0], p.variance[0]), context)
        if return_std:
            return self._answer(mean, X), self._answer(np.sqrt(variance), X)
        return self._answer(mean, X)

    def predict_quantiles(
        self, X: Any, quantiles: float | Sequence[float] = (0.05, 0.5, 0.95), context: Any = None
    ) -> Any:
        """Quantiles, [rows, quantiles] or [rows, outputs, quantiles]; in a frame a column for each of them.

        A single number is one quantile, of the shape of the mean.
        """
        single = np.ndim(quantiles) == 0
        levels = np.atleast_1d(np.asarray(quantiles, dtype=float)).tolist()
        (values,) = self._ask(X, lambda p, _: _gaussian(p).quantile(levels)[:, 0].permute(1, 2, 0), context)
        if single:
            return self._answer(values[..., 0], X)
        names = [f"{name}_q{level:g}" for name in self.target_names_ for level in levels]
        if kind_of(X) in ("pandas", "polars"):
            return self._as_asked(values.reshape(len(values), -1), X, names)
        return values[:, 0] if self._one_output else values

    def predict_interval(self, X: Any, coverage: float = 0.9, context: Any = None) -> tuple[Any, Any]:
        """Lower and upper ends of the central interval that should hold that share of outputs."""
        if not 0 < coverage < 1:
            raise ValueError(
                f"coverage must lie strictly between 0 and 1, got {coverage}; 0.9 is the 90 % interval"
            )
        ends = [(1 - coverage) / 2, (1 + coverage) / 2]
        low, high = self._ask(X, lambda p, _: tuple(_gaussian(p).quantile(ends)[:, 0]), context)
        return self._answer(low, X), self._answer(high, X)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, context: Any = None
    ) -> NDArray[Any]:
        """Functions with their noise, [rows, samples] or [rows, outputs, samples]; each draw keeps one z_G."""
        from dsvnp.tabular.drawing import sample

        values = sample(self, X, n_samples, random_state, context)
        return values[:, 0] if self._one_output else values

    def uncertainty(self, X: Any, context: Any = None) -> Uncertainty:
        """Variances due to noise and due to not knowing the function; they add up to the prediction's variance."""
        parts = self._ask(X, lambda p, _: (p.aleatoric[0], p.epistemic[0]), context)
        return Uncertainty(*(self._answer(part, X) for part in parts))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R², averaged over outputs; rows whose output is missing are left out."""
        wanted = self._outputs_of(X, y).numpy()
        mean = self._ask(X, lambda p, _: p.mean[0])[0]
        weights = np.ones(len(mean)) if sample_weight is None else np.asarray(sample_weight)
        known = ~np.isnan(wanted)
        each = [
            r2_score(wanted[rows, i], mean[rows, i], sample_weight=weights[rows])
            for i, rows in enumerate(known.T)
            if rows.any()
        ]
        return float(np.mean(each))

    # --- inside ---

    @property
    def _dim_y(self) -> int:
        return len(self.target_names_)

    def _read_outputs(self, y: Any, reset: bool) -> Tensor:
        """Outputs as floats [rows, D], NaN where missing."""
        if reset:
            self._learn_outputs([y])
        array = _floats(y)
        array = array.reshape(len(array), -1)
        if array.shape[1] != self._dim_y:
            raise ValueError(
                f"y has {array.shape[1]} outputs but the fit had {self._dim_y}; pass the same ones"
            )
        return torch.from_numpy(array)

    def _learn_outputs(self, outputs: Sequence[Any]) -> None:
        first = _floats(outputs[0])
        self._one_output = first.ndim == 1
        self.target_names_ = names_of(outputs[0], first.reshape(len(first), -1).shape[1])
        missing = torch.cat([torch.isnan(self._read_outputs(y, reset=False)) for y in outputs])
        if missing.all(0).any():
            empty = int(missing.all(0).int().argmax())
            raise ValueError(f"output {empty} has no known value; leave it out of y")

    def _answer(self, values: NDArray[Any], like: Any) -> Any:
        """[rows, outputs] as the fit's y was, and as the kind of table that was asked with."""
        return self._as_asked(values[:, 0] if self._one_output else values, like, self.target_names_)

    def _predict_cov(self, X: Any, context: Any) -> tuple[Any, NDArray[Any]]:
        """Mean, and covariance between rows: that of functions, with each row's own variance on the diagonal."""
        from dsvnp.tabular.drawing import covariance

        mean, variance = self._ask(X, lambda p, _: (p.mean[0], p.variance[0]), context)
        cov = covariance(self, X, variance, context)
        return self._answer(mean, X), cov[..., 0] if self._one_output else cov

    def _ood(self, predictive: Predictive, rows: slice) -> Tensor:
        """ln of the epistemic variance as a part of the outputs' own variance, averaged over outputs."""
        if predictive.shape[0] == 1 and rows.start == 0:
            warnings.warn(
                "ood_score is the same for every row: it measures how far draws and replicas differ, but one replica "
                f"of {self.model} with n_draws={self.n_draws} gives a single answer; use more n_replicas, or a model "
                "with a latent variable and more n_draws",
                UserWarning,
                stacklevel=5,  # at the caller of `ood_score`
            )
        unit = self.ensemble_.prior[1].clamp(min=1e-30)
        return (predictive.epistemic[0] / unit.square()).mean(-1).clamp(min=1e-30).log()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _floats(y: Any) -> NDArray[np.float64]:
    """A user's outputs as floats, [rows] or [rows, outputs]."""
    array: NDArray[np.float64] = check_array(
        values_of(y),
        ensure_2d=False,
        dtype=np.float64,
        ensure_all_finite="allow-nan",
        input_name="y",
        copy=True,
    )
    if array.ndim > 2:
        raise ValueError(f"y must be [rows] or [rows, outputs], got {array.ndim} axes {array.shape}")
    return array


def _gaussian(predictive: Predictive) -> GaussianPredictive:
    assert isinstance(predictive, GaussianPredictive)
    return predictive
