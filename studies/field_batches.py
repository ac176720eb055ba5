"""How far the means over the field's test batches may be off, by what the exact GP has there and on other batches.

    python -m studies.field_batches results/field

Tasks are drawn on the CPU, as `tests.drawn_on` has it. Every model's mean varies with the batches as the GP's does:

    corrected = mean on the table's batches − slope × (the GP's mean there − its mean on 24,000 other batches)

The slope is that of a line through the values of single batches of the kept network, DSVTNP, seed 0, which has no floor
under σ; with a floor it is taken to be 1, against the GP with the same floor. The table's "joint" of a model without
latents is its mean per point on the first 512 batches, which gives each of them a rough slope of its own as a check.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from itertools import islice
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
from dsvnp.sources.gp import Hyperparameters, KnownTask, gp_tasks
from dsvnp.sources.gp_exact import ExactLikelihoods, exact, integrated
from dsvnp.task import Task

CPU = torch.device("cpu")
KERNELS, NUM_POINTS = ("rbf", "matern52"), 50
TABLE, JOINT = 3000, 512  # batches of the table, per point and for whole tasks
FIRST = (500, JOINT, 1000, TABLE)
OTHERS, SEED = 24_000, 3_000_000  # batches of another seed
NODES = 24  # of the ideal learner, as in its row; it has the first batches that models have for whole tasks
FOLLOWED, DRAWS = 192, 32  # batches and draws of the kept network
PIECE = 128  # tasks whose matrices are factorised at once: more do not fit the processor's cache
Row = dict[str, Any]
Values = dict[tuple[str, str], Tensor]  # of each batch, by row of the table and split


def pieces(known: Iterable[KnownTask], size: int) -> Iterator[KnownTask]:
    """The same tasks, `size` at a time."""
    for task, hyper in known:
        for rows in torch.arange(task.num_tasks).split(size):
            some = Task(**{name: tensor[rows] for name, tensor in task.tensors().items()})
            yield KnownTask(some, Hyperparameters(*(values[rows] for values in hyper)))


def splits_of(row: str, found: Iterable[ExactLikelihoods]) -> Values:
    """Log-likelihoods of each batch, per point and for whole tasks."""
    pairs = ((batch_means(each.task_means()), batch_means(each.per_task)) for each in found)
    marginal, joint = map(torch.cat, zip(*pairs, strict=True))
    return {(row, "marginal"): marginal, (row, "joint"): joint}


def under_gp(kernel: str, known: Iterable[KnownTask]) -> Values:
    """Under the exact GP and, per point, with σ of at least 0.1."""
    parts: dict[tuple[str, str], list[Tensor]] = {}
    for task, hyper in pieces(known, PIECE):
        free, floored = (exact(task, hyper, PRIORS[kernel], floor) for floor in (0.0, 0.1))
        found = splits_of("gp", [free]) | {("gp-floor", "marginal"): batch_means(floored.task_means())}
        for name, values in found.items():
            parts.setdefault(name, []).append(values)
    return {name: torch.cat(values) for name, values in parts.items()}


def under_learner(known: Iterable[KnownTask]) -> Values:
    """The first batches under the ideal learner, who knows the prior of the training tasks alone."""
    some = islice(pieces(known, SHARE), JOINT)
    return splits_of("gp-integrated", [integrated(each.task, TRAINED, NODES) for each in some])


def others(kernel: str) -> Iterator[KnownTask]:
    """Batches that no table has."""
    generator = torch.Generator().manual_seed(SEED)
    for start in range(0, OTHERS * SHARE, PIECE):
        size = min(PIECE, OTHERS * SHARE - start)
        yield from gp_tasks(PRIORS[kernel], size, generator, size, SHARE, NUM_POINTS)


def rows_of(kernel: str, drawn: str, values: Values, sizes: Iterable[int]) -> list[Row]:
    """Means over the first batches, with their standard errors."""
    rows = []
    for (what, split), each in values.items():
        for size in sizes:
            about = {"kernel": kernel, "what": what, "split": split, "drawn": drawn, "batches": size}
            some = each[:size]
            rows.append({**about, "mean": float(some.mean()), "stderr": float(some.std() / size**0.5)})
    return rows


def ceilings(kernel: str) -> list[Row]:
    """The exact GP and the ideal learner on the table's batches, paired, and the GP on others."""
    known = draw_unseen(kernel, TABLE, NUM_POINTS, CPU)
    gp, learner = under_gp(kernel, known), under_learner(known)
    gap = {
        ("gp minus integrated", name[1]): gp["gp", name[1]][:JOINT] - each for name, each in learner.items()
    }
    return [
        *rows_of(kernel, "first", gp, FIRST),
        *rows_of(kernel, "first", learner | gap, (JOINT,)),
        *rows_of(kernel, "others", under_gp(kernel, others(kernel)), (OTHERS,)),
    ]


def kept_network(run: Path) -> NeuralProcess:
    """DSVTNP with the weights that are kept with the table."""
    label = Label("dsvtnp")
    net = make_model("dsvtnp", FieldExperiment.presets()["paper"].architecture(label))
    return load_weights(net, weights_path(run, label, 0)).eval()


def followed(kernel: str, net: NeuralProcess) -> Row:
    """The line through a network's log-likelihoods of batches, per point, against those of the exact GP."""
    known, parts = draw_unseen(kernel, FOLLOWED, NUM_POINTS, CPU), []
    for task in (each.task for each in known):
        assert task.in_context is not None
        asked = task.mask_target & ~task.in_context
        log_prob = seeded_predict(net, task, (DRAWS, 1)).log_prob(task.all_points()[0])
        parts.append(batch_means(torch.where(asked, log_prob, torch.nan).nanmean(-1)))
    x, y = under_gp(kernel, known)["gp", "marginal"], torch.cat(parts)
    slope = torch.cov(torch.stack([x, y]))[0, 1] / x.var()
    rest = (y - slope * x).std()
    about = {"kernel": kernel, "what": "dsvtnp, seed 0", "batches": len(x), "draws": DRAWS}
    return {
        **about,
        "slope": float(slope),
        "stderr": float(rest / x.std() / len(x) ** 0.5),
        "rest": float(rest),
    }


def corrected(results: list[Row], exactly: list[Row], lines: list[Row]) -> list[Row]:
    """Every network's mean per point on the table's batches, corrected by the GP with the same σ."""
    gp = {(r["kernel"], r["what"], r["batches"]): r["mean"] for r in exactly if r["split"] == "marginal"}
    slopes = {line["kernel"]: line["slope"] for line in lines}
    means = {(r["dataset"], r["model"], r["split"]): r for r in results if r["metric"] == "log-likelihood"}
    rows = []
    for (kernel, model, split), row in means.items():
        label = Label.parse(model)
        if kernel not in KERNELS or split != "marginal" or label.model == "gp":
            continue
        floor = has_floor(label.model) != label.variant.endswith("floor")
        here, some, elsewhere = (gp[kernel, "gp-floor" if floor else "gp", n] for n in (TABLE, JOINT, OTHERS))
        slope = 1.0 if floor else slopes[kernel]
        found = {"kernel": kernel, "model": model, "mean": row["mean"], "slope": slope}
        found["corrected"] = row["mean"] - slope * (here - elsewhere)
        if row["draws"][0] == 1:  # no latents
            found["own_slope"] = (means[kernel, model, "joint"]["mean"] - row["mean"]) / (some - here)
        rows.append(found)
    return rows


def written(found: dict[str, list[Row]]) -> str:
    """JSON with one row per line."""
    parts = []
    for name, rows in found.items():
        short = ({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
        parts.append(f' "{name}": [\n  ' + ",\n  ".join(map(json.dumps, short)) + "\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path, help="the table's folder, where batches.json is written")
    run = parser.parse_args().run
    exactly = [row for kernel in KERNELS for row in ceilings(kernel)]
    lines = [followed(kernel, kept_network(run)) for kernel in KERNELS]
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))["rows"]
    models = corrected(results, exactly, lines)
    text = written({"ceilings": exactly, "lines": lines, "models": models})
    (run / "batches.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
