"""Recipe: how an experiment trains a model, in a few numbers that make sense for a run of any length."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from dsvnp.models import Architecture
from dsvnp.objectives import Objective
from dsvnp.training import Adam, Schedule, Settings

MOST_WARMUP = 1000  # steps


@dataclass(frozen=True)
class Recipe:
    """A named set of settings of training; experiments add further ones.

    Selections do not write down settings that have their default: no default may change.
    """

    learning_rate: float = 1e-3  # of Adam
    schedule: str = "constant"  # "constant" or "cosine"
    warmup: float = 0.0  # share of the steps over which the rate rises, 1000 steps at most
    weight_decay: float = 0.0  # of AdamW; 0 makes it Adam
    beta_local: float = 1.0  # weight of the local divergence
    beta_global: float = 1.0  # weight of the global divergence
    # share of the steps over which the weights of the divergences rise from 0; 0 for none
    anneal: float = 0.0
    anneal_local: bool = True  # whether that of the local divergence does so too
    train_global: int = 1  # draws of z_G in training
    train_local: int = 1  # draws of each z_* in training
    clip: float | None = None  # largest norm of a gradient; None for any
    kind: str = "elbo"  # what is maximised, see `Objective`

    def settings(self, num_steps: int, **others: Any) -> Settings:
        """The settings of a training of so many steps; `others` are further settings."""
        objective = Objective(
            self.beta_local,
            self.beta_global,
            **annealed_over(self.anneal, num_steps),
            anneal_local=self.anneal_local,
            num_global=self.train_global,
            num_local=self.train_local,
            kind=self.kind,
        )
        kind = "adamw" if self.weight_decay else "adam"
        usual = {"log_every": max(10, num_steps // 100), "checkpoint_every": max(10, num_steps // 8)}
        return Settings(
            num_steps,
            self.learning_rate,
            Adam(kind, weight_decay=self.weight_decay, clip_norm=self.clip),
            Schedule(self.schedule, min(MOST_WARMUP, steps_of(self.warmup, num_steps))),
            objective,
            **usual | others,
        )


# The recipe `default` of a local latent, as changes of another: the likelihood under the priors is maximised, and the
# weights of the divergences rise from 0 over the first quarter of the steps. The best of seven in results/local-latent,
# where z_* has four numbers. The ambiguity experiment and the field's table change one setting each, see
# docs/guides/ambiguity.md.
LOCAL_DEFAULT: dict[str, Any] = {"kind": "npml", "train_global": 2, "train_local": 4, "anneal": 0.25}
DIM_LOCAL = 4


def steps_of(share: float, num_steps: int) -> int:
    """A share of the steps as a number of them, at least one if it is any; rounding errors do not add one."""
    return math.ceil(share * num_steps - 1e-9)


def annealed_over(share: float, num_steps: int) -> dict[str, Any]:
    """Settings of an objective whose weights rise from 0 over a share of the steps."""
    return {"anneal": "linear", "anneal_steps": steps_of(share, num_steps)} if share else {}


@dataclass(frozen=True)
class Change:
    """Changes that an ablation makes to an experiment's architecture and objective."""

    arch: dict[str, Any] = field(default_factory=dict)  # settings of the architecture
    objective: dict[str, Any] = field(default_factory=dict)  # settings of the objective
    anneal: float = 0.0  # share of the training over which the weights of both divergences rise from 0

    def apply(self, arch: Architecture, settings: Settings) -> tuple[Architecture, Settings]:
        """The architecture and the settings with the change."""
        changes = self.objective | annealed_over(self.anneal, settings.num_steps)
        return replace(arch, **self.arch), replace(settings, objective=replace(settings.objective, **changes))


NO_CHANGE = Change()
