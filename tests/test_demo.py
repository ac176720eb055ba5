"""The demo predicts functions by the network for curves where there is one, and by the one for tables elsewhere."""

import numpy as np

from dsvnp.demo import EXAMPLES, predict_function
from dsvnp.models import Architecture, Transformer, make_model
from dsvnp.pretrained import Card, save_pretrained

X, ASKED = np.linspace(0, 10, 12), np.linspace(0, 10, 30)


def test_the_network_for_curves_is_used_where_there_is_one(tmp_path, monkeypatch):
    layers = Transformer(8, 1, 2, 8, (8,), equivariant=True, rotary=20.0)
    arch = Architecture(
        6, 1, likelihood="mixture", num_components=3, decoder=(8,), coded_x=True, transformer=layers
    )
    save_pretrained(make_model("tnp", arch), Card("curves", [], 0, 0.0, "", 0, "", ""), tmp_path)
    monkeypatch.setattr("dsvnp.tabular.curves.SHIPPED", tmp_path)
    found = predict_function(X, np.sin(X), ASKED)
    assert found.shape == (1, arch.num_components, 1, 30, 1)


def test_the_network_for_tables_predicts_a_function_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr("dsvnp.tabular.curves.SHIPPED", tmp_path)  # no network here
    found = predict_function(X, np.sin(X), X)
    assert np.abs(found.mean[0, :, 0].numpy() - np.sin(X)).mean() < 0.3


def test_points_lie_outside_of_the_gap():
    example = next(each for each in EXAMPLES if each.gap != (0.0, 0.0))
    x, y = example.points(np.random.default_rng(0))
    assert len(x) == len(y) == example.count
    assert not ((x >= example.gap[0]) & (x < example.gap[1])).any()


def test_the_shipped_network_passes_through_points_and_is_unsure_between_them():
    few, gapped = EXAMPLES[1], next(each for each in EXAMPLES if each.gap != (0.0, 0.0))
    x, y = few.points(np.random.default_rng(0))
    known = np.sort(x)
    mean, width = mean_and_width(x, y, np.append(x, (known[:-1] + known[1:])[np.diff(known).argmax()] / 2))
    assert np.abs(mean[:-1] - y).max() < 0.2 * y.std()
    assert width[-1] > 2 * width[:-1].max()  # in the middle of the widest gap
    x, y = gapped.points(np.random.default_rng(0))
    asked = np.linspace(0, 10, 101)
    mean, width = mean_and_width(x, y, asked)
    error = np.abs(mean - gapped.function(asked))
    assert error.mean() < 0.1  # the season goes through the gap
    assert (error < 2 * width).all()


def mean_and_width(x, y, asked):
    """Mean, and the width of the central 68 % interval."""
    found = predict_function(x, y, asked)
    low, high = found.quantile([0.16, 0.84])[:, 0, :, 0].numpy()
    return found.mean[0, :, 0].numpy(), high - low
