"""NPClassifier: classification, with probabilities that mean what they say."""

from collections.abc import Callable, Sequence
from inspect import signature
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import _safe_indexing, assert_all_finite, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from dsvnp.predictive import Predictive
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.columns import is_missing, names_of, values_of
from dsvnp.tabular.distribution import ClassDistribution
from dsvnp.tabular.rows.reading import check_lengths
from dsvnp.tabular.trained.recipe import AUTO


class NPClassifier(ClassifierMixin, BaseNP):
    """A neural process for classification, sensible without tuning.

    For one table a pretrained network predicts, and nothing is trained; probabilities are those of a mixture with
    logistic regression and normal distributions of the classes, which held-out rows weigh, with a temperature that
    suits them. Rows without a label (None or NaN) do not count. The settings are those of `NPRegressor`, and one more.

    Args:
        class_weight: label → how much each of its rows counts in `fit`, not in `fit_tasks`; "balanced" makes classes
            count alike. Probabilities are then those of a population in which labels are as frequent as that.

    Attributes:
        classes_: the labels, sorted.
        validation_: what the held-out rows of the training table say of the fit, next to the shares of the classes.
        recipe_: the sizes and rates of the training; None without one.
    """

    kind: ClassVar[str] = "classifier"

    def __init__(
        self,
        model: str = AUTO,
        *,
        class_weight: Any = None,
        refine: bool = False,
        effort: str = "balanced",
        n_replicas: int | None = None,
        max_steps: int | None = None,
        learning_rate: float | None = None,
        width: int | None = None,
        n_draws: int = 8,
        max_context: int | None = None,
        missing: str = "impute",
        device: str = "auto",
        output: str = "same",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        # scikit-learn reads the settings off this signature; all but one are the base's.
        own = {name: value for name, value in locals().items() if name in signature(BaseNP).parameters}
        super().__init__(**own)
        self.class_weight = class_weight

    def predict(self, X: Any, context: Any = None) -> Any:
        """The most probable label of each row."""
        return self.predict_dist(X, context, keep=False).mode

    def predict_proba(self, X: Any, context: Any = None) -> Any:
        """Probability of each class, [rows, classes]."""
        return self.predict_dist(X, context, keep=False).mean

    def predict_log_proba(self, X: Any, context: Any = None) -> Any:
        """Logarithms of the probabilities."""
        found = self.predict_dist(X, context, keep=False)
        (logs,) = found.reduce(lambda p, _: p.mean[0].clamp(min=1e-300).log())
        return found.named(logs, [str(label) for label in self.classes_])

    def predict_dist(self, X: Any, context: Any = None, keep: bool = True) -> ClassDistribution:
        x, rows = self._question(X, context)
        settings = self._settings_of_distribution(X, x, rows, one=True)
        return ClassDistribution(self.classes_, **settings, strangeness=self._strangeness(rows[0]), keep=keep)

    def ood_score(self, X: Any, context: Any = None) -> Any:
        """How far outside of what it knows a row lies, the larger the farther; only comparisons have a meaning.

        The entropy of the predicted class (Sec. 4.4), and the distance to the nearest context row where that is
        unusual: far from all it has seen, a network is sure of itself for no reason.
        """
        return self.predict_dist(X, context, keep=False).ood_score

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; rows without a label are left out."""
        check_lengths(X, y)
        labels = column_or_1d(values_of(y))
        known = np.flatnonzero(~_missing(labels))
        if len(known) < len(labels):
            X = _safe_indexing(X, known)
            sample_weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return super().score(X, _as_themselves(labels[known]), sample_weight)

    # --- inside ---

    @property
    def _dim_y(self) -> int:
        return len(self.classes_)

    def _class_weights(self, y: Tensor) -> NDArray[np.float64] | None:
        if self.class_weight is None:
            return None
        weights = np.asarray(compute_sample_weight(self.class_weight, self.classes_[y[:, 0].numpy()]))
        if not (weights > 0).all():
            raise ValueError(
                f"class_weight must be positive, got {self.class_weight}; leave out rows by sample_weight"
            )
        return weights

    def _labels(self) -> Sequence[Any]:
        return self.classes_.tolist()

    def _read_outputs(self, y: Any, reset: bool) -> Tensor:
        """Class indices [rows, 1]; −1 where the label is missing."""
        labels = column_or_1d(values_of(y), warn=True)
        assert_all_finite(labels, allow_nan=True, input_name="y")
        missing = _missing(labels)
        if missing.any():
            labels = np.array(
                [0 if gone else v for gone, v in zip(missing, labels.tolist(), strict=True)], labels.dtype
            )
        known = _as_themselves(labels[~missing])
        if reset:
            check_classification_targets(known)
            self._set_classes(known, y)
        index = np.searchsorted(
            self.classes_, np.where(missing, self.classes_[0], labels).astype(self.classes_.dtype)
        )
        index = index.clip(max=len(self.classes_) - 1)
        strange = ~missing & (self.classes_[index] != labels)
        if strange.any():
            raise ValueError(
                f"label {labels[strange][0]!r} was not there in training; known: {', '.join(map(str, self.classes_))}"
            )
        return torch.from_numpy(np.where(missing, -1, index).astype(np.int64))[:, None]

    def _set_classes(self, labels: NDArray[Any], y: Any) -> None:
        """Keep the classes; one alone is nothing to tell apart."""
        self.classes_ = np.unique(labels)
        self.target_names_ = names_of(y, 1)
        if len(self.classes_) < 2:
            raise ValueError(
                f"expected labels of at least 2 classes, got {len(self.classes_)} class in {len(labels)} rows; "
                "there is nothing to tell apart"
            )

    def _learn_outputs(self, outputs: Sequence[Any]) -> None:
        labels = np.concatenate([np.asarray(values_of(y)) for y in outputs])
        self._read_outputs(labels, reset=True)
        self.target_names_ = names_of(outputs[0], 1)

    def _strangeness(self, known: Tensor) -> Callable[[Predictive, Tensor], Tensor]:
        """What scores rows that are not in a context."""
        far = self._remoteness(known)
        return lambda predictive, x: predictive.entropy()[0] + far(x)

    def _own_record(self) -> dict[str, Any]:
        weight = self.class_weight
        if isinstance(weight, dict):
            weight = [float(weight.get(label, 1)) for label in self.classes_.tolist()]
        return {
            "classes": self.classes_.tolist(),
            "classes_dtype": self.classes_.dtype.str,
            "class_weight": weight,
        }

    def _restore_own(self, record: dict[str, Any]) -> None:
        self.classes_ = np.array(record["classes"], dtype=np.dtype(record["classes_dtype"]))
        weight = record.get("class_weight")
        self.class_weight = (
            dict(zip(self.classes_.tolist(), weight, strict=True)) if isinstance(weight, list) else weight
        )


def _as_themselves(labels: NDArray[Any]) -> NDArray[Any]:
    """Numbers and truth values that were objects for the sake of a missing one; texts stay what they are."""
    numbers = labels.dtype.kind == "O" and all(isinstance(label, Real | np.bool_) for label in labels)
    return np.array(labels.tolist()) if numbers else labels


def _missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels are None or NaN, or what pandas puts in their place."""
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind != "O":
        return np.zeros(len(labels), dtype=bool)
    return np.array([is_missing(label) for label in labels.tolist()], dtype=bool)
