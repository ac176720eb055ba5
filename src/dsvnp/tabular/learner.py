"""Fitting of an estimator: its settings, the choice of a pretrained panel, and the training of replicas."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor

from dsvnp.devices import one_thread, pick_device, threads_for
from dsvnp.models import MODELS
from dsvnp.naming import lookup
from dsvnp.sources.table import Pair, known_rows
from dsvnp.tabular.panel.choosing import MOST_ROWS, Chosen, choose_panel, outside
from dsvnp.tabular.panel.consulting import PanelProblem
from dsvnp.tabular.panel.panel import Panel
from dsvnp.tabular.panel.views import Layout
from dsvnp.tabular.rows.folds import HoldOut, Part, parts_of_table, parts_of_tables
from dsvnp.tabular.rows.reading import RowReader, check_known, hold_out_by, pairs_of, useful
from dsvnp.tabular.rows.weights import Weights, rows_that_count
from dsvnp.tabular.summary import Summary
from dsvnp.tabular.trained.ensemble import Ensemble
from dsvnp.tabular.trained.fitting import Problem, fit_ensemble
from dsvnp.tabular.trained.recipe import AUTO, EFFORTS, FitRecipe, recipe_for_table, recipes_for_tasks
from dsvnp.training import Reporter
from dsvnp.training.shared import refuse_autocast

FEW_ROWS = 10  # below which a fit warns
MANY_OUTPUTS = 4  # more than these, and more rows than the network reads: such a table is better trained on
OF_TRAINING = ("n_replicas", "max_steps", "learning_rate", "width")
OUTPUTS = {"same": True, "array": False}


class Learner(RowReader, ABC):
    """What `fit` and `fit_tasks` do for both kinds of estimator."""

    kind: ClassVar[str]
    _panel_problem: ClassVar[type[PanelProblem]] = PanelProblem  # a benchmark leaves out candidates
    target_names_: tuple[str, ...]
    context_: Pair
    ensemble_: Ensemble | Panel
    recipe_: FitRecipe | None
    best_steps_: list[int]
    validation_: Summary
    noise_seed_: int
    _ready: list[Any]  # the context and what answers from it
    _told_of_no_context: bool

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

    @property
    @abstractmethod
    def _dim_y(self) -> int:
        """Number of outputs or classes."""

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
                f"{len(x)} rows are few to learn from; measures of held-out rows, and intervals, mean little",
                UserWarning,
                stacklevel=2,
            )
        seed = self._start()
        asked = self.model == AUTO and not self._better_trained(len(x))
        panel = self._choose(x, y, seed, by, weights) if asked else None
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
        """Fit to many related small tables (X, y) with the same columns; then predict a new one from a `context=`.

        Where tables lie far apart or differ in range, as sensors with an offset or a start of their own, the networks
        read each in units of its context (`dsvnp.sources.own_units`), if held-out tables are predicted better so.
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

    def _start(self) -> int:
        """Check the settings and draw the seed of everything that is random."""
        refuse_autocast()
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

    def _better_trained(self, rows: int) -> bool:
        """Whether training predicts a table better, and sooner: one with many rows and many outputs.

        The panel takes each output by itself. On SCM20d, 7,173 rows and 16 outputs, it had an RMSE of 0.44 in 81 CPU
        seconds, trained networks 0.33 in 37 (results/estimators).
        """
        if self.kind == "classifier" or self._dim_y <= MANY_OUTPUTS or rows <= MOST_ROWS:
            return False
        warnings.warn(
            f"y has {self._dim_y} outputs and {rows} rows: networks are trained, which predict tables with more than "
            f"{MANY_OUTPUTS} outputs and {MOST_ROWS} rows better than the pretrained one",
            UserWarning,
            stacklevel=3,
        )
        return True

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
        question = self._panel_problem(
            Layout.of(self.encoding_, self.filling_), classes, pick_device(self.device)
        )
        if said := outside(question):
            warnings.warn(said, UserWarning, stacklevel=3)
        with threads_for(x.numel()):
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

    def _train(self, parts: Sequence[Part], recipes: Sequence[FitRecipe], seed: int) -> None:
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
        """The warning of a fit that predicts held-out rows no better than the mean predictor."""
        ours, theirs = (self.validation_[name]["nll"] for name in ("neural process", "mean predictor"))
        rows, more = ("rows", "rows or other columns") if one_table else ("tables", "tables")
        guess = "the shares of the classes" if self.kind == "classifier" else "the mean of y"
        return (
            f"{rows} that were held out are not predicted clearly better than by {guess} (NLL {ours:.3g} against "
            f"{theirs:.3g}): X may hold little information on y, or training was too short; try more effort "
            f"('thorough'), another model, or more {more}"
        )
