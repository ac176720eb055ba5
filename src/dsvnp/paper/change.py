"""Change: what an ablation changes of an experiment's architecture and objective."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dsvnp.models import Architecture
from dsvnp.training import Settings


@dataclass(frozen=True)
class Change:
    """What an ablation changes.

    Attributes:
        arch: settings of the architecture.
        objective: settings of the objective.
        anneal: share of the training over which the weights of both divergences rise from 0.
    """

    arch: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    anneal: float = 0.0

    def apply(self, arch: Architecture, settings: Settings) -> tuple[Architecture, Settings]:
        """The architecture and the settings with the change."""
        changes = dict(self.objective)
        if self.anneal:
            changes |= {"anneal": "linear", "anneal_steps": int(self.anneal * settings.num_steps)}
        return replace(arch, **self.arch), replace(settings, objective=replace(settings.objective, **changes))


NO_CHANGE = Change()
