"""The recipe: what it makes of the library's models, and of a model of one's own."""

import numpy as np
import pytest
import torch
from fitted import QUICK, labels, table
from torch import nn

from dsvnp import MODELS, Architecture, NPClassifier, NPRegressor, make_model
from dsvnp.models import NeuralProcess
from dsvnp.networks import MLP
from dsvnp.objectives import Draws
from dsvnp.tabular.trained.recipe import FitRecipe, SmoothMLP


class Tiny(NeuralProcess):
    """The hooks and nothing else: no decoder, no embedding, no latent."""

    name, summary = "tiny", "a network of x"

    def _build(self, embedding):
        self.net = nn.Sequential(
            nn.Linear(self.arch.dim_x, 16), nn.Tanh(), nn.Linear(16, self.likelihood.dim_raw)
        )

    def noise_shapes(self, num_tasks, num_targets, num_global, num_local, shared):
        return {}

    def draws(self, task, noise):
        raw = self.decode(None, task.x_target, noise)
        return Draws(self.likelihood.log_prob(raw, task.y_target), self.counted(task))

    def summarise(self, task, noise):
        return None

    def decode(self, summary, x_target, noise):
        return self.net(x_target)[None, None]


def test_a_model_of_ones_own_works_in_the_estimators(monkeypatch, tmp_path):
    monkeypatch.setitem(MODELS, "tiny", Tiny)
    quick = {**QUICK, "max_steps": 5}
    X, Y = table(rows=40)
    fitted = NPRegressor(**{**quick, "model": "tiny"}).fit(X, Y)
    assert isinstance(fitted.ensemble_.replicas[0].model, Tiny)
    assert np.isfinite(fitted.predict(X, return_std=True)).all()
    assert fitted.sample_y(X[:3], 3).shape == (3, 2, 3)
    again = NPRegressor.load(fitted.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    X, y = labels(rows=40)
    assert np.isfinite(NPClassifier(**{**quick, "model": "tiny"}).fit(X, y).predict_proba(X)).all()


def test_a_class_in_place_of_a_name_is_told_how_to_register():
    with pytest.raises(
        ValueError, match=r"register it with dsvnp\.MODELS\['tiny'\] = Tiny and pass model='tiny'"
    ):
        NPRegressor(Tiny).fit(*table(rows=20))


@pytest.mark.parametrize("model", MODELS)
def test_decoders_are_smooth_and_start_near_nothing(model):
    torch.manual_seed(0)
    if not isinstance(getattr(make_model(model, Architecture(2, 1)), "decoder", None), MLP):
        pytest.skip("this model decodes by a network of its own, as it may")
    decoder = FitRecipe(model=model, width=64).make(2, 1, "gaussian").decoder
    assert isinstance(decoder, SmoothMLP)
    assert max(float(p.detach().abs().max()) for p in decoder.rest[-1].parameters()) <= 0.1 / 64**0.5
