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
