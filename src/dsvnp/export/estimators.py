"""A fitted estimator as a graph: filling of gaps, scaling, all members of the ensemble, and their mixture.

X [rows, D] are the numbers that the estimator makes of a table's columns, NaN where one is missing. The context has the
rows of the fit as its default; after `fit_tasks` there are none, and a caller has to pass it.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from dsvnp.export.filling import FillingModule, unfilled_context
from dsvnp.export.graph import Axes, Graph
from dsvnp.export.network import exportable, noise_among, noise_axes, noise_name, predictive_of
from dsvnp.export.outputs import outputs_of
from dsvnp.predictive import GaussianPredictive, Predictive, concatenate
from dsvnp.tabular.rows.encoding import Filling
from dsvnp.tabular.trained.ensemble import Ensemble, as_shown, dissent_of, fixed_noise, sharpened


class EnsembleModule(nn.Module):
    """All members of an ensemble: scaling in float64, networks in float32, as estimators predict many rows."""

    def __init__(self, ensemble: Ensemble, filling: Filling) -> None:
        super().__init__()
        self.fill = FillingModule(filling)
        # `to` moves a replica's model itself.
        members = [copy.deepcopy(replica).to(torch.device("cpu")) for replica in ensemble.replicas]
        self.models = nn.ModuleList(exportable(member.model).float() for member in members)
        self.scalings = [(member.inputs, member.outputs, member.own) for member in members]

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x, x_context = self.fill(inputs["X"]), self.fill(inputs["X_context"])
        noise = noise_among(inputs)
        parts = [self._member(i, x, x_context, inputs["y_context"], noise) for i in range(len(self.models))]
        dissent = dissent_of(parts)
        whole = concatenate([sharpened(part, dissent) for part in parts], dim=0)
        return {name: value[0] for name, value in outputs_of(whole).items()}

    def _member(self, index: int, x: Tensor, seen: Tensor, y: Tensor, noise: dict[str, Tensor]) -> Predictive:
        """What one member predicts of rows x [T, D], see `condition_all`."""
        scale_x, scale_y, own = self.scalings[index]
        context, known, units = as_shown(scale_x, scale_y, own, seen, y)
        targets = (
            scale_x.transform(x) if own is None or units is None else own.inputs(scale_x.scaled(x), units)
        )
        everywhere = torch.ones_like(context[None, :, 0], dtype=torch.bool)
        known = known.float() if known.is_floating_point() else known
        model: Any = self.models[index]
        read = context[None].float(), known[None], everywhere, targets[None].float()
        predictive = predictive_of(model, *read, noise).map(Tensor.double)
        if units is not None:
            assert isinstance(predictive, GaussianPredictive)
            predictive = predictive.affine(units.centre, units.spread)
        return scale_y.inverse(scale_x.both(x), predictive)


def estimator_graph(estimator: Any) -> Graph:
    """Make the graph of a fitted `NPRegressor` or `NPClassifier`."""
    ensemble, filling = estimator.ensemble_, estimator.filling_
    module = EnsembleModule(ensemble, filling)
    draws = ensemble.draws(estimator.n_draws, estimator.noise_seed_)
    noise = fixed_noise(module.models[0], draws, torch.empty(0, dtype=torch.float64))  # type: ignore[arg-type]
    x, y = unfilled_context(estimator)
    width = len(filling.medians)
    axes: dict[str, Axes] = {
        "X": ("rows", width),
        "X_context": ("context", width),
        "y_context": ("context", y.shape[1]),
        **{
            name: tuple(1 if axis == "tasks" else axis for axis in each)
            for name, each in noise_axes(noise).items()
        },
    }
    dtypes = {"X": x.dtype, "X_context": x.dtype, "y_context": y.dtype}
    dtypes |= {noise_name(name): torch.float32 for name in noise}
    defaults = {noise_name(name): value.float() for name, value in noise.items()}
    if len(x) > 1:
        defaults |= {"X_context": x, "y_context": y}
    return Graph(module, axes, dtypes, defaults, facts_of(estimator))


def facts_of(estimator: Any) -> dict[str, Any]:
    """Names of columns, outputs and classes."""
    encoding, names = estimator.encoding_, getattr(estimator, "feature_names_in_", None)
    count = len(estimator.filling_.medians)
    columns = [f"x{i}" for i in range(count)] if names is None else [str(name) for name in names]
    if encoding is not None:
        texts = zip(encoding.names, encoding.categories, strict=True)
        columns = encoding.number_names + [f"{name}={text}" for name, found in texts for text in found or ()]
    facts = {"kind": estimator.kind, "columns": columns, "outputs": list(estimator.target_names_)}
    classes = getattr(estimator, "classes_", None)
    return facts if classes is None else facts | {"classes": [str(label) for label in classes.tolist()]}
