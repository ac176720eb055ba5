"""Which graph something has: a model, a pretrained network, or a fitted estimator."""

from pathlib import Path
from typing import Any

from dsvnp.export.graph import Graph
from dsvnp.export.network import network_graph
from dsvnp.export.units import curve_graph, one_curve_graph, table_graph
from dsvnp.likelihoods import NumberOrClass
from dsvnp.models.base import NeuralProcess
from dsvnp.models.tabtnp import TabTNP
from dsvnp.pretrained.heads import for_classes, for_numbers
from dsvnp.pretrained.loading import load_pretrained


def graph_of(what: Any, **settings: Any) -> Graph:
    """Make the graph of a model or of a fitted estimator; a graph is returned as it is."""
    if isinstance(what, NeuralProcess):
        return network_graph(what, **settings)
    if settings:
        raise ValueError(
            f"{', '.join(settings)}: only the graph of a model has such settings, got {type(what).__name__}; set them "
            "where it is made"
        )
    if isinstance(what, Graph):
        return what
    from dsvnp.export.estimators import estimator_graph  # scikit-learn is not needed for all others
    from dsvnp.export.panels import panel_graph
    from dsvnp.tabular.base import BaseNP
    from dsvnp.tabular.curves import CurveRegressor
    from dsvnp.tabular.panel.panel import Panel

    if isinstance(what, CurveRegressor):
        return one_curve_graph(*what.network_and_points())
    if not isinstance(what, BaseNP):
        raise TypeError(f"expected a model, a fitted estimator or a Graph, got {type(what).__name__}")
    if isinstance(what.ensemble_, Panel):
        return panel_graph(what)
    return estimator_graph(what)


def pretrained_graph(
    name: str, folder: Path | str | None = None, num_classes: int | None = None, **settings: Any
) -> Graph:
    """Make the graph of a pretrained network; one for tables or curves scales its context itself.

    Args:
        name: as for `load_pretrained`.
        folder: where its files lie; None is the folder that ships with the package.
        num_classes: classes that a network for tables distinguishes; None predicts numbers.
        settings: of the graph of another network, see `to_onnx`.
    """
    model = load_pretrained(name, folder)
    if isinstance(model.likelihood, NumberOrClass):
        model = for_numbers(model) if num_classes is None else for_classes(model, num_classes)
    elif num_classes is not None:
        raise ValueError(f"{name} has no choice between numbers and classes; leave num_classes out")
    if not model.arch.coded_x:
        return network_graph(model, **settings)
    return (table_graph if isinstance(model, TabTNP) else curve_graph)(model)
