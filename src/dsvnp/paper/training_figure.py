"""The terms of the bound while models were trained: are the latents used?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from dsvnp.paper.experiment import UnitResult
from dsvnp.plotting.figures import Line, lines_figure

TERMS = {"log_likelihood": "log-likelihood", "kl_global": "KL_G", "kl_local": "KL_L"}
LOSS = "cross-entropy"


def training_figure(
    units: Sequence[UnitResult], path: Path, unit: str = "nats/point", loss: bool = False
) -> Path:
    """Draw each term, all seeds of a model together; a model that lacks a divergence is not in its plot.

    KL_L is on a logarithmic axis: it spans decades, and a latent that is hardly used is not one that is not used.

    Args:
        units: what was run; `extras["training"]` is what `Experiment.training_log` gave.
        path: where to save.
        unit: of the terms.
        loss: draw the likelihood of classes as what it lacks to 0, on a logarithmic axis.
    """
    panels = []
    for term, title in (TERMS | {"log_likelihood": LOSS} if loss else TERMS).items():
        lines: dict[str, Line] = {}
        for run in units:
            course = run.extras["training"]
            seeds = [[math.nan if v is None else v for v in seed] for seed in zip(*course[term], strict=True)]
            if any(value != 0 for seed in seeds for value in seed if not math.isnan(value)):
                before = lines.get(run.model, Line(course["step"], []))
                if title == LOSS:
                    seeds = [[-value for value in seed] for seed in seeds]
                lines[run.model] = Line(before.x, [*before.y, *seeds])
        if lines:
            panels.append((title, "step", unit, lines))
    return lines_figure(panels, path, log_y=[title in (LOSS, TERMS["kl_local"]) for title, *_ in panels])
