"""Does `fit_tasks` gain by starting from the pretrained network for curves? Fine-tuning against training from scratch.

    OMP_NUM_THREADS=1 python -m studies.tasks_from_pretrained OUT.jsonl [--families sensors,oscillators]

Families, tasks and scores are those of `benchmarks/tasks.py`, seed 0. Both ways train one replica on the same tables:
`pretrained` starts from the shipped weights (1.4 million, a mixture of twelve normals), `scratch` trains the small
network with rotary attention that `fit_tasks` chooses today. `as is` is `CurveRegressor`, which no table teaches
anything. `docs/decisions/0008-tasks-from-scratch.md` says what came out.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import tasks as benchmark
from dsvnp import CurveRegressor
from dsvnp.models import NeuralProcess
from dsvnp.pretrained import load_pretrained
from dsvnp.tabular.trained.recipe import FitRecipe, recipes_for_tasks

AS_IS = "as is"
RATES = {"pretrained": 1e-3, "scratch": 2e-3}
STEPS = {"pretrained": 200, "scratch": 1000}


def for_inputs(model: NeuralProcess, dim_x: int) -> NeuralProcess:
    """The network for curves as one for so many inputs without codes, to be trained further in a fleet."""
    layers = replace(model.arch.transformer, fused=False)
    made = type(model)(replace(model.arch, dim_x=dim_x, coded_x=False, transformer=layers))
    tensors = model.state_dict()
    waves = {name: value[..., :dim_x] for name, value in tensors.items() if name.endswith("frequencies")}
    made.load_state_dict(tensors | waves)
    return made


@dataclass(frozen=True)
class Started(FitRecipe):
    """A recipe whose model begins with the shipped weights."""

    def make(self, dim_x: int, dim_y: int, likelihood: str) -> NeuralProcess:
        """Make the model that training starts from."""
        return for_inputs(load_pretrained("curves"), dim_x).train()


def recipe_of(way: str, typical_rows: int, effort: str, changes: dict[str, Any]) -> FitRecipe:
    """The recipe of `fit_tasks` with rotary attention, or the same from the shipped weights."""
    usual = replace(
        recipes_for_tasks(typical_rows, effort, changes)[0], num_steps=STEPS[way], learning_rate=RATES[way]
    )
    if way == "scratch":
        return usual
    return Started(**{**vars(usual), "validate_every": 50, "evenness": 0.0})


def measure_start(way: str, family: str, new: int) -> dict[str, Any]:
    """Scores of one way on one family."""
    if way == AS_IS:
        return measure_as_is(family, new)
    with patch("dsvnp.tabular.learner.recipes_for_tasks", lambda *options: [recipe_of(way, *options)]):
        row = benchmark.measure(family, 0, new, n_replicas=1)
    kept = {name: value for name, value in row.items() if not name.startswith("GP")}
    return {"way": way, "rate": RATES[way], "steps": STEPS[way], **kept}


def measure_as_is(family: str, new: int) -> dict[str, Any]:
    """Scores of the pretrained network, which reads each new task alone."""
    row: dict[str, Any] = {"way": AS_IS, "family": family, "seed": 0, "cpu_seconds": 0.0}
    for known in benchmark.KNOWN:
        each = []
        for x, y in benchmark.tables(family, new, 2000, rows=max(benchmark.KNOWN) + benchmark.ASKED):
            curve = CurveRegressor().fit(x[:known], y[:known])
            asked, truth = x[-benchmark.ASKED :], y[-benchmark.ASKED :]
            each.append(np.stack([(curve.predict(asked) - truth) ** 2, -curve.log_prob(asked, truth)]))
        row[f"NP {known}"] = benchmark.averages(each)
    return row


def main() -> None:
    """Measure what a file lacks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--families", default=",".join(benchmark.FAMILIES))
    parser.add_argument("--new", type=int, default=benchmark.NEW)
    options = parser.parse_args()
    lines = (
        [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.is_file() else []
    )
    for family in options.families.split(","):
        for way in (AS_IS, *STEPS):
            if not any((line["way"], line["family"]) == (way, family) for line in lines):
                lines.append(measure_start(way, family, options.new))
                options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
                print(json.dumps(lines[-1]), flush=True)


if __name__ == "__main__":
    main()
