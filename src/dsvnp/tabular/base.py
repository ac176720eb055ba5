"""What the regressor and the classifier share: settings, training, context, and answers out.

Fitted attributes end in an underscore, as scikit-learn has it. `predict_dist` returns the whole predictive
distribution of rows; every other answer is a reduction of it.
"""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
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
from dsvnp.predictive import concatenate
from dsvnp.sources.table import Pair, known_rows
from dsvnp.tabular import saving
from dsvnp.tabular.choosing import Chosen, choose_panel, outside
from dsvnp.tabular.distribution import Form, RowDistribution
from dsvnp.tabular.ensemble import Answering, Draws, Ensemble
from dsvnp.tabular.fitting import Problem, fit_ensemble
from dsvnp.tabular.folds import HoldOut, Part, parts_of_table, parts_of_tables
from dsvnp.tabular.panel import Panel
from dsvnp.tabular.panel import Problem as Question
from dsvnp.tabular.pictures import Pictures
from dsvnp.tabular.reading import (
    RowReader,
    check_known,
    check_lengths,
    hold_out_by,
    pair_of,
    pairs_of,
    useful,
)
from dsvnp.tabular.recipe import AUTO, EFFORTS, Recipe, recipe_for_table, recipes_for_tasks
from dsvnp.tabular.remoteness import FEW, remoteness, usual_distance
from dsvnp.tabular.summary import Summary, calibration_of, classes_as_text, summarise
from dsvnp.tabular.views import Layout
from dsvnp.tabular.weights import Weights, rows_that_count
from dsvnp.training import Reporter

FEW_ROWS = 10  # of which a fit says that they are few
OF_TRAINING = ("n_replicas", "max_steps", "learning_rate", "width")
OUTPUTS = {"same": True, "array": False}


class Uncertainty(NamedTuple):
    """The two parts of a prediction's uncertainty.

    Attributes:
        aleatoric: what is left when the function (z_G, and which replica is right) is known: noise, z_* included.
        epistemic: what is due to not knowing it: more data would lower it.
    """

    aleatoric: Any
    epistemic: Any


class Evaluation(NamedTuple):
    """How good predictions of known rows are.

    Attributes:
        summary: name of a predictor → metric → value.
        calibration: what a calibration plot is made of, see `summary.calibration_of`.
        classes: a table of text with one row per class; None for numbers.
    """

    summary: Summary
    calibration: Tensor
    classes: list[list[str]] | None


class BaseNP(Pictures, RowReader, ABC):
    """A neural process behind scikit-learn's interface; see the two kinds for the settings."""

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[BaseNP]]] = {}  # the kinds of estimator that a folder may hold
    target_names_: tuple[str, ...]
    ensemble_: Ensemble | Panel
    recipe_: Recipe | None
    best_steps_: list[int]
    validation_: Summary
    _ready: list[Any]  # the context and what answers from it

    def __init__(
        self,
        model: str = AUTO,
        *,
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
        self.model = model
        self.refine = refine
        self.effort = effort
        self.n_replicas = n_replicas
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.width = width
        self.n_draws = n_draws
        self.max_context = max_context
        self.missing = missing
        self.device = device
        self.output = output
        self.random_state = random_state
        self.verbose = verbose

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "kind" in vars(cls):  # not a class of a user's that inherits it
            BaseNP.kinds[cls.kind] = cls

    # --- what a kind fills in ---

    @property
    @abstractmethod
    def _dim_y(self) -> int:
        """Number of outputs or classes."""

    @abstractmethod
    def _distribution(self, X: Any, context: Any, keep: bool) -> RowDistribution:
        """The predictive distribution of rows; with `keep`, its components serve further questions."""

    @abstractmethod
    def _own_record(self) -> dict[str, Any]:
        """What a folder must hold of this kind alone, as JSON takes it."""

    @abstractmethod
    def _restore_own(self, record: dict[str, Any]) -> None:
        """Put back what `_own_record` gave."""

    # --- fitting ---

    def fit(self, X: Any, y: Any, groups: Any = None, time: Any = None, sample_weight: Any = None) -> Self:
        """Fit to one table; tasks are random parts of its rows.

        Args:
            X: inputs, [rows, features]; an array, or a data frame of pandas or polars, whose texts are categories.
            y: outputs; missing ones do not count.
            groups: one value per row; rows with the same one are held out together, where new rows will come from
                groups that training did not see.
            time: one number or date per row; the latest rows are held out, where new rows will be later.
            sample_weight: one number per row: a row of weight 2 counts as two rows, one of weight 0 is left out.
                Only ratios matter; see `weights` for how.
        """
        X, y, groups, time, sample_weight = rows_that_count(X, y, groups, time, sample_weight)
        x, known = self._read_pair(X, y, reset=True)
        there = known_rows(self._read_outputs(y, reset=False))
        by, y = hold_out_by(groups, time, there), known
        own = None if sample_weight is None else sample_weight[there.numpy()]
        weights = Weights.product(own, self._class_weights(y))
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
        panel = self._choose(x, y, seed, by, weights) if self.model == AUTO else None
        if panel is None or self.refine:
            parts = parts_of_table(x, y, self.n_replicas or EFFORTS[self.effort].table, seed, by, weights)
            recipe = recipe_for_table(len(parts[0].tables[0][0]), self.effort, self._changes())
            self._train(parts, [recipe], seed)
        if panel is not None:
            self._seat(panel, seed)
        rows = weights.repeated(np.arange(len(x)), seed)
        chosen = np.random.default_rng(seed).permutation(rows)[: self.ensemble_.num_context]
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
        parts = parts_of_tables(tables, self.n_replicas or EFFORTS[self.effort].tasks, seed)
        typical = int(np.quantile([len(x) for x, _ in tables], 0.75))
        self._train(parts, recipes_for_tasks(typical, self.effort, self._changes()), seed)
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
        other._ready = []
        return other

    def _start(self) -> int:
        """Check the settings and draw the seed of everything that is random."""
        given: Any = self.model
        if isinstance(given, type):
            name, called = getattr(given, "name", given.__name__.lower()), given.__name__
            raise ValueError(
                f"model must be a name, got the class {called}; register it with dsvnp.MODELS[{name!r}] = {called} "
                f"and pass model={name!r}"
            )
        lookup(self.model, {AUTO: None, **MODELS}, "model")
        lookup(self.output, OUTPUTS, "output")
        lookup(self.effort, EFFORTS, "effort")
        for name in ("n_replicas", "n_draws", "max_steps", "width", "max_context"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | np.integer) or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate!r}")
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _changes(self) -> dict[str, Any]:
        """What the user's settings change of a recipe."""
        return {
            "model": self.model,
            "num_steps": self.max_steps,
            "learning_rate": self.learning_rate,
            "width": self.width,
        }

    def _class_weights(self, y: Tensor) -> NDArray[np.float64] | None:
        """What the class of each row counts; None if all count alike."""
        return None

    def _choose(self, x: Tensor, y: Tensor, seed: int, by: HoldOut, weights: Weights) -> Chosen:
        """Choose a panel of the pretrained network, which needs no training."""
        idle = [name for name in OF_TRAINING if getattr(self, name) is not None]
        if idle and not self.refine:
            warnings.warn(
                f"{', '.join(idle)} has no effect: the pretrained network is not trained; pass refine=True to train as "
                "well, or the name of a model",
                UserWarning,
                stacklevel=3,
            )
        classes = 0 if y.is_floating_point() else self._dim_y
        question = Question(Layout.of(self.encoding_, self.filling_), classes, pick_device(self.device))
        if said := outside(question):
            warnings.warn(said, UserWarning, stacklevel=3)
        return choose_panel(
            x, y, question, self.effort, seed, self.max_context, self.target_names_, by, weights
        )

    def _seat(self, chosen: Chosen, seed: int) -> None:
        """Predict by a panel, unless held-out rows are likelier under replicas that were trained as well."""
        panel, summary, clear = chosen
        if self.refine:
            trained = self.validation_
            if trained["neural process"]["nll"] < summary["neural process"]["nll"]:
                self.validation_ = {**trained, "pretrained": summary["neural process"]}
                return
            summary = {**summary, "trained": trained["neural process"]}
        self.ensemble_, self.validation_, self.recipe_, self.best_steps_ = panel, summary, None, []
        self.noise_seed_, self._ready = seed, []
        if not clear:
            warnings.warn(self._doubt(one_table=True), UserWarning, stacklevel=3)

    def _train(self, parts: Sequence[Part], recipes: Sequence[Recipe], seed: int) -> None:
        """Train the replicas and keep them."""
        check_known([part.tables for part in parts], self.target_names_)
        one_table = len(parts[0].tables) == 1
        problem = Problem(parts, self._dim_y, one_table, seed, pick_device(self.device), self.target_names_)
        reporter = Reporter(type(self).__name__, recipes[0].num_steps, quiet=not self.verbose)
        with one_thread():
            made = fit_ensemble(problem, recipes, self.max_context, reporter)
        self.ensemble_, self.validation_, self.recipe_, self.best_steps_, clear, interrupted = made
        self.noise_seed_, self._ready = seed, []
        if interrupted:
            warnings.warn(interrupted, RuntimeWarning, stacklevel=3)
        if not clear:
            warnings.warn(self._doubt(one_table), UserWarning, stacklevel=3)

    def _doubt(self, one_table: bool) -> str:
        """What to say of a fit that predicts what it has not seen no better than anybody could."""
        ours, theirs = (self.validation_[name]["nll"] for name in ("neural process", "mean predictor"))
        rows, more = ("rows", "rows or other columns") if one_table else ("tables", "tables")
        guess = "the shares of the classes" if self.kind == "classifier" else "the mean of y"
        return (
            f"{rows} that were held out are not predicted clearly better than by {guess} (NLL {ours:.3g} against "
            f"{theirs:.3g}): X may say little about y, or training was too short; try more effort ('thorough'), "
            f"another model, or more {more}"
        )

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

    # --- answers out ---

    def predict_dist(self, X: Any, context: Any = None) -> RowDistribution:
        """The whole predictive distribution of rows, in the user's units; all other answers are reductions of it.

        Args:
            X: inputs.
            context: a pair (X, y) to predict from in place of the rows of the fit.
        """
        return self._distribution(X, context, keep=True)

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
        """What tells how far rows lie from known ones."""
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
        """The rows to answer from: a user's, or the estimator's own; say so where there is none."""
        rows = (
            self.context_ if context is None else self._read_pair(*pair_of(context, "context"), reset=False)
        )
        if not len(rows[0]) and not getattr(self, "_told_of_no_context", False):
            self._told_of_no_context = True  # once: whoever wants the prior need not be told again
            warnings.warn(
                "there is no context, so that this answer is for any task rather than for yours; pass some rows of "
                "the task as context=(X, y), or use the estimator that condition(X, y) returns",
                UserWarning,
                stacklevel=5,
            )
        return rows

    def log_prob(self, X: Any, y: Any, context: Any = None) -> Any:
        """Log-density of a row's known outputs together, in the user's units, or log-probability of its label.

        Returns:
            One value per row; NaN where no output is known.
        """
        self._outputs_of(X, y)  # a wrong y is refused before anything is computed
        return self._distribution(X, context, keep=False).log_prob(y)

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
        return self._distribution(X, context, keep=False).sample(n_samples, random_state, noise)

    def uncertainty(self, X: Any, context: Any = None) -> Uncertainty:
        """Noise (aleatoric) and what more data would reduce (epistemic).

        For numbers two variances that add up to the prediction's; for classes expected entropy and mutual information
        between label and latents in nats, which add up to the entropy.
        """
        found: Any = self.predict_dist(X, context)
        return Uncertainty(found.aleatoric, found.epistemic)

    def evaluate(self, X: Any, y: Any, context: Any = None) -> Evaluation:
        """Measure predictions of rows whose outputs are known, next to what anybody could have said.

        Rows of which no output is known do not count.
        """
        return self.evaluate_tasks([(X, y, context)])

    def evaluate_tasks(self, tasks: Iterable[tuple[Any, Any, Any]]) -> Evaluation:
        """Measure predictions of several tasks together.

        Args:
            tasks: inputs, outputs and context of each: a pair (X, y), or None for the estimator's own.
        """
        check_is_fitted(self)
        draws, asked = self.ensemble_.draws(self.n_draws, self.noise_seed_), []
        for X, y, context in tasks:
            x, outputs = self._read_pair(X, y, reset=False)
            if len(x):
                asked.append((self.ensemble_.predict(self._context_rows(context), x, draws), x, outputs))
        if not asked:
            raise ValueError("y has no known output; there is nothing to measure by")
        found, inputs, known = zip(*asked, strict=True)
        predictive, outputs = concatenate(found, dim=3), torch.cat(known).to(self.ensemble_.device)
        predictions = {"neural process": predictive, **self.ensemble_.baselines(torch.cat(inputs))}
        return Evaluation(
            summarise(predictions, outputs, self.target_names_),
            calibration_of(predictive, outputs).cpu(),
            None if self.kind == "regressor" else classes_as_text(predictive, outputs, self._labels()),
        )

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
        return saving.write(Path(path), *saving.content_of(self))

    def to_onnx(self, path: str | Path, required: Collection[str] = ()) -> Path:
        """Write one ONNX file that predicts without this package; see the page on export of the documentation.

        Args:
            path: file to write.
            required: inputs that shall have no default, see `dsvnp.export.to_onnx`.
        """
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
