"""Pretrained networks as graphs that read a user's units: the context's own statistics scale it, inside the graph.

x and y are float64, as in `dsvnp.pretrained`; NaN in x is a missing value of a table, NaN in y a point to leave out.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsvnp.export.graph import Graph
from dsvnp.export.network import exportable, network_axes, predictive_of
from dsvnp.export.outputs import outputs_of
from dsvnp.likelihoods import Categorical
from dsvnp.models.base import NeuralProcess
from dsvnp.predictive import GaussianPredictive, Predictive
from dsvnp.pretrained.seasons import CurveView
from dsvnp.sources.priors.curves import CLIP_INPUT
from dsvnp.sources.priors.scaling import output_scale, standardise
from dsvnp.sources.priors.spectra import DIMENSIONS
from dsvnp.sources.priors.tables import CLIP_OUTPUT


class ScaledModule(nn.Module):
    """A network with coded inputs, the scaling of its context, and the way back.

    A view is how a curve is shown to it; settings are those of `standardise`.
    """

    def __init__(self, model: NeuralProcess, view: CurveView | None = None, **settings: Any) -> None:
        super().__init__()
        self.view = view
        self.model, self.settings = exportable(model), settings
        self.labels = isinstance(model.likelihood, Categorical)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.view is not None:
            return self._viewed(self.view, inputs)
        return outputs_of(self._predict(inputs))

    def _viewed(self, view: CurveView, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x, x_target = inputs["x_context"], inputs["x_target"]
        shown = {"x_context": view.inputs(x), "x_target": view.inputs(x_target)}
        found = self._predict({**inputs, **shown, "y_context": inputs["y_context"] - view.baseline(x)})
        assert isinstance(found, GaussianPredictive)
        return outputs_of(found.affine(view.baseline(x_target), torch.ones((), dtype=torch.float64)))

    def _predict(self, inputs: dict[str, Tensor]) -> Predictive:
        y, mask = inputs["y_context"], inputs["mask_context"]
        mask = mask & (torch.ones_like(y[..., 0], dtype=torch.bool) if self.labels else ~y[..., 0].isnan())
        x = self._inputs(inputs["x_context"], inputs["x_target"], mask)
        x, x_target = x[:, : mask.shape[1]], x[:, mask.shape[1] :]
        if self.labels:
            return predictive_of(self.model, x, y, mask, x_target, {}).map(Tensor.double)
        mean, std = (part.unsqueeze(-1) for part in output_scale(y[..., 0], mask))  # [B, 1, 1]
        outputs = ((y - mean) / std).clamp(-CLIP_OUTPUT, CLIP_OUTPUT).float()
        predictive = predictive_of(self.model, x, outputs, mask, x_target, {}).map(Tensor.double)
        assert isinstance(predictive, GaussianPredictive)
        return predictive.affine(mean, std)

    def _inputs(self, x: Tensor, x_target: Tensor, mask: Tensor) -> Tensor:
        """Scaled and coded inputs of context and targets together, [B, C + T, 2·D]."""
        points = torch.cat([x, x_target], dim=1)
        used = torch.ones_like(points[:, 0], dtype=torch.bool)
        if "clip" in self.settings:  # curves have a fixed number of inputs, of which some are not used
            points, used = (F.pad(part, (0, DIMENSIONS - x.shape[-1])) for part in (points, used))
        seen = torch.cat([mask, torch.zeros_like(x_target[..., 0], dtype=torch.bool)], dim=1)
        filled = torch.cat([mask, torch.ones_like(x_target[..., 0], dtype=torch.bool)], dim=1)
        return standardise(points, used, seen, filled, **self.settings).float()


def table_graph(model: NeuralProcess) -> Graph:
    """Make the graph of a pretrained network for tables with one head (`for_numbers`, `for_classes`)."""
    return _graph(model, "columns", {}, {"kind": "tables", "context": "up to 1024 rows"})


def curve_graph(model: NeuralProcess) -> Graph:
    """Make the graph of a pretrained network for curves."""
    return _graph(model, "inputs", {"clip": CLIP_INPUT}, {"kind": "curves", "context": "up to 896 points"})


def one_curve_graph(model: NeuralProcess, x: Tensor, y: Tensor, view: CurveView) -> Graph:
    """Make the graph of a pretrained network that predicts one curve from its points x [N, D], y [N]."""
    graph = replace(curve_graph(model), module=ScaledModule(model, view, clip=CLIP_INPUT))
    fixed = {"tasks": 1, "inputs": x.shape[1]}
    axes = {name: tuple(fixed.get(str(axis), axis) for axis in each) for name, each in graph.axes.items()}
    points = {"x_context": x[None], "y_context": y[None, :, None]}
    return replace(graph, axes=axes, defaults=graph.defaults | points)


def _graph(model: NeuralProcess, axis: str, settings: dict[str, Any], facts: dict[str, Any]) -> Graph:
    numbers = torch.int64 if isinstance(model.likelihood, Categorical) else torch.float64
    dtypes = {"x_context": torch.float64, "y_context": numbers, "x_target": torch.float64}
    return Graph(
        ScaledModule(model, **settings),
        network_axes(axis, 1),
        dtypes | {"mask_context": torch.bool},
        {"mask_context": torch.ones(1, 1, dtype=torch.bool)},
        facts | {"model": model.name, "architecture": model.arch.to_dict()},
    )
