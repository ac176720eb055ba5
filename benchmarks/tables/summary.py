"""What lines of `run.py` add up to: mean ranks, a table per measure, and a critical-difference plot.

    python benchmarks/tables/summary.py FILE.jsonl … --kind regression --out FOLDER

A score of a table is the mean over its folds; the calibration error is that of all test rows of a table together.
Ranks compare the models on tables that all of them finished.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from predictives import calibration_error, calibration_floor, overconfidence
from ranks import critical_difference, draw, friedman, rank_rows
from reading import NUM_FOLDS
from run import Line, read_lines

from dsvnp.plotting.style import save

MEASURES = {
    "regression": {"nll": True, "crps": True, "rmse": True},  # True: lower is better
    "classification": {"accuracy": False, "log_loss": True, "ece": True},
}
OF_BINS = {"ece": calibration_error, "ece_floor": calibration_floor, "overconfidence": overconfidence}
ALSO = {"regression": ["coverage", "cpu_seconds"], "classification": ["cpu_seconds"]}


def score_of(lines: list[Line], measure: str) -> float:
    """One number for the folds of a table."""
    if (of_bins := OF_BINS.get(measure)) is not None:
        return of_bins(np.sum([line["bins"] for line in lines], axis=0))
    return float(np.mean([line[measure] for line in lines]))


def finished(lines: list[Line], kind: str) -> tuple[list[str], list[str], dict[tuple[str, str], list[Line]]]:
    """Tables on which every model has all folds, the models, and the lines of each pair."""
    pairs: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        if line["kind"] == kind:
            pairs[line["table"], line["model"]].append(line)
    models = sorted({model for _, model in pairs})
    tables = sorted({table for table, _ in pairs})
    full = [
        table
        for table in tables
        if all(len({line["fold"] for line in pairs.get((table, model), [])}) == NUM_FOLDS for model in models)
    ]
    return full, models, pairs


def scores(
    tables: list[str], models: list[str], pairs: dict[tuple[str, str], list[Line]], measure: str
) -> NDArray[np.float64]:
    """Scores, [tables, models]."""
    return np.array([[score_of(pairs[table, model], measure) for model in models] for table in tables])


def summary(lines: list[Line], kind: str) -> tuple[list[str], dict[str, Any]]:
    """Lines of Markdown, and for each measure what a plot needs: names, mean ranks and the critical difference."""
    tables, models, pairs = finished(lines, kind)
    if not tables or len(models) < 2:
        raise ValueError(
            f"no {kind} table has all {NUM_FOLDS} folds of two models or more; run.py adds what is missing"
        )
    difference = critical_difference(len(models), len(tables))
    found = {measure: scores(tables, models, pairs, measure) for measure in [*MEASURES[kind], *ALSO[kind]]}
    ranks = {name: rank_rows(found[name], lower) for name, lower in MEASURES[kind].items()}
    text = [
        f"# {kind.capitalize()}, {len(tables)} tables, {NUM_FOLDS} folds",
        "",
        f"Mean ranks; two differ if they are {difference:.2f} apart (Nemenyi, 5 %).",
        "",
        "| model | "
        + " | ".join([f"rank, {name}" for name in ranks] + [f"mean {name}" for name in found])
        + " |",
        "| --- |" + " --- |" * (len(ranks) + len(found)),
    ]
    for place, model in enumerate(models):
        cells = [f"{values[:, place].mean():.2f}" for values in ranks.values()]
        cells += [f"{values[:, place].mean():.3f}" for values in found.values()]
        text.append(f"| {model} | " + " | ".join(cells) + " |")
    chances = ", ".join(f"{name} {friedman(values)[1]:.2g}" for name, values in ranks.items())
    text += ["", f"Friedman's test, probability of ranks so far apart if all were alike: {chances}."]
    for measure in MEASURES[kind]:
        text += [
            "",
            f"## {measure}",
            "",
            "| table | " + " | ".join(models) + " |",
            "| --- |" + " --- |" * len(models),
        ]
        for table, row in zip(tables, found[measure], strict=True):
            text.append(f"| {table} | " + " | ".join(f"{value:.3f}" for value in row) + " |")
    return text, {name: (models, values.mean(0), difference) for name, values in ranks.items()}


def save_plot(plots: dict[str, Any], path: Path) -> None:
    """Draw one diagram per measure below each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.4 * len(plots)), layout="constrained")
    for axes, (measure, (names, ranks, difference)) in zip(
        figure.subplots(len(plots), squeeze=False)[:, 0], plots.items(), strict=True
    ):
        draw(axes, names, ranks, difference, measure)
    save(figure, path)


def main() -> None:
    """Read the options, write the Markdown and the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--kind", choices=list(MEASURES), required=True)
    parser.add_argument("--models", default="", help="some models only, with commas")
    parser.add_argument("--out", type=Path, help="a folder for KIND.md and KIND.svg")
    args = parser.parse_args()
    lines = [line for path in args.files for line in read_lines(path)]
    wanted = set(args.models.split(",")) if args.models else {line["model"] for line in lines}
    text, plots = summary([line for line in lines if line["model"] in wanted], args.kind)
    print("\n".join(text))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"{args.kind}.md").write_text("\n".join(text) + "\n", encoding="utf-8")
        save_plot(plots, args.out / f"{args.kind}.svg")


if __name__ == "__main__":
    main()
