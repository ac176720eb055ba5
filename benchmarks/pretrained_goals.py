"""Whether the pretrained networks reach what was asked of curves, speed and training, from committed rows.

    python -m benchmarks.pretrained_goals > results/pretrained/goals.md

Those of tables are judged by `benchmarks/tables/goals.py`. Limits are those set before training. Whether a limit is
reached is computed from each file as it stands; where a goal can be read in two ways, both readings have a row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / "src" / "dsvnp" / "pretrained" / "weights"
FITTED = re.compile(r"NP(Regressor|Classifier), fit and \d+ rows, \w+, (\d+) x (\d+), (\d+) threads")
KERNELS = {"rbf": "RBF", "matern52": "Matérn-5/2"}
KNOWN = ("rbf", "matern12", "matern32", "matern52")  # kernels whose draws have a goal
NATS, FASTER, SHARE, MINUTES, MEGABYTES, GIGABYTES = 0.15, 100, 0.2, 100, 12, 4
Line = dict[str, Any]


class Goal(NamedTuple):
    """What was asked for, its limit, what was found, and whether that is within the limit."""

    name: str
    limit: str
    found: str
    is_reached: bool


def read_lines(path: Path) -> list[Line]:
    """The lines of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- curves ---


def exact_goals(field: list[Line], kernels: list[Line]) -> list[Goal]:
    """How far predictions are behind the exact process with known hyper-parameters."""
    found = []
    for kernel, shown in KERNELS.items():
        (line,) = (line for line in field if line["kernel"] == kernel)
        for who, key in (("the network alone", "gap"), ("`CurveRegressor`", "regressor_gap")):
            name = f"behind the exact process on {shown} draws, {who}"
            text = f"{line[key]:.3f} ± {line[f'{key}_error']:.3f}, {line['count']:,} tasks"
            found.append(Goal(name, f"{NATS} nats", text, line[key] <= NATS))
    gaps = {named(line): line["gap"] for line in kernels if line["kernel"] in KNOWN}
    worst = max(gaps, key=gaps.__getitem__)
    name = "… on RBF and Matérn draws of one to three inputs, `CurveRegressor`"
    text = f"at most {gaps[worst]:.3f} ({worst}); {count(gap <= NATS for gap in gaps.values())} kernels"
    return [*found, Goal(name, f"{NATS} nats on each", text, gaps[worst] <= NATS)]


def kernel_goals(lines: list[Line]) -> list[Goal]:
    """Whether `CurveRegressor` is behind a process fitted by maximum likelihood, in three readings."""
    readings = {
        "means": [line["gap_to_fitted"] > 0 for line in lines],
        "medians": [line["gap_to_fitted_median"] > 0 for line in lines],
        "means with 32 points or more, beyond two standard errors": [
            line["gap_to_fitted_many"] > 2 * line["gap_to_fitted_many_error"] for line in lines
        ],
    }
    found = []
    for reading, behind in readings.items():
        which = ", ".join(named(line) for line, is_so in zip(lines, behind, strict=True) if is_so)
        text = f"behind on {count(behind)}" + (f": {which}" if which else "")
        name = f"behind a maximum-likelihood process on kernels of the prior, {reading}"
        found.append(Goal(name, "none", text, not any(behind)))
    return found


def named(line: Line) -> str:
    """A kernel, and of how many inputs."""
    return f"{line['kernel']} {line['dims']}D"


def count(holds: Iterable[Any]) -> str:
    """On how many of all something holds."""
    each = [bool(value) for value in holds]
    return f"{sum(each)} of {len(each)}"


# --- real series ---


def series_goals(lines: list[Line]) -> list[Goal]:
    """Likelihood and time of `CurveRegressor` next to those of a fitted process, on real series."""
    series = list(dict.fromkeys(line["series"] for line in lines))
    rows = list(dict.fromkeys((line["series"], line["way"]) for line in lines))
    lower = [
        mean(lines, "curves", "nll", series=name) < mean(lines, "gp", "nll", series=name) for name in series
    ]
    missed = [name for name, is_lower in zip(series, lower, strict=True) if not is_lower]
    nll = count(lower) + (f"; not on {', '.join(missed)}" if missed else "")
    total = times(lines)
    each = {name: times(lines, series=name) for name in series}
    by_row = [times(lines, series=name, way=way) for name, way in rows]
    listed = ", ".join(f"{name} {value:.0f}" for name, value in each.items())
    name = "CPU seconds of a fitted process over those of `CurveRegressor`"
    return [
        Goal("NLL below that of a maximum-likelihood process on real series", "3 of 4", nll, sum(lower) >= 3),
        Goal(f"{name}, all series together", f"{FASTER}", f"{total:.0f} times", total >= FASTER),
        faster(f"{name}, of each series", listed, each.values()),
        faster("… of each series and way to hold out", f"{min(by_row):.0f} to {max(by_row):.0f}", by_row),
    ]


def faster(name: str, text: str, values: Iterable[float]) -> Goal:
    """Whether all ratios of times are as large as asked for."""
    enough = [value >= FASTER for value in values]
    return Goal(name, f"{FASTER} on each", f"{text}; at least {FASTER} on {count(enough)}", all(enough))


def times(lines: list[Line], **wanted: str) -> float:
    """CPU seconds of the fitted process over ours."""
    return mean(lines, "gp", "cpu_seconds", **wanted) / mean(lines, "curves", "cpu_seconds", **wanted)


def mean(lines: list[Line], model: str, key: str, **wanted: str) -> float:
    """Mean of the lines of a model."""
    wanted |= {"model": model}
    return float(
        np.mean([line[key] for line in lines if all(line[name] == value for name, value in wanted.items())])
    )


# --- speed, training and size ---


def speed_goals(answers: Line, large: list[Line]) -> list[Goal]:
    """Seconds of fit and predictions without training, and memory on many rows."""
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in answers["times"]:
        if match := FITTED.fullmatch(line["what"]):
            groups.setdefault(match.groups(), []).append(line)
    found = []
    for (kind, rows, columns, threads), group in groups.items():
        listed = " and ".join(f"{line['median_seconds']:.2f}" for line in group)
        limit, slowest = group[0]["goal"], max(line["median_seconds"] for line in group)
        name = f"NP{kind}, fit and predictions, {int(rows):,} × {columns}, {threads} cores"
        found.append(Goal(name, f"{limit} s", f"{listed} s (medians)", slowest <= limit))
    peaks = {line["what"].split("(")[0]: line["peak_gb"] for line in large if line["rows"] >= 100_000}
    listed = ", ".join(f"{name} {peak:.2f} GB" for name, peak in peaks.items())
    return [
        *found,
        Goal("memory on 100,000 rows", f"{GIGABYTES} GB", listed, max(peaks.values()) <= GIGABYTES),
    ]


def training_goals(drawing: Line, logs: dict[str, list[Line]], settings: list[Line]) -> list[Goal]:
    """What pretraining cost, and what is known of it."""
    shares = {name: drawing[name]["share"] for name in logs}
    quick = {
        name: drawing[name]["draw_ms"] * np.median([line["steps_per_second"] for line in lines]) / 1000
        for name, lines in logs.items()
    }
    listed = ", ".join(f"{name} {share:.0%} ({quick[name]:.0%})" for name, share in shares.items())
    spent = {name: max(each["card_minutes"] or 0 for each in of(settings, name)) for name in logs}
    minutes = sum(spent.values())
    known = {key: count(each[key] is not None for each in settings) for key in ("seed", "command", "code")}
    again = [
        f"sitting {each['sitting']} of {each['network']}"
        for place, each in enumerate(settings)
        if any(before["seed"] == each["seed"] for before in of(settings[:place], each["network"]))
    ]
    return [
        Goal(
            "drawing's share of a step; in brackets of the median step of the main run",
            f"{SHARE:.0%}",
            listed,
            max(*shares.values(), *quick.values()) <= SHARE,
        ),
        Goal(
            "minutes of one H200",
            f"{MINUTES}",
            f"{' + '.join(f'{each:.1f}' for each in spent.values())} = {minutes:.1f}",
            minutes <= MINUTES,
        ),
        Goal(
            "seed, command and commit of each sitting in `settings.json`",
            "all",
            ", ".join(f"{key} of {value}" for key, value in known.items()),
            all(value.startswith(f"{len(settings)} ") for value in known.values()),
        ),
        Goal(
            "each synthetic function used once",
            "a new seed for each sitting",
            f"not new: {', '.join(again)}" if again else "all new",
            not again,
        ),
    ]


def of(settings: list[Line], network: str) -> list[Line]:
    """The sittings of a network."""
    return [each for each in settings if each["network"] == network]


def size_goal(folder: Path) -> Goal:
    """How large the weights are together."""
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e6
    return Goal("weights in the package", f"{MEGABYTES} MB", f"{size:.1f} MB", size <= MEGABYTES)


def report(root: Path = ROOT) -> list[str]:
    """Lines of Markdown."""
    folder, benchmarks = root / "results" / "pretrained", root / "benchmarks"
    kernels = read_lines(folder / "curves-kernels.jsonl")
    one = {
        name: json.loads((path / f"{name}.json").read_text(encoding="utf-8"))
        for path, name in (
            (benchmarks, "answers"),
            (benchmarks, "large_tables_default"),
            (folder, "drawing"),
            (folder, "settings"),
        )
    }
    logs = {name: read_lines(folder / f"{name}-log.jsonl") for name in ("tables", "curves")}
    goals = [
        *exact_goals(read_lines(folder / "curves-validation.jsonl"), kernels),
        *kernel_goals(kernels),
        *series_goals(read_lines(root / "results" / "series" / "rows.jsonl")),
        *speed_goals(one["answers"], one["large_tables_default"]),
        *training_goals(one["drawing"], logs, one["settings"]),
        size_goal(WEIGHTS),
    ]
    text = ["# Goals of pretraining: curves, series, speed", "", "| goal | limit | found | reached |"]
    text.append("| --- | --- | --- | --- |")
    text += [
        f"| {name} | {limit} | {what} | {'yes' if is_so else 'no'} |" for name, limit, what, is_so in goals
    ]
    return [*text, "", "Goals of tables: [results/tables/test-goals.md](../tables/test-goals.md)."]


if __name__ == "__main__":
    print("\n".join(report()))
