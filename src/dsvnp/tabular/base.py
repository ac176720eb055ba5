"""What the regressor and the classifier share: settings, training, context, and answers out.

Fitted attributes end in an underscore, as scikit-learn has it. A prediction asks all replicas about some rows at a
time, so that memory does not grow with the table.
"""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dsvnp.devices import one_thread, pick_device
from dsvnp.models import MODELS
from dsvnp.naming import lookup
from dsvnp.predictive import Predictive
from dsvnp.sources.table import Pair, known_rows
from dsvnp.tabular.checks import check_known, check_lengths, pair_of, pairs_of, useful
from dsvnp.tabular.columns import answer
from dsvnp.tabular.fitting import Part, fit_ensemble, parts_of_table, parts_of_tables
from dsvnp.tabular.reading import RowReader
from dsvnp.tabular.recipe import Recipe, recipe_for
from dsvnp.training import Reporter

CHUNK = 2000  # rows that are predicted at once
FEW_ROWS = 10  # of which a fit says that they are few
OUTPUTS = {"same": True, "array": False}
Floats = NDArray[np.float64]


class Uncertainty(NamedTuple):
    """The two parts of a prediction's uncertainty.

    Attributes:
        aleatoric: what is left when the function (z_G, and which replica is right) is known: noise, z_* included.
        epistemic: what is due to not knowing it: more data would lower it.
    """

    aleatoric: Any
    epistemic: Any


class BaseNP(RowReader, ABC):
    """A neural process behind scikit-learn's interface; see the two kinds for the settings."""

    kind: ClassVar[str]
    target_names_: tuple[str, ...]

    def __init__(
        self,
        model: str = "dsvnp",
        *,
        n_replicas: int = 5,
        max_steps: int | None = None,
        learning_rate: float | None = None,
        width: int | None = None,
        n_draws: int = 16,
        max_context: int | None = None,
        device: str = "auto",
        output: str = "same",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.n_replicas = n_replicas
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.width = width
        self.n_draws = n_draws
        self.max_context = max_context
        self.device = device
        self.output = output
        self.random_state = random_state
        self.verbose = verbose

    @property
    @abstractmethod
    def _dim_y(self) -> int:
        """Number of outputs or classes."""

    # --- fitting ---

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to one table; tasks are random parts of its rows.

        Args:
            X: inputs, [rows, features]; an array, or a data frame of pandas or polars, whose texts are categories.
            y: outputs; missing ones do not count.
        """
        x, y = self._read_pair(X, y, reset=True)
        if len(x) < 2:
            raise ValueError(
                f"expected at least 2 rows with a known output, got n_samples={len(x)}; a row must be left to learn by"
            )
        if len(x) < FEW_ROWS:
            warnings.warn(
                f"{len(x)} rows are few to learn from; what is said of rows held out, and intervals, mean little",
                UserWarning,
                stacklevel=2,
            )
        seed = self._start()
        parts = parts_of_table(x, y, self.n_replicas, seed)
        self._train(parts, seed, one_table=True)
        chosen = np.random.default_rng(seed).permutation(len(x))[: self.ensemble_.num_context]
        self.context_ = x[chosen], y[chosen]
        return self

    def fit_tasks(self, tasks: Iterable[tuple[Any, Any]]) -> Self:
        """Fit to many related small tables; then predict for a new one from a few of its rows, `context=`.

        Args:
            tasks: pairs (X, y), all with the same columns; the numbers of rows may differ.
        """
        pairs = pairs_of(tasks)
        self._learn_columns(pairs)
        tables = useful([self._read_pair(X, y, reset=False) for X, y in pairs])
        seed = self._start()
        self._train(parts_of_tables(tables, self.n_replicas, seed), seed, one_table=False)
        self.context_ = tables[0][0][:0], tables[0][1][:0]
        self._told_of_no_context = False
        return self

    def condition(self, X: Any, y: Any) -> Self:
        """Return an estimator that predicts from these context rows instead, without any training.

        After `fit_tasks` this is how a new task is told; after `fit` on one table, whose tasks are all parts of the
        same function, it changes little.
        """
        check_is_fitted(self)
        other = copy.copy(self)
        other.context_ = self._read_pair(X, y, reset=False)
        return other

    def _start(self) -> int:
        """Check the settings and draw the seed of everything that is random."""
        lookup(self.model, MODELS, "model")
        lookup(self.output, OUTPUTS, "output")
        for name in ("n_replicas", "n_draws", "max_steps", "width", "max_context"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | np.integer) or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate!r}")
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _train(self, parts: Sequence[Part], seed: int, one_table: bool) -> None:
        """Train the replicas and keep them."""
        check_known(parts, self.target_names_)
        rows = sum(len(x) for x, _ in parts[0].tables)
        changes = {
            "model": self.model,
            "num_steps": self.max_steps,
            "learning_rate": self.learning_rate,
            "width": self.width,
        }
        self.recipe_: Recipe = recipe_for(rows, one_table, changes)
        reporter = Reporter(type(self).__name__, self.recipe_.num_steps, quiet=not self.verbose)
        with one_thread():
            self.ensemble_, self.validation_ = fit_ensemble(
                parts,
                self.recipe_,
                self._dim_y,
                seed,
                pick_device(self.device),
                one_table,
                self.max_context,
                reporter,
            )
        self.noise_seed_ = seed

    # --- answers out ---

    def _ask(
        self, X: Any, reduce: Callable[[Predictive, slice], Tensor | tuple[Tensor, ...]], context: Any = None
    ) -> list[NDArray[Any]]:
        """Predict a user's rows and keep what `reduce` makes of each part, rows first."""
        return self._answers(*self._question(X, context), reduce)

    def _answers(
        self, x: Tensor, rows: Pair, reduce: Callable[[Predictive, slice], Tensor | tuple[Tensor, ...]]
    ) -> list[NDArray[Any]]:
        """Predict rows x from context rows, some at a time."""
        parts = []
        for start in range(0, len(x), CHUNK):
            here = slice(start, min(start + CHUNK, len(x)))
            predictive = self.ensemble_.predict(rows, x[here], self.n_draws, self.noise_seed_)
            made = reduce(predictive, here)
            parts.append(made if isinstance(made, tuple) else (made,))
        return [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]

    def _question(self, X: Any, context: Any) -> tuple[Tensor, Pair]:
        """Rows that are asked for, and the context to answer from."""
        check_is_fitted(self)
        x = self._read_inputs(X, reset=False)
        rows = (
            self.context_ if context is None else self._read_pair(*pair_of(context, "context"), reset=False)
        )
        if not len(rows[0]) and not getattr(self, "_told_of_no_context", False):
            self._told_of_no_context = True  # once: whoever wants the prior need not be told again
            warnings.warn(
                "there is no context, so that this answer is for any task rather than for yours; pass some rows of "
                "the task as context=(X, y), or use the estimator that condition(X, y) returns",
                UserWarning,
                stacklevel=4,
            )
        return x, rows

    def log_prob(self, X: Any, y: Any, context: Any = None) -> Any:
        """Log-density of a row's known outputs together, in the user's units, or log-probability of its label.

        Returns:
            One value per row; NaN where no output is known.
        """
        outputs = self._outputs_of(X, y)
        known = known_rows(outputs)
        filled = outputs if outputs.is_floating_point() else outputs.clamp(min=0)  # −1 is no class

        def score(predictive: Predictive, rows: slice) -> Tensor:
            device = self.ensemble_.device
            log_prob = predictive.log_prob(filled[None, rows].to(device))[0]
            return torch.where(known[rows].to(device), log_prob, torch.nan)

        (values,) = self._ask(X, score, context)
        return self._as_asked(values, X, ["log_prob"])

    def _as_asked(self, values: NDArray[Any], X: Any, names: Sequence[str]) -> Any:
        """Answers as the kind of table that X is, or as an array where `output` says so."""
        return answer(values, X, names) if OUTPUTS[self.output] else values

    def _outputs_of(self, X: Any, y: Any) -> Tensor:
        """What is known of rows that a fitted estimator is asked about."""
        check_is_fitted(self)
        outputs = self._read_outputs(y, reset=False)
        check_lengths(X, outputs)
        return outputs

    def ood_score(self, X: Any, context: Any = None) -> Any:
        """How far outside of what it knows a row lies, the larger the farther; only comparisons have a meaning."""
        (score,) = self._ask(X, self._ood, context)
        return self._as_asked(score, X, ["ood_score"])

    @abstractmethod
    def _ood(self, predictive: Predictive, rows: slice) -> Tensor:
        """Scores of a part of the rows."""

    def save(self, path: str | Path) -> Path:
        """Write the fitted estimator into a folder: tensors as safetensors, the rest as JSON, no pickle."""
        from dsvnp.tabular.saving import save

        check_is_fitted(self)
        return save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """Read what `save` wrote."""
        from dsvnp.tabular.saving import load

        made = load(Path(path), device)
        if not isinstance(made, cls):
            raise ValueError(f"{path} holds a {type(made).__name__}, not a {cls.__name__}; load it as such")
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ensemble_")
