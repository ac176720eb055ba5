"""Pretrained networks as files: onnxruntime answers in the user's units, as `dsvnp.pretrained` does."""

from dataclasses import replace

import pytest
import torch
from runtime import NEAR, answer, same, session_of

from dsvnp import CurveRegressor, Transformer, make_model
from dsvnp.export import graph_of, to_onnx
from dsvnp.export.units import curve_graph, table_graph
from dsvnp.models import NeuralProcess
from dsvnp.pretrained.curves import predict_curve
from dsvnp.pretrained.heads import for_classes, for_numbers
from dsvnp.pretrained.loading import Card, save_pretrained
from dsvnp.pretrained.recipes import RECIPES
from dsvnp.pretrained.tables import TableUse, predict_classes, predict_numbers

ONE = TableUse(num_orders=1)


def small(name: str) -> NeuralProcess:
    """The network of a recipe in everything but size."""
    arch = RECIPES[name]().make().arch

    def less(sizes: Transformer) -> Transformer:
        return replace(sizes, width=16, num_layers=1, num_heads=2, feedforward=8, embedder=(8,))

    torch.manual_seed(0)
    smaller = replace(
        arch, transformer=less(arch.transformer), cells=less(arch.cells), decoder=(16,), num_components=3
    )
    return make_model("tabtnp" if name == "tables" else "tnp", smaller).eval()


def table(rows: int, targets: int, columns: int):
    """Columns in units of their own, some cells missing."""
    g = torch.Generator().manual_seed(rows)
    x = 100 + 50 * torch.randn(rows + targets, columns, generator=g, dtype=torch.float64).exp()
    x[torch.rand(x.shape, generator=g) < 0.1] = torch.nan
    y = 1e4 + 300 * torch.randn(rows, generator=g, dtype=torch.float64)
    return x[:rows], y, x[rows:]


def test_a_file_for_tables_reads_any_table(tmp_path):
    model = for_numbers(small("tables"))
    session = session_of(to_onnx(table_graph(model), tmp_path / "tables.onnx"))
    for shape in [(40, 9, 5), (12, 1, 1), (2, 3, 12)]:
        x, y, targets = table(*shape)
        inputs = {"x_context": x[None], "y_context": y[None, :, None], "x_target": targets[None]}
        wanted = predict_numbers(model, x, y, targets, ONE)
        same(answer(session, inputs), wanted)
        # Slots that are not filled change nothing, whatever they hold, nor do rows without an output.
        more = torch.full((1, 2, shape[2]), 1e6, dtype=torch.float64)
        gaps = torch.tensor([[[7.0], [torch.nan]]], dtype=torch.float64)
        mask = torch.tensor([[True] * len(x) + [False, True]])
        padded = {
            "x_context": torch.cat([x[None], more], 1),
            "y_context": torch.cat([y[None, :, None], gaps], 1),
        }
        same(answer(session, {**inputs, **padded, "mask_context": mask}), wanted)
    empty = {name: value[:, :0] if "context" in name else value for name, value in inputs.items()}
    assert all(value.isfinite().all() for value in answer(session, empty).values())


def test_a_graph_for_classes():
    """The module that is traced, without a file."""
    x, y, targets = table(30, 7, 4)
    labels = (y > y.median()).long() + (y > 1.02e4)
    model = for_classes(small("tables"), 3)
    inputs = {"x_context": x[None], "y_context": labels[None, :, None], "x_target": targets[None]}
    mask = {"mask_context": torch.ones(1, 1, dtype=torch.bool)}
    with torch.no_grad():
        got = table_graph(model).module(inputs | mask)
    torch.testing.assert_close(
        got["probabilities"], predict_classes(model, x, labels, targets, ONE).mean, atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("dims", [1, 3])
def test_a_graph_for_curves(dims):
    x, y, targets = (part.nan_to_num(100.0) for part in table(30, 7, dims))
    model = small("curves")
    inputs = {"x_context": x[None], "y_context": y[None, :, None], "x_target": targets[None]}
    mask = {"mask_context": torch.ones(1, 1, dtype=torch.bool)}
    with torch.no_grad():
        got, wanted = curve_graph(model).module(inputs | mask), predict_curve(model, x, y, targets, 100)
    assert (got["mean"] - wanted.mean).abs().div(wanted.stddev).max() < NEAR
    assert (got["std"] - wanted.stddev).abs().div(wanted.stddev).max() < NEAR


@pytest.mark.parametrize("season", [None, 0.5])
def test_a_graph_of_a_fitted_curve_holds_its_points(tmp_path, season):
    save_pretrained(small("curves"), Card("curves"), tmp_path, torch.float32)
    x, y, targets = (part.nan_to_num(100.0) for part in table(30, 7, 1))
    estimator = CurveRegressor(weights=tmp_path, season=season, process=False).fit(x.numpy(), y.numpy())
    assert estimator.view_.period == season
    graph = graph_of(estimator)
    assert set(graph.axes) - set(graph.defaults) == {"x_target"}
    got = graph.module(graph.defaults | {"x_target": targets[None]})
    mean, std = estimator.predict(targets.numpy(), return_std=True)
    assert (got["mean"][0, :, 0] - torch.from_numpy(mean)).abs().max() < NEAR * std.min()
    with pytest.raises(ValueError, match="at most max_context=20 points, got 30"):
        graph_of(CurveRegressor(max_context=20, weights=tmp_path, process=False).fit(x.numpy(), y.numpy()))
    with pytest.raises(ValueError, match="a file holds the network alone; fit with process=False"):
        graph_of(CurveRegressor(weights=tmp_path).fit(x.numpy(), y.numpy()))
