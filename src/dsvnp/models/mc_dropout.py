"""MC-Dropout: a draw of dropout masks represents a draw of the weights (Gal & Ghahramani, 2016)."""

from typing import final

from dsvnp.models.feedforward import Feedforward


@final
class MCDropout(Feedforward):
    """Network of x with dropout in its encoder, in training and in prediction; a draw is a set of masks."""

    name = "mc-dropout"
    summary = "network of x with Monte-Carlo dropout: no context, random masks in place of a latent variable"

    @property
    def rate(self) -> float:
        """The architecture's rate."""
        return self.arch.dropout
