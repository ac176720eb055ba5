"""Neural processes as surrogates of BoTorch (extra `botorch`): `NeuralProcessModel`, its posterior and acquisition."""

from dsvnp.botorch.acquisition import MixtureLogEI
from dsvnp.botorch.model import NeuralProcessModel
from dsvnp.botorch.panel import PanelLogEI
from dsvnp.botorch.posteriors import DrawSampler, FunctionPosterior

__all__ = ["DrawSampler", "FunctionPosterior", "MixtureLogEI", "NeuralProcessModel", "PanelLogEI"]
