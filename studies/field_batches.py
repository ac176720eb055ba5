"""How far the means over the field's test batches may be off, by what the exact GP has there and on other batches.

    python -m studies.field_batches results/field

Tasks are drawn on the CPU, as `tests.drawn_on` has it. Every model's mean varies with the batches as the GP's does:

    corrected = mean on the table's batches − slope × (the GP's mean there − its mean on 24,000 other batches)

The slope is that of a line through the values of single batches of the kept network, DSVTNP, seed 0. A model without
latents has a rough slope of its own: the table's "joint" is its mean on the first 512 batches.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsvnp.models import NeuralProcess, make_model
from dsvnp.paper.field.experiment import FieldExperiment
from dsvnp.paper.field.recipe import has_floor
from dsvnp.paper.field.unseen import PRIORS, SHARE, TRAINED, batch_means, draw_unseen
from dsvnp.paper.label import Label
from dsvnp.paper.measuring import seeded_predict
from dsvnp.paper.weights import load_weights, weights_path
from dsvnp.sources.gp import KnownTask, gp_tasks
from dsvnp.sources.gp_exact import exact, integrated

CPU = torch.device("cpu")
KERNELS = ("rbf", "matern52")
FIRST = (500, 512, 1000, 3000)  # of the table: GP with integrated hyper-parameters, joint, with latents, all
OTHERS, GROUP, SEED = 24_000, 480, 3_000_000  # batches of another seed, and how many are drawn at once
NODES = 10  # per hyper-parameter that is integrated over; the table's row has 24
FOLLOWED, DRAWS = 192, 32  # batches and draws of the kept network
NUM_POINTS = 50
Values = dict[tuple[str, str], Tensor]  # of each batch, by row of the table and split


def values_of(kernel: str, groups: Iterable[list[KnownTask]]) -> Values:
    """Log-likelihoods of each batch under the exact GP and, per point, with σ of at least 0.1."""
    found: dict[tuple[str, str], list[Tensor]] = {}
    for known in (each for group in groups for each in group):
        free, floored = (exact(known.task, known.hyper, PRIORS[kernel], floor) for floor in (0.0, 0.1))
        parts = {("gp", "marginal"): free.task_means(), ("gp", "joint"): free.per_task}
        for name, part in (parts | {("gp-floor", "marginal"): floored.task_means()}).items():
            found.setdefault(name, []).append(batch_means(part))
    return {name: torch.cat(parts) for name, parts in found.items()}


def others(kernel: str, num_batches: int) -> Iterator[list[KnownTask]]:
    """Batches that no table has, some at a time."""
    generator = torch.Generator().manual_seed(SEED)
    for start in range(0, num_batches, GROUP):
        size = min(GROUP, num_batches - start) * SHARE
        yield gp_tasks(PRIORS[kernel], size, generator, size, SHARE, NUM_POINTS)


def row_of(kernel: str, what: str, split: str, drawn: str, values: Tensor) -> dict[str, Any]:
    """Mean and standard error over batches."""
    about = {"kernel": kernel, "what": what, "split": split, "drawn": drawn, "batches": len(values)}
    return {**about, "mean": float(values.mean()), "stderr": float(values.std() / len(values) ** 0.5)}


def exact_rows(kernel: str) -> list[dict[str, Any]]:
    """The exact GP on the first batches and on others, and the ideal learner on equal batches."""
    whole = values_of(kernel, [draw_unseen(kernel, max(FIRST), NUM_POINTS, CPU)])
    drawn = partial(row_of, kernel)
    rows = [drawn(*name, "first", part[:size]) for name, part in whole.items() for size in FIRST]
    rows += [drawn(*name, "others", part) for name, part in values_of(kernel, others(kernel, OTHERS)).items()]
    known = draw_unseen(kernel, min(FIRST), NUM_POINTS, CPU)
    learner = [integrated(each.task, TRAINED, NODES) for each in known]
    for split, parts in (
        ("marginal", [each.task_means() for each in learner]),
        ("joint", [each.per_task for each in learner]),
    ):
        mean = batch_means(torch.cat(parts))
        gap = values_of(kernel, [known])["gp", split] - mean
        rows += [drawn("gp-integrated", split, "first", mean), drawn("gp minus integrated", split, "first", gap)]
    return rows


def kept_network(run: Path) -> NeuralProcess:
    """DSVTNP with the weights that are kept with the table."""
    label = Label("dsvtnp")
    net = make_model("dsvtnp", FieldExperiment.presets()["paper"].architecture(label))
    return load_weights(net, weights_path(run, label, 0)).eval()


def followed(kernel: str, net: NeuralProcess, num_batches: int) -> dict[str, Any]:
    """The line through a network's log-likelihoods of batches, per point, against those of the exact GP."""
    known = draw_unseen(kernel, num_batches, NUM_POINTS, CPU)
    parts = []
    for task in (each.task for each in known):
        assert task.in_context is not None
        asked = task.mask_target & ~task.in_context
        log_prob = seeded_predict(net, task, (DRAWS, 1)).log_prob(task.all_points()[0])
        parts.append(batch_means(torch.where(asked, log_prob, torch.nan).nanmean(-1)))
    x, y = values_of(kernel, [known])["gp", "marginal"], torch.cat(parts)
    slope = torch.cov(torch.stack([x, y]))[0, 1] / x.var()
    rest = (y - slope * x).std()
    about = {"kernel": kernel, "what": "dsvtnp, seed 0", "batches": len(x), "draws": DRAWS}
    return {**about, "slope": float(slope), "stderr": float(rest / x.std() / len(x) ** 0.5), "rest": float(rest)}


def corrected(
    results: list[dict[str, Any]], gp: list[dict[str, Any]], lines: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Every network's mean per point, corrected by the GP with the same σ; the error is without that over seeds."""
    exactly = {(r["kernel"], r["what"], r["split"], r["drawn"], r["batches"]): r for r in gp}
    table = {
        (r["dataset"], r["model"], r["split"]): r for r in results if r["metric"] == "log-likelihood"
    }
    rows = []
    for (kernel, model, split), row in table.items():
        label = Label.parse(model)
        if kernel not in KERNELS or split != "marginal" or label.model == "gp":
            continue
        floor = has_floor(label.model) != label.variant.endswith("floor")
        here = partial(lambda *key: exactly[key], kernel, "gp-floor" if floor else "gp", "marginal")
        all_of_them, elsewhere, some = here("first", 3000), here("others", OTHERS), here("first", 512)
        (line,) = (each for each in lines if each["kernel"] == kernel)
        shift = line["slope"] * (all_of_them["mean"] - elsewhere["mean"])
        error = (line["rest"] ** 2 / 3000 + (line["slope"] * elsewhere["stderr"]) ** 2) ** 0.5
        found = {"kernel": kernel, "model": model, "mean": row["mean"], "corrected": row["mean"] - shift}
        joint = table[kernel, model, "joint"]
        if joint["draws"][0] == 1:  # no latents: the mean per point of the first 512
            own = (joint["mean"] - row["mean"]) / (some["mean"] - all_of_them["mean"])
            found["own_slope"] = own
        rows.append({**found, "stderr": error})
    return rows


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path, help="the table's folder, where batches.json is written")
    run = parser.parse_args().run
    gp = [row for kernel in KERNELS for row in exact_rows(kernel)]
    lines = [followed(kernel, kept_network(run), FOLLOWED) for kernel in KERNELS]
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))["rows"]
    found = {"gp": gp, "lines": lines, "models": corrected(results, gp, lines)}
    parts = []
    for name, rows in found.items():
        texts = (json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}) for row in rows)
        parts.append(f' "{name}": [\n  ' + ",\n  ".join(texts) + "\n ]")
    (run / "batches.json").write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
