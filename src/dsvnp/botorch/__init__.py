"""Neural processes as surrogates of BoTorch (extra `botorch`): `NeuralProcessModel` and its posterior."""

from dsvnp.botorch.model import NeuralProcessModel
from dsvnp.botorch.posteriors import DrawSampler, FunctionPosterior

__all__ = ["DrawSampler", "FunctionPosterior", "NeuralProcessModel"]
