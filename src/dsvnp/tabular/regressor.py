"""NPRegressor: regression with one or many outputs, in the user's units."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array
from torch import Tensor

from dsvnp.predictive import Predictive
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.columns import is_number, names_of, values_of
from dsvnp.tabular.distribution import NumberDistribution
from dsvnp.tabular.panel.panel import Panel


class NPRegressor(RegressorMixin, BaseNP):
    """A neural process for regression, sensible without tuning.

    For one table a pretrained network predicts, and nothing is trained: held-out rows choose the mixture of its views,
    ridge and a Gaussian process (`choosing`). A trained model has replicas on different folds of the rows in one
    fleet; a prediction is the mixture of them all, around a linear part. Missing outputs (NaN) do not count. A row's
    prediction does not depend on the rows asked with it. Answers are of the kind of table that was asked with: an
    array, or a frame or series of pandas or polars.

    Args:
        model: "auto" is the pretrained network for one table, and for many tables the model that predicts held-out
            tables best; or which of `dsvnp.MODELS` to train.
        refine: with "auto" and one table, train an ensemble too, and keep what held-out rows prefer.
        effort: "fast", "balanced" or "thorough": how much is read, or how many steps and members a training takes.
        n_replicas: members of a trained ensemble; None goes by the effort.
        max_steps: training steps of each, at most; None goes by the number of rows and the effort.
        learning_rate: the largest; None is the recipe's.
        width: width of trained networks; None is the recipe's.
        n_draws: latent draws of each trained replica in a prediction.
        max_context: rows that a member predicts from, at most; None is as many as the pretrained network knows, or what
            held-out rows choose. Trained models use a context of your own (`context=`, `condition`) whole.
        missing: "impute" takes missing inputs: the pretrained network knows of gaps, others read their column's median
            and where it stands in; "refuse" is an error that names them.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        output: "same" for answers of the kind of table that was asked with; "array" for arrays whatever was asked with,
            as those tools of scikit-learn want them that score by probabilities, calibrate or stack.
        random_state: an integer gives the same result each time.
        verbose: show progress.

    Attributes:
        validation_: what the held-out rows of the training table say of the fit, next to a mean predictor and ridge.
        how_it_predicts: a sentence on what was chosen.
        recipe_: the sizes and rates of the training; None without one.
        best_steps_: the step of each trained member's best validation; it has the weights of that step.
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
        found = self.predict_dist(X, context, keep=return_std or return_cov)
        if return_cov:
            return found.mean, found.covariance()
        return (found.mean, found.std) if return_std else found.mean

    def predict_dist(self, X: Any, context: Any = None, keep: bool = True) -> NumberDistribution:
        x, rows = self._question(X, context)
        settings = self._settings_of_distribution(X, x, rows, self._one_output)
        return NumberDistribution(**settings, strangeness=self._strangeness(rows[0]), keep=keep)

    def predict_quantiles(
        self, X: Any, quantiles: float | Sequence[float] = (0.05, 0.5, 0.95), context: Any = None
    ) -> Any:
        """Quantiles, [rows, quantiles] or [rows, outputs, quantiles]; in a frame a column for each of them.

        A single number is one quantile, of the shape of the mean.
        """
        return self.predict_dist(X, context, keep=False).quantile(quantiles)

    def predict_interval(self, X: Any, coverage: float = 0.9, context: Any = None) -> tuple[Any, Any]:
        """Lower and upper ends of the central interval that should hold that share of outputs."""
        return self.predict_dist(X, context, keep=False).interval(coverage)

    def ood_score(self, X: Any, context: Any = None) -> Any:
        """How far outside of what it knows a row lies, the larger the farther; only comparisons have a meaning.

        Of a trained model ln of the epistemic variance as a part of the outputs' own variance, averaged over outputs.
        Of the pretrained network that of the whole variance, and ln of the distance to the nearest context row where
        that is unusual.
        """
        found = self.predict_dist(X, context, keep=False)
        values = found.ood_score
        if found.num_functions == 1:
            warnings.warn(
                "ood_score is the same for every row: it measures how far draws and replicas differ, but one replica "
                f"of {self.model} with n_draws={self.n_draws} gives a single answer; use more n_replicas, or a model "
                "with a latent variable and more n_draws",
                UserWarning,
                stacklevel=2,
            )
        return values

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R², averaged over outputs; rows whose output is missing are left out."""
        wanted = self._outputs_of(X, y).numpy()
        (mean,) = self.predict_dist(X, None, keep=False).reduce(lambda p, _: p.mean[0])
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

    def _strangeness(self, known: Tensor) -> Callable[[Predictive, Tensor], Tensor]:
        """What scores rows that are not in a context."""
        unit = self.ensemble_.prior[1].clamp(min=1e-30)
        far = self._remoteness(known) if isinstance(self.ensemble_, Panel) else None

        def score(predictive: Predictive, x: Tensor) -> Tensor:
            variance = predictive.epistemic if far is None else predictive.variance
            score = (variance[0] / unit.square()).mean(-1).clamp(min=1e-30).log()
            return score if far is None else score + far(x)

        return score

    def _own_record(self) -> dict[str, Any]:
        return {"one_output": self._one_output}

    def _restore_own(self, record: dict[str, Any]) -> None:
        self._one_output = record["one_output"]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _floats(y: Any) -> NDArray[np.float64]:
    """A user's outputs as floats, [rows] or [rows, outputs]."""
    values = values_of(y)
    if text := _text_among(values):
        raise ValueError(
            f"y holds texts ({text!r}), but NPRegressor predicts numbers; use NPClassifier for classes, or write "
            "numbers as numbers"
        )
    array: NDArray[np.float64] = check_array(
        values,
        ensure_2d=False,
        dtype=np.float64,
        ensure_all_finite="allow-nan",
        input_name="y",
        copy=True,
    )
    if array.ndim > 2:
        raise ValueError(f"y must be [rows] or [rows, outputs], got {array.ndim} axes {array.shape}")
    return array


def _text_among(values: Any) -> str | None:
    """A text among outputs that is no number, or None."""
    array = np.asarray(values)
    if array.dtype.kind not in "OUS" or array.dtype.kind == "S":
        return None
    return next(
        (cell for cell in array.ravel().tolist() if isinstance(cell, str) and not is_number(cell)), None
    )
