"""Table and figure of the benchmark: median regrets, mean ranks, regret curves.

Normalised regret is regret divided by that of the first five points. Ranks are taken for each function and seed among
the methods of a table; equal regrets share their mean rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata

from dsvnp.plotting.figures import add_legend
from dsvnp.plotting.style import COLOURS, house_style, save

SINGLE, FAMILIES = ("branin", "hartmann", "ackley"), ("branins", "hartmanns")
TITLES = {
    "branin": "Branin",
    "hartmann": "Hartmann-6",
    "ackley": "Ackley-5",
    "branins": "related Branins",
    "hartmanns": "related Hartmann-6",
}
NAMES = {
    "random": ("random search", COLOURS["nn"]),
    "gp": ("SingleTaskGP", COLOURS["gp"]),
    "panel": ("panel of Gaussian processes", COLOURS["cnp"]),
    "tables": ("pretrained tables", COLOURS["tabtnp"]),
    "curves": ("pretrained curves", COLOURS["dsvnp"]),
    "landscapes": ("pretrained landscapes", COLOURS["np"]),
    "both": ("panel with a pretrained network", COLOURS["attnnp"]),
    "related": ("TNP, 20 related functions seen", COLOURS["dsvtnp"]),
}
FIRST = 5
Rows = Sequence[dict[str, Any]]


def summarise(rows: Rows, folder: Path) -> None:
    """Write README.md and regret.svg into the folder."""
    text = ["# Bayesian optimisation", "", *_about(rows), ""]
    for title, problems in (
        ("Families, 15 evaluations", FAMILIES),
        ("Single functions, 30 evaluations", SINGLE),
    ):
        if lines := table(rows, problems):
            text += [f"## {title}", "", *lines, ""]
    text += ["![Regret after each evaluation](regret.svg)", ""]
    (folder / "README.md").write_text("\n".join(text), encoding="utf-8")
    draw(rows, folder / "regret.svg")


def curves(rows: Rows, problem: str) -> dict[str, np.ndarray]:
    """Regrets by method, [seeds, evaluations], of the seeds that all methods have."""
    found = {
        m: {r["seed"]: r["regret"] for r in rows if (r["problem"], r["method"]) == (problem, m)}
        for m in NAMES
    }
    found = {method: runs for method, runs in found.items() if runs}
    seeds = sorted(set.intersection(*map(set, found.values()))) if found else []
    return {method: np.array([runs[seed] for seed in seeds]) for method, runs in found.items() if seeds}


def table(rows: Rows, problems: Sequence[str]) -> list[str]:
    """Median regret per function, and mean rank and normalised regret over all functions and seeds."""
    found = {problem: of for problem in problems if (of := curves(rows, problem))}
    if not found:
        return []
    methods = [m for m in NAMES if all(m in of for of in found.values())]
    ranks: dict[str, list[float]] = {method: [] for method in methods}
    shares: dict[str, list[float]] = {method: [] for method in methods}
    for of in found.values():
        last = np.stack([of[method][:, -1] for method in methods])  # [methods, seeds]
        each = rankdata(last, axis=0)
        for number, method in enumerate(methods):
            ranks[method] += each[number].tolist()
            start = of[method][:, FIRST - 1]
            shares[method] += (last[number] / np.maximum(start, 1e-12)).tolist()
    heads = [f"{TITLES[problem]} ({len(next(iter(of.values())))} seeds)" for problem, of in found.items()]
    lines = ["| method | " + " | ".join(heads) + " | mean rank | normalised regret |"]
    lines.append("|---|" + "---|" * (len(heads) + 2))
    shown = sorted({method for of in found.values() for method in of}, key=list(NAMES).index)
    for method in shown:
        cells = [f"{np.median(of[method][:, -1]):.3g}" if method in of else "" for of in found.values()]
        means = (
            [f"{np.mean(ranks[method]):.2f}", f"{np.mean(shares[method]):.3f}"]
            if method in ranks
            else ["", ""]
        )
        lines.append(f"| {NAMES[method][0]} | " + " | ".join(cells + means) + " |")
    return lines


def draw(rows: Rows, path: Path) -> None:
    """Median regret after each evaluation, with the quartiles as a band."""
    found = {problem: of for problem in (*FAMILIES, *SINGLE) if (of := curves(rows, problem))}
    if not found:
        return
    with house_style():
        figure = Figure(figsize=(3 * len(found), 3), layout="constrained")
        for axes, (problem, of) in zip(
            figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
        ):
            for method, runs in of.items():
                text, colour = NAMES[method]
                x = np.arange(FIRST, runs.shape[1] + 1)
                low, middle, high = np.quantile(
                    np.maximum(runs[:, FIRST - 1 :], 1e-4), [0.25, 0.5, 0.75], axis=0
                )
                axes.plot(x, middle, color=colour, linewidth=1.5, label=text)
                axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
            axes.set(title=TITLES[problem], xlabel="evaluations", yscale="log")
        figure.axes[0].set_ylabel("simple regret, median and quartiles")
        add_legend(figure, 6)
        save(figure, path)


def _about(rows: Rows) -> list[str]:
    minutes = sum(row["cpu_seconds"] for row in rows) / 60
    return [
        "`python -m benchmarks.bayesian_optimisation` writes this page; `settings.json` has its settings,",
        f"`rows.jsonl.gz` each run. All runs together took {minutes:.0f} CPU minutes.",
        "Regret is the maximum less the best value found. Table entries are medians over seeds; mean rank and mean",
        "normalised regret are over functions and seeds.",
    ]
