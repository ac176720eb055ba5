"""Small results as an experiment writes them, for the tests of reports."""

import json
import statistics
from pathlib import Path
from typing import Any

from dsvnp.paper.records import write_units

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="720pt" height="36pt" viewBox="0 0 720 36">'
    '<rect width="720" height="36" fill="#0072B2"/></svg>'
)


def row(model: str, values: list[float | None], paper: float | None = None, **changes: Any) -> dict[str, Any]:
    """A row as `results.json` holds it; a value that JSON cannot hold makes mean and spread null."""
    known = all(value is not None for value in values)
    return {
        "dataset": "curves",
        "model": model,
        "metric": "nll",
        "split": "inter-J",
        "unit": "nats/point",
        "mean": statistics.fmean(values) if known else None,
        "std": (statistics.stdev(values) if len(values) > 1 else 0.0) if known else None,
        "median": statistics.median(values) if known else None,
        "seeds": values,
        "paper": paper,
        "paper_spread": None if paper is None else 2e-5,
        **changes,
    }


def write_run(
    folder: Path,
    rows: list[dict[str, Any]],
    experiment: str = "curves",
    config: dict[str, Any] | None = None,
    figures: tuple[str, ...] = (),
) -> Path:
    """Write a run's folder, with figures of the given names."""
    folder.mkdir(parents=True)
    results = {
        "experiment": experiment,
        "preset": "paper",
        "device": "a machine",
        "version": "0.0.1",
        "config": {"num_steps": 7, "models": ["cnp", "np"], **(config or {})},
        "rows": rows,
    }
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    write_units(folder, {"units": [{"seconds": 100.0}, {"seconds": 80.0}]})
    for name in figures:
        (folder / name).write_text(SVG, encoding="utf-8")
    return folder
