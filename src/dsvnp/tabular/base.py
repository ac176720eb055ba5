"""What the regressor and the classifier share once they are fitted: context, answers out, saving.

Fitted attributes end in an underscore, as scikit-learn has it. `predict_dist` returns the whole predictive
distribution of rows; every other answer is a reduction of it.
"""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dsvnp.naming import lookup
from dsvnp.predictive import concatenate
from dsvnp.sources.table import Pair
from dsvnp.tabular.learner import OUTPUTS, Learner
from dsvnp.tabular.panel.panel import Panel
from dsvnp.tabular.pictures import Pictures
from dsvnp.tabular.row_distribution import Form, RowDistribution
from dsvnp.tabular.rows.reading import check_lengths, pair_of
from dsvnp.tabular.rows.remoteness import FEW, remoteness, usual_distance
from dsvnp.tabular.saved import saving
from dsvnp.tabular.saved.content import content_of
from dsvnp.tabular.summary import Summary, calibration_of, classes_as_text, nll_each, summarise
from dsvnp.tabular.trained.ensemble import ROWS, Answering, Draws

STILL = 0.01  # nats: a smaller change of the NLL with twice as many draws counts as none
MOST_DRAWS = 512  # of each replica, up to which the draws are doubled
Question = tuple[Pair, Tensor, Tensor]  # context rows, inputs, and the outputs that are known of them


class Uncertainty(NamedTuple):
    """The two parts of a prediction's uncertainty."""

    # what is left when the function (z_G, and which replica is right) is known: noise, z_* included
    aleatoric: Any
    epistemic: Any  # what is due to not knowing it: more data would lower it


class Evaluation(NamedTuple):
    """How good predictions of known rows are."""

    summary: Summary  # name of a predictor → metric → value
    calibration: Tensor  # what a calibration plot is made of, see `summary.calibration_of`
    classes: list[list[str]] | None  # a table of text with one row per class; None for numbers
    # NLL by the number of draws of each replica: first `n_draws`, which all else is measured with, then doubled until
    # it is still or `MOST_DRAWS` are reached; empty where nothing is drawn
    nll_by_draws: dict[int, float]

    @property
    def advice(self) -> str:
        """A sentence on `n_draws` where more of them would lower the NLL, or an empty text."""
        few, many = min(self.nll_by_draws, default=0), max(self.nll_by_draws, default=0)
        now, then = self.nll_by_draws.get(few, 0.0), self.nll_by_draws.get(many, 0.0)
        if now - then < STILL:
            return ""
        return f"With n_draws={many} in place of {few} the NLL would be {then:.4g}, not {now:.4g}"


class BaseNP(Pictures, Learner, ABC):
    """A neural process behind scikit-learn's interface; see the two kinds for the settings."""

    kinds: ClassVar[dict[str, type[BaseNP]]] = {}  # the kinds of estimator that a folder may hold

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "kind" in vars(cls):  # not a class of a user's that inherits it
            BaseNP.kinds[cls.kind] = cls

    # --- what a kind fills in ---

    @abstractmethod
    def predict_dist(self, X: Any, context: Any = None, keep: bool = True) -> RowDistribution:
        """The whole predictive distribution of rows, in the user's units; all other answers are reductions of it.

        Args:
            X: inputs.
            context: a pair (X, y) to predict from in place of the rows of the fit.
            keep: keep the components for further questions; False needs less memory.
        """

    @abstractmethod
    def _own_record(self) -> dict[str, Any]:
        """What a folder must hold of this kind alone, as JSON takes it."""

    @abstractmethod
    def _restore_own(self, record: dict[str, Any]) -> None:
        """Put back what `_own_record` gave."""

    # --- answers out ---

    def condition(self, X: Any, y: Any) -> Self:
        """Return an estimator that predicts from these context rows instead, without any training.

        After `fit_tasks` this is how to give a new task; after `fit` on one table, whose tasks are all parts of the
        same function, it changes little.
        """
        check_is_fitted(self)
        other = copy.copy(self)
        other.context_ = self._read_pair(X, y, reset=False)
        other._ready = []
        return other

    @property
    def how_it_predicts(self) -> str:
        """A sentence on what predicts: the pretrained network or trained replicas."""
        check_is_fitted(self)
        if isinstance(self.ensemble_, Panel):
            views = [member.view for board in self.ensemble_.members for member in board]
            shares = ", ".join(
                f"{name} {views.count(name) / len(views):.0%}" for name in dict.fromkeys(views)
            )
            return f"It predicts with the pretrained network, without training ({shares})"
        steps = ", ".join(map(str, self.best_steps_))
        return f"Its members have the weights of steps {steps} of {self.recipe_.num_steps if self.recipe_ else 0}"

    def _settings_of_distribution(self, X: Any, x: Tensor, rows: Pair, one: bool) -> dict[str, Any]:
        """Arguments that both kinds of distribution share, for rows X, as numbers x, and context rows."""
        return {
            "condition": self._conditioned
            if rows is self.context_
            else partial(self.ensemble_.condition, rows),
            "x": x,
            "draws": self.ensemble_.draws(self.n_draws, self.noise_seed_),
            "form": Form(X, self.target_names_, one, OUTPUTS[self.output]),
            "read": partial(self._outputs_of, X),
        }

    def _conditioned(self, draws: Draws) -> Answering:
        """What answers rows from the estimator's own context; read once, it serves all further predictions."""
        draws = self.ensemble_.settled(draws)
        if draws.own is not None or not draws.paired:  # draws of functions, which differ each time
            return self.ensemble_.condition(self.context_, draws)
        ready = getattr(self, "_ready", [])  # changed in place: predicting changes no attribute
        key = (self.context_, self.ensemble_, draws)
        if (
            not ready
            or any(old is not new for old, new in zip(ready[0][:2], key, strict=False))
            or ready[0][2] != draws
        ):
            ready[:] = [key, self.ensemble_.condition(self.context_, draws)]
        answering: Answering = ready[1]
        return answering

    def _remoteness(self, known: Tensor) -> Callable[[Tensor], Tensor]:
        """A function that measures how far rows lie from known ones."""
        inputs = self.ensemble_.inputs
        units: list[Tensor] = []  # measured once, and only if somebody asks

        def far(x: Tensor) -> Tensor:
            here, there = (inputs.scaled(rows.to(inputs.centre.device)) for rows in (x, known))
            if not units and len(known) >= FEW:
                units.append(usual_distance(there))
            return remoteness(here, there, units[0] if units else None).to(self.ensemble_.device)

        return far

    def __getstate__(self) -> dict[str, Any]:
        """What pickle and copies keep; an answering function is made again where it is needed."""
        return {name: value for name, value in super().__getstate__().items() if name != "_ready"}

    def _question(self, X: Any, context: Any) -> tuple[Tensor, Pair]:
        """Rows that are asked for, and the context to answer from."""
        check_is_fitted(self)
        return self._read_inputs(X, reset=False), self._context_rows(context)

    def _context_rows(self, context: Any) -> Pair:
        """The rows to predict from: a user's, or the estimator's own; warn where there is none."""
        rows = (
            self.context_ if context is None else self._read_pair(*pair_of(context, "context"), reset=False)
        )
        if not len(rows[0]) and not getattr(self, "_told_of_no_context", False):
            self._told_of_no_context = True  # a user who wants the prior is told once
            warnings.warn(
                "there is no context: this prediction is for any task, not for yours; pass some rows of the task as "
                "context=(X, y), or use the estimator that condition(X, y) returns",
                UserWarning,
                stacklevel=5,
            )
        return rows

    def log_prob(self, X: Any, y: Any, context: Any = None) -> Any:
        """Log-density of each row's known outputs together, or log-probability of its label; NaN for none."""
        self._outputs_of(X, y)  # a wrong y is refused before anything is computed
        return self.predict_dist(X, context, keep=False).log_prob(y)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, context: Any = None, noise: bool = True
    ) -> NDArray[Any]:
        """Functions drawn for all rows together, [rows, samples] or [rows, outputs, samples].

        Args:
            X: inputs.
            n_samples: how many; each keeps one z_G.
            random_state: an integer gives the same draws each time.
            context: a pair (X, y) to predict from in place of the rows of the fit.
            noise: False gives E[y | z_G, x] with z_* averaged: smooth functions; of classes their probabilities,
                [rows, classes, samples].
        """
        return self.predict_dist(X, context, keep=False).sample(n_samples, random_state, noise)

    def uncertainty(self, X: Any, context: Any = None) -> Uncertainty:
        """Noise (aleatoric) and what more data would reduce (epistemic).

        For numbers two variances that add up to the prediction's; for classes expected entropy and mutual information
        between label and latents in nats, which add up to the entropy.
        """
        found: Any = self.predict_dist(X, context)
        return Uncertainty(found.aleatoric, found.epistemic)

    def evaluate(self, X: Any, y: Any, context: Any = None) -> Evaluation:
        """Measure predictions of rows whose outputs are known, next to simple predictions.

        Rows of which no output is known do not count. The NLL is that of the mixture which `predict_dist` returns;
        `nll_by_draws` says what more draws of the latents would give.
        """
        return self.evaluate_tasks([(X, y, context)])

    def evaluate_tasks(self, tasks: Iterable[tuple[Any, Any, Any]]) -> Evaluation:
        """Measure predictions of tasks (X, y, context) together; a context of None is the estimator's own."""
        check_is_fitted(self)
        asked: list[Question] = []
        for X, y, context in tasks:
            x, outputs = self._read_pair(X, y, reset=False)
            if len(x):
                asked.append((self._context_rows(context), x, outputs.to(self.ensemble_.device)))
        if not asked:
            raise ValueError("y has no known output; there is nothing to measure by")
        draws = self.ensemble_.draws(self.n_draws, self.noise_seed_)
        found = [self.ensemble_.predict(context, x, draws) for context, x, _ in asked]
        _, inputs, known = zip(*asked, strict=True)
        predictive, outputs = concatenate(found, dim=3), torch.cat(known)
        predictions = {"neural process": predictive, **self.ensemble_.baselines(torch.cat(inputs))}
        return Evaluation(
            summarise(predictions, outputs, self.target_names_),
            calibration_of(predictive, outputs).cpu(),
            None if self.kind == "regressor" else classes_as_text(predictive, outputs, self._labels()),
            self._nll_by_draws(asked),
        )

    def _nll_by_draws(self, asked: Sequence[Question]) -> dict[int, float]:
        """NLL of known rows with `n_draws`, and doubled until two doublings in a row change it by less than `STILL`."""
        if not self.ensemble_.draws_latents:
            return {}
        found: dict[int, float] = {}
        number, still = self.n_draws, 0
        while still < 2 and (number <= MOST_DRAWS or not found):
            draws = self.ensemble_.draws(number, self.noise_seed_)
            nll = torch.cat([part for each in asked for part in self._nll_parts(draws, *each)])
            found[number] = float(nll.mean())
            still = still + 1 if abs(found[number] - found.get(number // 2, math.inf)) < STILL else 0
            number *= 2
        return found

    def _nll_parts(self, draws: Draws, context: Pair, x: Tensor, y: Tensor) -> Iterator[Tensor]:
        """NLL of some rows at a time: the components of all draws of many rows would fill the memory."""
        answer = self.ensemble_.condition(context, draws)
        for rows, outputs in zip(x.split(ROWS), y.split(ROWS), strict=True):
            yield nll_each(answer(rows), outputs)

    def _labels(self) -> Sequence[Any]:
        """The labels of a classifier."""
        return ()

    def _outputs_of(self, X: Any, y: Any) -> Tensor:
        """What is known of rows that a fitted estimator is asked about."""
        check_is_fitted(self)
        outputs = self._read_outputs(y, reset=False)
        check_lengths(X, outputs)
        return outputs

    # --- keeping ---

    def save(self, path: str | Path) -> Path:
        """Write the fitted estimator into a folder: tensors as safetensors, the rest as JSON, no pickle."""
        check_is_fitted(self)
        return saving.write(Path(path), *content_of(self))

    def to_onnx(self, path: str | Path, required: Collection[str] = ()) -> Path:
        """Write one ONNX file that predicts without this package, see `dsvnp.export.to_onnx` and the page on export."""
        from dsvnp.export import to_onnx

        check_is_fitted(self)
        return to_onnx(self, path, required=required)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """Read what `save` wrote."""
        content = saving.read(Path(path))
        kind = lookup(content.record["kind"], BaseNP.kinds, f"kind of estimator in {path}")
        if not issubclass(kind, cls):
            raise ValueError(f"{path} holds a {kind.__name__}, not a {cls.__name__}; load it as such")
        made = saving.made(kind, content, Path(path))
        made.device = device
        saving.restore(made, content, Path(path))
        made._ready = []
        return made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "impute"
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ensemble_")
