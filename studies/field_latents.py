"""How far functions of the field's DSVTNP differ, by draws of z_G and by chains, from its kept weights.

    python -m studies.field_latents results/field

`share` is the part of the predictive variance that is due to z_G, `spread` the standard deviation between functions, a
root mean square over the targets; draws of z_* are averaged out. A chain visits every target: its functions should
differ by about the standard deviation of the prediction. Of all rows `shown` is the spread of the three functions in
`functions.svg` over both curves, which for DSVNP and DSVTNP average over 16 draws of each z_*.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dsvnp.models import NeuralProcess
from dsvnp.paper.field.unseen import SHARE, compact, draw_unseen
from dsvnp.paper.records import read_units
from dsvnp.task import Task
from studies.field_batches import CPU, KERNELS, NUM_POINTS, kept_network

NUM_BATCHES, GLOBAL, CHAINS, LOCAL = 8, 32, 8, 8  # tested batches, draws of z_G, chains, draws of each z_*
CHUNK = 2000  # targets that are decoded at once, points that are encoded at once


@torch.no_grad()
def measure(net: NeuralProcess, task: Task, generator: torch.Generator) -> dict[str, float]:
    """Share and spread by z_G, and spread by chains."""
    usual: dict[str, Any] = {"num_local": LOCAL, "generator": generator, "chunk": CHUNK}
    by_latent = net.predict(task, GLOBAL, **usual)
    by_chain = net.predict(task, CHAINS, autoregressive=True, **usual)
    found = {}
    for name, predictive in (("latent", by_latent), ("chain", by_chain)):
        count = predictive.shape[0]
        between = predictive.epistemic[task.mask_target].mean() * count / (count - 1)
        found[f"spread_{name}"] = float(between.sqrt())
    variance = by_latent.variance[task.mask_target].mean()
    return {
        "share": found["spread_latent"] ** 2 / float(variance),
        "deviation": float(variance.sqrt()),
        **found,
    }


def shown(unit: dict[str, Any]) -> float:
    """The standard deviation between the functions that a row's panels show, a root mean square over the grids."""
    panels = (np.asarray(panel["draws"], float) for panel in unit["extras"]["panels"].values())
    return float(np.mean([draws.var(0, ddof=1).mean() for draws in panels]) ** 0.5)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path, help="the table's folder, where latents.json is written")
    run = parser.parse_args().run
    net, rows = kept_network(run), []
    for kernel in KERNELS:
        (task,) = compact(draw_unseen(kernel, NUM_BATCHES, NUM_POINTS, CPU))
        about = {"kernel": kernel, "model": "dsvtnp", "seed": 0, "tasks": NUM_BATCHES * SHARE}
        rows.append({**about, **measure(net, task, torch.Generator().manual_seed(0))})
    units = [unit for unit in read_units(run)["units"] if unit["extras"].get("panels")]
    rows += [{"model": unit["model"], "shown": shown(unit)} for unit in units]
    lines = [
        json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}) for row in rows
    ]
    (run / "latents.json").write_text("[\n " + ",\n ".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
