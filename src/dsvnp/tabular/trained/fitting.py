"""Fitting: train a replica on each fold as one fleet, and let what they held out choose, correct and judge."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.predictive import CategoricalPredictive, Predictive, concatenate
from dsvnp.sources.own_units import OwnUnits, tables_differ
from dsvnp.sources.table import ManyTables, Pair, TableTasks
from dsvnp.tabular.rows.folds import MOST_CONTEXT, Part, Question
from dsvnp.tabular.rows.scaling import InputScaling, Outputs
from dsvnp.tabular.summary import Summary, blind, calibration_of, prior_of, summarise
from dsvnp.tabular.trained.correcting import CORRECTIONS, Answer
from dsvnp.tabular.trained.ensemble import Draws, Ensemble, Replica, linear_guess, linear_name
from dsvnp.tabular.trained.recipe import FitRecipe
from dsvnp.training import Fleet, Reporter, train
from dsvnp.training.loop import Interrupted

MOST_ROWS = 1000  # held-out rows of a validation, which then costs less than the steps between two
MOST_TASKS = 20  # held-out tables of that
CONTEXTS = (64, 256, MOST_CONTEXT)  # sizes of a prediction's context that the held-out rows choose from
TRIAL = 6  # a trial of a recipe takes this part of its steps
SKEW = 2.0  # of the sizes of contexts in training: few rows are what most tasks have
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Problem:
    """What is to be learned."""

    parts: Sequence[Part]  # what each replica learns from and is asked
    dim_y: int  # number of outputs or classes
    one_table: bool  # whether tasks are rows of one table, or each a table of its own
    seed: int  # decides everything that is random
    device: torch.device  # where to compute
    names: Sequence[str]  # names of the outputs

    @property
    def likelihood(self) -> str:
        """How outputs are distributed, as an architecture names it."""
        return "gaussian" if self.parts[0].tables[0][1].is_floating_point() else "categorical"

    @property
    def may_own_units(self) -> bool:
        """Whether outputs may be read in units of each task's context: not labels, nor parts of one table."""
        return self.likelihood == "gaussian" and not self.one_table


class Fit(NamedTuple):
    """What a fit gives."""

    ensemble: Ensemble  # the members
    summary: Summary  # its measures on held-out rows
    recipe: FitRecipe  # how they were made
    best_steps: list[int]  # the step of each member's best validation, whose weights it has
    is_clear: bool  # whether held-out rows are predicted clearly better than by the mean predictor
    interrupted: str  # by what the training was stopped before its end; empty if it was not


def fit_ensemble(
    problem: Problem,  # what is to be learned
    recipes: Sequence[FitRecipe],  # how; held-out rows choose from several
    max_context: int | None = None,  # size of a prediction's context; None lets the held-out rows choose
    reporter: Reporter | None = None,  # where progress goes
) -> Fit:
    """Train a replica on each part as one fleet, then set what the held-out rows decide and measure it."""
    recipes = _with_own_units(problem, recipes)
    training, recipe = _best_trial(problem, recipes) if len(recipes) > 1 else (None, recipes[0])
    if training is None or not training.interrupted:
        training = Training(problem, recipe)
        training.run(reporter)
    kept = _unbroken(training.fleet)
    members = [training.replica(row, best=True) for row in kept]
    recipe = training.recipe
    if training.interrupted:
        recipe = replace(recipe, functions=0)
    members = [training.joined(member, row, recipe) for member, row in zip(members, kept, strict=True)]
    parts = [training.problem.parts[row] for row in kept]
    sizes = _context_sizes(parts, problem.one_table, max_context)
    best = training.best_steps()
    ensemble, answers = _finish(members, parts, problem.seed, sizes)
    groups: list[int] | None = [len(q.x) for part in parts for q in part.questions]
    judged = answers
    if problem.one_table:  # rows that several members held out, as the latest are, count once
        once = {
            part.questions[0].x.numpy().tobytes(): answer for part, answer in zip(parts, answers, strict=True)
        }
        groups, judged = None, list(once.values())
    return Fit(
        ensemble,
        _summary(answers, ensemble.prior, problem.names),
        recipe,
        [best[row] for row in kept],
        is_clear(judged, ensemble.prior, groups),
        training.interrupted,
    )


def _with_own_units(problem: Problem, recipes: Sequence[FitRecipe]) -> list[FitRecipe]:
    """The recipes, and the same with each table in units of its context where tables differ much."""
    out = list(recipes)
    if problem.may_own_units:
        first = problem.parts[0]
        scalings = first.scalings(problem.dim_y, linear=False)
        if tables_differ([_scaled(table, *scalings, plain=True) for table in first.tables]):
            out += [replace(recipe, own_units=True) for recipe in recipes]
    return out


def _best_trial(problem: Problem, recipes: Sequence[FitRecipe]) -> tuple[Training, FitRecipe]:
    """Train one replica of each recipe for a while; return that which errs least on held-out tables, and its recipe."""
    first = replace(problem, parts=problem.parts[:1])
    tried = []
    for recipe in recipes:
        steps = max(1, recipe.num_steps // TRIAL)
        tried.append(Training(first, replace(recipe, num_steps=steps)))
        tried[-1].run(None)
        if tried[-1].interrupted:
            break
    errors = [float(each.fleet.state["best_metric"][0]) for each in tried]
    best = min(range(len(tried)), key=lambda row: errors[row])
    if tried[-1].interrupted:
        tried[best].interrupted = tried[-1].interrupted
    return tried[best], recipes[best]


class Training:
    """The replicas of one recipe, each on its part of a problem's rows."""

    def __init__(self, problem: Problem, recipe: FitRecipe) -> None:
        self.problem, self.recipe = problem, recipe
        parts, device = problem.parts, problem.device
        self.scalings = [part.scalings(problem.dim_y, linear=problem.one_table) for part in parts]
        own = recipe.own_units and problem.may_own_units
        self.tables = [
            [_scaled(table, *scalings, plain=own) for table in part.tables]
            for part, scalings in zip(parts, self.scalings, strict=True)
        ]
        self.own = [OwnUnits.fit(tables) if own else None for tables in self.tables]
        make = partial(recipe.make, parts[0].tables[0][0].shape[1], problem.dim_y, problem.likelihood)
        seeds = [problem.seed + row for row in range(len(parts))]
        self.fleet = Fleet(make, self._sources(), seeds, recipe.settings(device), device)
        self.history: list[tuple[int, list[float]]] = []  # steps and the error of each replica then
        self.interrupted = ""  # by what, if it was

    def _sources(self) -> list[TableTasks | ManyTables]:
        """Tasks of each replica's rows."""
        parts, recipe = self.problem.parts, self.recipe
        longest = max(len(x) for part in parts for x, _ in part.tables)
        out: list[TableTasks | ManyTables] = []
        for tables, own in zip(self.tables, self.own, strict=True):
            if self.problem.one_table:
                out.append(TableTasks(*tables[0], recipe.num_points, recipe.batch_size))
            else:
                points, batch = recipe.num_points, recipe.batch_size
                out.append(ManyTables(tables, points, batch, 1, num_slots=longest, skew=SKEW, own=own))
        return out

    def run(self, reporter: Reporter | None) -> None:
        """Train to the end; a signal stops it, and what was learned until then is kept."""
        try:
            train(self.fleet, validation=self._validate, reporter=reporter)
        except Interrupted as stop:
            if not self.history:
                self.fleet.note_validation(self._validate(self.fleet))
            when = str(stop).partition(",")[0]
            self.interrupted = f"{when} of {self.recipe.num_steps}; the fit keeps what was learned until then"

    def replica(self, row: int, best: bool) -> Replica:
        """One replica, with its latest weights or those of its best validation."""
        model = self.fleet.replica(row, best).double()
        return Replica(model, *self.scalings[row], self.own[row]).to(self.problem.device)

    def joined(self, replica: Replica, row: int, recipe: FitRecipe) -> Replica:
        """The replica with its rows joined, where the recipe says so and a task is a table of its own."""
        source = self._sources()[row]
        if not isinstance(source, ManyTables):
            return replica
        return replace(replica, model=recipe.join(replica.model, source, self.problem.seed + row).eval())

    def best_steps(self) -> list[int]:
        """The step of each replica's best validation."""
        rows = range(len(self.problem.parts))
        finite = [
            (step, [value if math.isfinite(value) else math.inf for value in values])
            for step, values in self.history
        ]
        return [min(finite, key=lambda item: item[1][row])[0] for row in rows]

    def _validate(self, fleet: Fleet) -> Tensor:
        """The error of each replica on what it held out, [R]; one that has stopped keeps its last."""
        errors = []
        for row, part in enumerate(self.problem.parts):
            if self.history and not fleet.active[row]:
                errors.append(torch.tensor(self.history[-1][1][row], dtype=torch.float64))
            else:
                errors.append(_held_out_error(self.replica(row, best=False), part, self.problem.seed).cpu())
        self.history.append((fleet.num_steps_taken, [float(error) for error in errors]))
        return torch.stack(errors).to(self.problem.device)


def _unbroken(fleet: Fleet) -> list[int]:
    """Replicas that are of use: the loss of the others was not finite, or no validation of theirs was."""
    stopped, best = (fleet.state[name].cpu() for name in ("stop_step", "best_metric"))
    kept = torch.nonzero((stopped < 0) & best.isfinite()).flatten().tolist()
    number, rate = len(stopped), fleet.settings.learning_rate
    if not kept:
        raise ValueError(
            f"training broke down in all {number} replicas: their loss was not finite, at a learning rate of {rate}; "
            "choose a lower learning_rate, and look for extreme values in X and y"
        )
    if len(kept) < number:
        warnings.warn(
            f"{number - len(kept)} of {number} replicas are left out: their loss was not finite, at a learning rate of "
            f"{rate}; a lower learning_rate may help",
            RuntimeWarning,
            stacklevel=5,  # at the caller of `fit`
        )
    return kept


def _scaled(table: Pair, inputs: InputScaling, outputs: Outputs, plain: bool) -> Pair:
    """A table as the network reads it in training; `plain` as its own units are taken from, to all digits."""
    y = outputs.transform(inputs.both(table[0]), table[1])
    if plain:
        return inputs.scaled(table[0]), y
    return inputs.transform(table[0]).float(), y.float() if y.is_floating_point() else y


def _held_out_error(replica: Replica, part: Part, seed: int) -> Tensor:
    """What a replica is stopped by, on at most so many of the rows it held out."""
    answers, outputs = [], []
    for question in part.questions[:MOST_TASKS]:
        context, x = question.context_of(CONTEXTS[1]), question.x[:MOST_ROWS]
        answers.append(replica.predict(context, x, Draws(4, 1, seed)))
        outputs.append(question.y[:MOST_ROWS].to(replica.device))
    return error_of(concatenate(answers, dim=3), torch.cat(outputs))


def error_of(predictive: Predictive, y: Tensor) -> Tensor:
    """Negative log-likelihood of rows once the spread is stretched as suits them best.

    For a regression in closed form, with one normal of the mixture's mean and variance for each output: a network that
    is too sure of itself, which is corrected afterwards, is not mistaken for a bad one.
    """
    if isinstance(predictive, CategoricalPredictive):
        return -predictive.log_prob(y[None]).mean()
    ratio = (y - predictive.mean[0]).square() / predictive.variance[0]
    log_variance = torch.where(torch.isnan(y), torch.nan, predictive.variance[0].log())
    halves = 0.5 * (log_variance.nanmean(0) + ratio.nanmean(0).clamp(min=1e-12).log())
    return halves.nanmean() + HALF_LOG_2PI + 0.5


def _context_sizes(parts: Sequence[Part], one_table: bool, max_context: int | None) -> list[int]:
    """Sizes of the context to choose from: a task of its own is predicted from all its rows."""
    if max_context is not None or not one_table:
        return [max_context or MOST_CONTEXT]
    return [size for size in CONTEXTS if size <= len(parts[0].tables[0][0])] or [CONTEXTS[0]]


def _finish(
    replicas: list[Replica], parts: Sequence[Part], seed: int, sizes: Sequence[int]
) -> tuple[Ensemble, list[Answer]]:
    """Choose the context's size and the corrections by the held-out rows, and measure what comes out."""

    def held_out(size: int) -> list[Answer]:
        return [
            _answer(replica, part.questions, size, seed)
            for replica, part in zip(replicas, parts, strict=True)
        ]

    def error(size: int) -> float:
        value = float(torch.stack([error_of(a.predictive, a.y) for a in held_out(size)]).mean())
        return value if math.isfinite(value) else math.inf

    size = min(sizes, key=error) if len(sizes) > 1 else sizes[0]
    for fit in CORRECTIONS[type(replicas[0].outputs)]:
        corrections = fit(held_out(size))
        replicas = [replica.corrected(**corrections) for replica in replicas]
    answers = held_out(size)
    device = replicas[0].device
    # Two replicas cover the table, as each holds out another part of it.
    y = torch.cat([rows for part in parts[:2] for _, rows in part.tables]).to(device)
    prior = prior_of(y, answers[0].predictive.shape[-1])
    calibration = torch.cat([calibration_of(a.predictive, a.y) for a in answers]).cpu()
    return Ensemble(replicas, size, prior, calibration), answers


def _answer(replica: Replica, questions: Sequence[Question], size: int, seed: int) -> Answer:
    """A replica's prediction of all rows that it had not seen."""
    draws = Draws(16, 1, seed)
    parts = [replica.predict(question.context_of(size), question.x, draws) for question in questions]
    x, y = (torch.cat([getattr(question, name) for question in questions]) for name in ("x", "y"))
    return Answer(concatenate(parts, dim=3), replica.outputs, replica.linear(x), y.to(replica.device))


def _summary(answers: Sequence[Answer], prior: Tensor, names: Sequence[str]) -> Summary:
    """Measures of the fit on held-out rows, each predicted by the replica that had not seen it."""
    y = torch.cat([a.y for a in answers])
    predictions = {
        "neural process": concatenate([a.predictive for a in answers], dim=3),
        "mean predictor": blind(prior, len(y)),
    }
    simple = [linear_guess(a.outputs, a.linear) for a in answers if a.linear.shape[-1]]
    if simple:
        predictions[linear_name(answers[0].outputs)] = concatenate(simple, dim=3)
    return summarise(predictions, y, names)


def is_clear(answers: Sequence[Answer], prior: Tensor, groups: Sequence[int] | None = None) -> bool:
    """Whether predictions err less than the mean predictor, by more than two standard errors of the difference.

    Errors are squared, in units of each output's deviation; of classes −ln of the label's probability. Rows of one
    group belong together, as those of one table among many; None has each for itself.
    """
    gains = []
    for answer in answers:
        blunt = blind(prior, len(answer.y))
        if isinstance(answer.predictive, CategoricalPredictive):
            gains.append((answer.predictive.log_prob(answer.y[None]) - blunt.log_prob(answer.y[None]))[0])
        else:
            errors = [(p.mean[0] - answer.y).square() / prior[1].square() for p in (blunt, answer.predictive)]
            gains.append((errors[0] - errors[1]).nanmean(-1))
    gain = torch.cat(gains)
    if groups is not None:
        gain = torch.stack([part.mean() for part in gain.split(list(groups))])
    return len(gain) > 1 and bool(gain.mean() > 2 * gain.std() / math.sqrt(len(gain)))
