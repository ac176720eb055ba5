"""The registered models; a new one is one file and one line here."""

from torch import nn

from dsvnp.models.architecture import Architecture
from dsvnp.models.attn_np import AttnNP
from dsvnp.models.base import NeuralProcess
from dsvnp.models.cnp import CNP
from dsvnp.models.dsvnp import DSVNP
from dsvnp.models.dsvtnp import DSVTNP
from dsvnp.models.mc_dropout import MCDropout
from dsvnp.models.plain_nn import PlainNN
from dsvnp.models.tabtnp import TabTNP
from dsvnp.models.tnp import TNP
from dsvnp.models.transformer import Transformer
from dsvnp.models.vanilla_np import NP
from dsvnp.naming import lookup

MODELS: dict[str, type[NeuralProcess]] = {
    model.name: model for model in (PlainNN, MCDropout, CNP, NP, AttnNP, DSVNP, TNP, DSVTNP, TabTNP)
}


def make_model(name: str, arch: Architecture, embedding: nn.Module | None = None) -> NeuralProcess:
    """Make a model by the name a user types; `dsvnp models` lists them."""
    return lookup(name, MODELS, "model")(arch, embedding)


__all__ = ["MODELS", "Architecture", "NeuralProcess", "Transformer", "make_model"]
