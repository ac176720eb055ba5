"""This package's own estimators as models of the benchmark: the pretrained default, parts of it, and the trained model.

    python benchmarks/tables/run.py --kind regression --models np --adapters benchmarks/tables/ours.py --out FILE.jsonl

They get the table as a data frame is read: columns with names and gaps, and categories as texts. Two are parts of the
default, to see what each adds: "np-no-network" chooses among ridge and the Gaussian process, or logistic regression
and discriminants; "np-network" among views of the network, without the one that reads what ridge leaves over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from registry import register

import dsvnp
from dsvnp.tabular.columns import Columns
from dsvnp.tabular.panel.consulting import Member, PanelProblem

Floats = NDArray[np.float64]
MODELS: dict[str, dict[str, Any]] = {
    "np": {},
    "np-fast": {"effort": "fast"},
    "np-thorough": {"effort": "thorough"},
    "np-refined": {"refine": True},
    "np-trained": {"model": "dsvnp"},
}


class NoNetwork(PanelProblem):
    """Candidates that the network does not read for."""

    def views(self, many_rows: bool = False) -> list[str]:
        return [view for view in super().views(many_rows) if not Member(view).has_network]


class Network(PanelProblem):
    """Candidates that only the network reads for."""

    def views(self, many_rows: bool = False) -> list[str]:
        return [view for view in super().views(many_rows) if Member(view).has_network and view != "residuals"]


PARTS: dict[str, type[PanelProblem]] = {"np-no-network": NoNetwork, "np-network": Network}


class Probabilities(np.ndarray):
    """Probabilities of classes, with notes for the line."""

    notes: dict[str, Any]


class Fitted:
    """The estimator's own distribution as the benchmark asks for it."""

    def __init__(self, estimator: Any, x: Columns) -> None:
        found = estimator.predict_dist(x)
        self.mean, self.log_prob, self.cdf, self.crps = found.mean, found.log_prob, found.cdf, found.crps
        self.notes: dict[str, Any] = {"how": estimator.how_it_predicts}


def frame(x: Floats, categorical: NDArray[np.bool_]) -> Columns:
    """A table with codes as texts; a missing one is empty."""
    columns = [
        np.array(["" if np.isnan(code) else f"{int(code):03d}" for code in values], dtype=object)
        if is_category
        else values
        for values, is_category in zip(x.T, categorical, strict=True)
    ]
    return Columns(tuple(f"x{index}" for index in range(len(columns))), tuple(columns))


def of_part(made: Any, part: type[PanelProblem] | None) -> Any:
    """The estimator, or one that chooses among a part of its candidates."""
    if part is not None:
        made._panel_problem = part
    return made


def regressor(settings: dict[str, Any], part: type[PanelProblem] | None = None) -> Callable[..., Fitted]:
    """A model for numbers."""

    def fit(x: Floats, y: Floats, x_test: Floats, categorical: NDArray[np.bool_], seed: int) -> Fitted:
        made = of_part(dsvnp.NPRegressor(random_state=seed, device="cpu", output="array", **settings), part)
        return Fitted(made.fit(frame(x, categorical), y), frame(x_test, categorical))

    return fit


def classifier(
    settings: dict[str, Any], part: type[PanelProblem] | None = None
) -> Callable[..., Probabilities]:
    """A model for classes."""

    def fit(
        x: Floats, y: NDArray[np.int64], x_test: Floats, categorical: NDArray[np.bool_], seed: int
    ) -> Probabilities:
        made = of_part(dsvnp.NPClassifier(random_state=seed, device="cpu", output="array", **settings), part)
        found = made.fit(frame(x, categorical), y).predict_proba(frame(x_test, categorical))
        probabilities: Probabilities = found.view(Probabilities)
        probabilities.notes = {"how": made.how_it_predicts}
        return probabilities

    return fit


for name in [*MODELS, *PARTS]:
    settings = MODELS.get(name, {})
    about = {"dsvnp": dsvnp.__version__, "device": "cpu", **settings}
    register(name, "regression", about)(regressor(settings, PARTS.get(name)))
    register(name, "classification", about)(classifier(settings, PARTS.get(name)))
