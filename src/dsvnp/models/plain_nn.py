"""NN: the plain network, without dropout and without latents."""

from typing import final

from dsvnp.models.feedforward import Feedforward


@final
class PlainNN(Feedforward):
    """Plain network of x."""

    name = "nn"
    summary = "plain network of x: no context, no latent variable"

    @property
    def rate(self) -> float:
        """No dropout."""
        return 0.0
