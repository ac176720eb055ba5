"""Whether the estimators reach what they were made for, and where they lose, from the committed lines of `run.py`.

    python benchmarks/tables/goals.py results/tables > results/tables/test-goals.md    # --part validation: the other

Goals, as set before the test part was looked at: the lowest mean rank in NLL and CRPS; RMSE at most 5 % above that of
the best rival of each table on two thirds of the tables; accuracy not below that of boosted trees on two thirds, and
the lowest mean calibration error; against a model trained on each fold a lower NLL on three quarters of the tables at
1/20 of the CPU seconds (`PART-times.jsonl.gz`, of one machine); 90 % intervals that hold 87 to 93 % of the rows, the
mean over tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ranks import rank_rows
from run import Line, read_lines
from scipy.stats import binomtest
from summary import finished, scores

OURS, TREES = "np", "hgb"
ROUNDING = 1e-6  # of scores in the files
FEW = 500  # rows for training that a small table has not
Floats = NDArray[np.float64]
Goal = tuple[str, str, str, bool]  # what, its limit, what was found, and whether that is within the limit


class Scores:
    """Scores of our model and its rivals on the tables that all of them finished."""

    def __init__(self, lines: list[Line], kind: str) -> None:
        self.tables, self.models, self.pairs = finished(lines, kind)
        if OURS not in self.models or len(self.models) < 2 or not self.tables:
            raise ValueError(
                f"no {kind} table has all folds of {OURS} and a rival; run.py adds what is missing"
            )
        self.place = self.models.index(OURS)
        self.rivals = [model for model in self.models if model != OURS]

    def all(self, measure: str) -> Floats:
        """Scores, [tables, models]."""
        return scores(self.tables, self.models, self.pairs, measure)

    def of(self, model: str, measure: str) -> Floats:
        """Scores of a model, [tables]."""
        return self.all(measure)[:, self.models.index(model)]

    def best_rival(self, measure: str, best: str = "min") -> tuple[Floats, list[str]]:
        """On each table the best score of a rival, and whose it is."""
        others = np.delete(self.all(measure), self.place, axis=1)
        places = others.argmin(1) if best == "min" else others.argmax(1)
        return others[np.arange(len(others)), places], [self.rivals[place] for place in places]


def first(found: Scores, name: str, values: Floats) -> Goal:
    """Whether our value, the lower the better, is the lowest of all models."""
    order = np.argsort(values, kind="stable")
    listed = ", ".join(f"{found.models[place]} {values[place]:.3f}" for place in order)
    return name, "the lowest", listed, bool(values[found.place] < np.delete(values, found.place).min())


def share(name: str, tables: Sequence[str], holds: NDArray[np.bool_], least: float) -> Goal:
    """Whether something holds on a share of the tables."""
    interval = binomtest(int(holds.sum()), len(holds)).proportion_ci()
    missed = ", ".join(table for table, is_so in zip(tables, holds, strict=True) if not is_so)
    text = (
        f"{holds.sum()} of {len(holds)} ({holds.mean():.0%}; 95 %: {interval.low:.0%} to {interval.high:.0%})"
    )
    return name, f"{least:.0%}", text + (f"; not on {missed}" if missed else ""), bool(holds.mean() >= least)


def number_goals(found: Scores) -> list[Goal]:
    """Goals of regression."""
    ranks = {name: rank_rows(found.all(name)).mean(0) for name in ("nll", "crps")}
    close = found.of(OURS, "rmse") <= 1.05 * found.best_rival("rmse")[0]
    covered = float(found.of(OURS, "coverage").mean())
    return [
        first(found, "mean rank, NLL", ranks["nll"]),
        first(found, "mean rank, CRPS", ranks["crps"]),
        share("RMSE within 5 % of the best rival", found.tables, close, 2 / 3),
        ("rows in 90 % intervals", "87 to 93 %", f"{covered:.1%}", 0.87 <= covered <= 0.93),
    ]


def class_goals(found: Scores) -> list[Goal]:
    """Goals of classification."""
    not_below = found.of(OURS, "accuracy") >= found.of(TREES, "accuracy") - ROUNDING
    return [
        share("accuracy not below that of boosted trees", found.tables, not_below, 2 / 3),
        first(found, "mean calibration error", found.all("ece").mean(0)),
    ]


def trained_goals(ours: list[Line], trained: list[Line], times: list[Line]) -> list[Goal]:
    """Goals against one model that is trained on each fold, on the folds that it has; `times` are of one machine."""
    rival, keys = trained[0]["model"], {(line["table"], line["fold"]) for line in trained}
    common = trained + [line for line in ours if (line["table"], line["fold"]) in keys]
    lower = means(common, OURS, "nll") < means(common, rival, "nll")
    name = f"NLL below that of {rival}, {len({fold for _, fold in keys})} folds"
    own, theirs = means(times, OURS, "cpu_seconds"), means(times, rival, "cpu_seconds")
    ratio, total = theirs / own, theirs.sum() / own.sum()
    text = (
        f"{total:.1f} times (all tables: {own.mean():.2f} and {theirs.mean():.1f} s per fold); median of the tables "
        f"{np.median(ratio):.1f}, at least 20 on {(ratio >= 20).sum()} of {len(ratio)}"
    )
    return [
        share(name, sorted({table for table, _ in keys}), lower, 3 / 4),
        (f"CPU seconds of {rival} over ours", "20", text, bool(total >= 20)),
    ]


def means(lines: list[Line], model: str, measure: str) -> Floats:
    """Mean score of a model on each table, in the order of their names, [tables]."""
    values: dict[str, list[float]] = {table: [] for table in sorted(line["table"] for line in lines)}
    for line in lines:
        if line["model"] == model:
            values[line["table"]].append(line[measure])
    return np.array([np.mean(of_table) for of_table in values.values()])


def losses(found: Scores, measure: str, other: str, most: int) -> list[str]:
    """Lines of Markdown: tables on which we are behind the best rival most, by one measure, next to another."""
    is_rmse, best = measure == "rmse", "max" if measure == "accuracy" else "min"
    rival, names = found.best_rival(measure, best)
    ours = found.of(OURS, measure)
    behind = ours / rival if is_rmse else (rival - ours if best == "max" else ours - rival)
    also = found.of(OURS, other) - found.best_rival(other, "max" if other == "accuracy" else "min")[0]
    label = "RMSE over the best rival's" if is_rmse else f"{measure} behind the best rival"
    text = [f"| table | rows | {label} | rival | {other} minus the best rival's |", "| --- |" + " --- |" * 4]
    for place in np.argsort(-behind, kind="stable")[:most]:
        table = found.tables[place]
        rows = found.pairs[table, OURS][0]["rows"]
        text.append(
            f"| {table} | {rows} | {behind[place]:.3f} | {names[place]} {rival[place]:.3f} | {also[place]:+.3f} |"
        )
    return text


def calibration(found: Scores) -> list[str]:
    """Lines of Markdown: how much of each model's calibration error is there for right confidences too, by chance.

    The signed error, confidence minus accuracy, tells whether a model is systematically too sure.
    """
    errors, floors, signed = (found.all(name) for name in ("ece", "ece_floor", "overconfidence"))
    few = np.array([found.pairs[table, OURS][0]["rows"] < FEW for table in found.tables])
    text = [
        "| model | mean calibration error | by chance alone | above it "
        f"| confidence − accuracy, {few.sum()} tables with fewer than {FEW} rows | … {(~few).sum()} larger ones |",
        "| --- |" + " --- |" * 5,
    ]
    for place, model in enumerate(found.models):
        cells = [f"{values[:, place].mean():.4f}" for values in (errors, floors)]
        cells.append(with_error(errors[:, place] - floors[:, place], ""))
        cells += [with_error(signed[some, place], "+") for some in (few, ~few)]
        text.append(f"| {model} | {' | '.join(cells)} |")
    return text


def with_error(values: Floats, sign: str) -> str:
    """Mean over tables and its standard error; nothing for fewer than two tables."""
    if len(values) < 2:
        return "–"
    return f"{values.mean():{sign}.4f} ± {values.std(ddof=1) / len(values) ** 0.5:.4f}"


def report(folder: Path, part: str, most: int) -> list[str]:
    """Lines of Markdown: the goals, and for each measure the tables on which we are furthest behind."""
    ours, rivals = (
        read_lines(folder / f"{part}-ours.jsonl.gz"),
        read_lines(folder / f"{part}-baselines.jsonl.gz"),
    )
    numbers, classes = Scores(ours + rivals, "regression"), Scores(ours + rivals, "classification")
    goals = number_goals(numbers) + class_goals(classes)
    times = read_lines(folder / f"{part}-times.jsonl.gz")
    for name in ("version-0.1", "trained"):
        if trained := read_lines(folder / f"{part}-{name}.jsonl.gz"):
            goals += trained_goals(ours, trained, times)
    text = ["| goal | limit | found | reached |", "| --- | --- | --- | --- |"]
    for name, limit, what, is_reached in goals:
        text.append(f"| {name} | {limit} | {what} | {'yes' if is_reached else 'no'} |")
    text += ["", *calibration(classes)]
    for found, measure, other in (
        (numbers, "rmse", "nll"),
        (numbers, "nll", "crps"),
        (classes, "accuracy", "log_loss"),
        (classes, "log_loss", "accuracy"),
    ):
        text += ["", *losses(found, measure, other, most)]
    return text


def main() -> None:
    """Read the options, print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="with PART-ours.jsonl.gz, PART-baselines.jsonl.gz and more")
    parser.add_argument("--part", choices=["validation", "test"], default="test")
    parser.add_argument("--most", type=int, default=100, help="tables in each list of losses")
    args = parser.parse_args()
    print(f"# Goals, {args.part} part\n")
    print("\n".join(report(args.folder, args.part, args.most)))


if __name__ == "__main__":
    main()
