"""The frame of all experiments: a unit is written at once, a later run adds the rest, other settings are refused."""

from __future__ import annotations

import io
import json
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from rich.console import Console

import dsvnp
from dsvnp.locks import FolderInUseError, folder_lock
from dsvnp.models import MODELS
from dsvnp.paper import EXPERIMENTS
from dsvnp.paper import runner as running
from dsvnp.paper.experiment import Drawn, Experiment, Measurement, Printed, UnitResult, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.records import UNITS_FILE, read_units, write_units
from dsvnp.paper.runner import rows_of, run
from dsvnp.paper.settings import as_json, joined, make_experiment
from tests.faults.counting import Counting as Digits
from tests.faults.counting import contents

ISSUE_4 = {"experiment", "preset", "device", "version", "config", "rows"}
ROW = {
    *("dataset", "model", "metric", "split", "unit", "mean", "std", "median"),
    *("seeds", "paper", "paper_spread"),
}


class Broken(Exception):
    """A unit fails."""


@dataclass(frozen=True)
class Counting(Experiment):
    """Measures seed² + 1 and keeps a list of what it was asked to run."""

    name: ClassVar[str] = "counting"
    printed: ClassVar[Printed] = {("numbers", "cnp", "nll", "test-J"): (1.5, 0.25)}
    calls: ClassVar[list[tuple[str, tuple[int, ...]]]] = []
    breaks_at: ClassVar[str | None] = None

    models: tuple[str, ...] = ("cnp", "np")
    num_seeds: int = 3
    seeds_at_once: int = 2
    size: int = 7
    shape: tuple[int, ...] = (1, 2)

    @classmethod
    def presets(cls) -> dict[str, Counting]:
        return {"smoke": cls(preset="smoke"), "paper": cls(preset="paper", size=70)}

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        if str(label) == self.breaks_at:
            raise Broken
        self.calls.append((str(label), tuple(seeds)))
        values = tuple(float(seed**2 + 1) for seed in seeds)
        measured = [Measurement("numbers", "nll", split, "nats", values) for split in ("test-J", "test-P")]
        return UnitResult(label, tuple(seeds), tuple(measured), {"seeds": list(seeds)})

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        path = out / "figure.txt"
        path.write_text(str(sum(len(unit.extras["seeds"]) for unit in units)), encoding="utf-8")
        return [path]


@pytest.fixture(autouse=True)
def fresh():
    Counting.calls.clear()
    Counting.breaks_at = None


def place(out: Path) -> Workplace:
    return Workplace(out, torch.device("cpu"), Console(file=io.StringIO(), width=200))


def results(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text(encoding="utf-8"))


def row(out: Path, model: str, split: str = "test-J") -> dict[str, Any]:
    (found,) = [r for r in results(out)["rows"] if (r["model"], r["split"]) == (model, split)]
    return found


# --- running and going on ---


def test_units_are_a_label_and_a_group_of_seeds(tmp_path):
    assert run(Counting(), place(tmp_path)) == tmp_path / "results.json"
    assert Counting.calls == [("cnp", (0, 1)), ("cnp", (2,)), ("np", (0, 1)), ("np", (2,))]


def test_a_finished_unit_is_written_at_once(tmp_path):
    Counting.breaks_at = "np"
    with pytest.raises(Broken):
        run(Counting(), place(tmp_path))
    assert {r["model"] for r in results(tmp_path)["rows"]} == {"cnp"}
    assert row(tmp_path, "cnp")["seeds"] == [1.0, 2.0, 5.0]
    assert not list(tmp_path.glob("*.tmp"))


def test_settings_name_what_all_runs_of_a_folder_added(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Counting, "draw", lambda self, *_: drawn.append(self.models) or [])
    for changes in (
        {"models": ("np",), "num_seeds": 2},
        {"models": ("cnp",), "first_seed": 4, "num_seeds": 1},
    ):
        run(Counting(**changes), place(tmp_path))
    config = results(tmp_path)["config"]
    assert (config["models"], config["first_seed"], config["num_seeds"]) == (["cnp", "np"], 0, 5)
    assert Counting.calls == [("np", (0, 1)), ("cnp", (4,))]
    assert drawn == [("np",), ("cnp", "np")]


def test_settings_that_came_later_have_their_default_in_old_runs():
    new = as_json(make_experiment(EXPERIMENTS["curves"], "smoke", recipes=("wide",)))
    old = {name: value for name, value in new.items() if name != "recipes"}
    for configs in ([new, old], [old, new]):
        assert joined(EXPERIMENTS["curves"], configs).recipes == ("paper", "wide")


def test_variants_of_a_model_have_its_figure_of_the_paper(monkeypatch):
    monkeypatch.setattr(Counting, "printed", {("numbers", "mc-dropout", "nll", "test-J"): (2.5, 0.5)})
    measured = Measurement("numbers", "nll", "test-J", "nats", (1.0,))
    for label in (Label("mc-dropout"), Label("mc-dropout", "wide")):
        assert Counting().paper_figure(label, measured) == (2.5, 0.5)


def test_a_second_run_adds_what_is_missing_without_what_the_first_left_but_its_units(tmp_path):
    Counting.breaks_at = "np"
    with pytest.raises(Broken):
        run(Counting(), place(tmp_path))
    (tmp_path / "results.json").unlink()
    Counting.breaks_at = None
    Counting.calls.clear()
    run(Counting(), place(tmp_path), resume=True)
    assert Counting.calls == [("np", (0, 1)), ("np", (2,))]
    assert row(tmp_path, "cnp")["seeds"] == row(tmp_path, "np")["seeds"] == [1.0, 2.0, 5.0]
    assert (tmp_path / "figure.txt").read_text() == "6"  # figures are of all units, the earlier ones too


def test_a_third_run_trains_nothing_and_draws_again(tmp_path):
    run(Counting(), place(tmp_path))
    (tmp_path / "figure.txt").unlink()
    Counting.calls.clear()
    run(Counting(), place(tmp_path))
    assert Counting.calls == []
    assert (tmp_path / "figure.txt").is_file()


def test_more_seeds_and_models_may_be_added(tmp_path):
    run(Counting(models=("cnp",), num_seeds=1), place(tmp_path))
    Counting.calls.clear()
    run(Counting(models=("cnp", "np"), num_seeds=4, seeds_at_once=3), place(tmp_path))
    assert Counting.calls == [("cnp", (1, 2)), ("cnp", (3,)), ("np", (0, 1, 2)), ("np", (3,))]
    assert row(tmp_path, "cnp")["seeds"] == [1.0, 2.0, 5.0, 10.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 8}, "holds a run with size = 7, not 8; choose another --out, or remove it"),
        ({"shape": (1, 3)}, r"holds a run with shape = \[1, 2\], not \[1, 3\]"),
        ({"preset": "paper"}, "holds a run with preset = 'quick', not 'paper'"),
    ],
)
def test_other_settings_are_refused(tmp_path, change, message):
    run(Counting(), place(tmp_path))
    before = (tmp_path / UNITS_FILE).read_bytes()
    Counting.calls.clear()
    with pytest.raises(ValueError, match=message):
        run(replace(Counting(), **change), place(tmp_path))
    assert Counting.calls == []
    assert (tmp_path / UNITS_FILE).read_bytes() == before


def test_a_checkpoint_of_the_first_unit_is_something_to_resume(tmp_path):
    (tmp_path / "checkpoints" / "cnp-seeds-0-1" / "step-000000010").mkdir(parents=True)
    run(Counting(), place(tmp_path), resume=True)
    assert Counting.calls


def test_resuming_nothing_is_an_error(tmp_path):
    with pytest.raises(
        ValueError, match=r"nothing to resume: .*units\.json\.gz is not there; leave out --resume"
    ):
        run(Counting(), place(tmp_path), resume=True)
    assert Counting.calls == []


def test_a_run_from_before_a_setting_existed_has_its_default(tmp_path):
    run(Counting(models=("cnp",)), place(tmp_path))
    record = read_units(tmp_path)
    del record["config"]["precision"]
    write_units(tmp_path, record)
    run(Counting(models=("cnp", "np")), place(tmp_path), resume=True)
    assert {row["model"] for row in results(tmp_path)["rows"]} == {"cnp", "np"}
    del record["config"]["size"]
    write_units(tmp_path, record)
    with pytest.raises(ValueError, match="holds a run with size = 7, not 8"):
        run(Counting(size=8), place(tmp_path), resume=True)
    record["config"]["colour"] = "red"
    write_units(tmp_path, record)
    with pytest.raises(ValueError, match="Counting has no setting colour; another version wrote that run"):
        run(Counting(), place(tmp_path), resume=True)


# --- what is written ---


def test_results_have_the_schema_of_all_experiments(tmp_path):
    run(Counting(), place(tmp_path))
    written = results(tmp_path)
    assert written.keys() == ISSUE_4
    assert (written["experiment"], written["preset"]) == ("counting", "quick")
    assert written["version"] == dsvnp.__version__
    assert written["device"].endswith("CPU, 1 thread")  # as the tests have it
    assert written["config"] == {
        "preset": "quick",
        "models": ["cnp", "np"],
        "num_seeds": 3,
        "first_seed": 0,
        "seeds_at_once": 2,
        "precision": "float32",
        "size": 7,
        "shape": [1, 2],
    }
    assert [r.keys() for r in written["rows"]] == [ROW] * 4


def test_seeds_may_begin_anywhere(tmp_path):
    run(Counting(models=("cnp",), num_seeds=3, first_seed=4), place(tmp_path))
    units = read_units(tmp_path)["units"]
    assert [unit["seeds"] for unit in units] == [[4, 5], [6]]
    assert row(tmp_path, "cnp")["seed_numbers"] == [4, 5, 6]


def test_rows_merge_groups_of_seeds(tmp_path):
    run(Counting(), place(tmp_path))
    merged = row(tmp_path, "cnp")
    assert merged["seeds"] == [1.0, 2.0, 5.0]
    assert "seed_numbers" not in merged  # 0, 1, 2
    assert merged["mean"] == pytest.approx(8 / 3, rel=1e-5)
    assert merged["std"] == pytest.approx(2.08167, rel=1e-5)  # of a sample, n − 1
    assert merged["median"] == 2.0


def test_groups_of_seeds_with_other_draws_and_batches_are_one_row():
    drawn = [(Drawn("prior", 128, True),), (Drawn("importance", 2048, False),)]
    units = [
        UnitResult(
            Label("np"), (seed,), (Measurement("d", "nll", "t", "nats", (float(seed),), each, (10 + seed,)),)
        )
        for seed, each in enumerate(drawn)
    ]
    (row,) = rows_of(Counting(), units)
    assert row["seeds"] == [0.0, 1.0]
    assert (row["draws"], row["still"]) == ([128, 2048], [True, False])
    assert "change" not in row
    assert row["batches"] == [10, 11]
    moved = (Drawn("prior", 128, False, 0.03),)
    newer = replace(units[0], measurements=(replace(units[0].measurements[0], drawn=moved),))
    assert rows_of(Counting(), [newer, units[1]])[0]["change"] == [0.03, None]
    older = replace(units[0], measurements=(replace(units[0].measurements[0], drawn=()),))
    assert [r["seeds"] for r in rows_of(Counting(), [older, units[1]])] == [[0.0], [1.0]]


def test_one_seed_has_no_spread(tmp_path):
    run(Counting(num_seeds=1), place(tmp_path))
    assert row(tmp_path, "cnp")["std"] == 0.0


def test_the_papers_figure_stands_beside_the_model_it_is_of(tmp_path):
    run(Counting(), place(tmp_path))
    assert (row(tmp_path, "cnp")["paper"], row(tmp_path, "cnp")["paper_spread"]) == (1.5, 0.25)
    for model, split in (("cnp", "test-P"), ("np", "test-J")):
        assert (row(tmp_path, model, split)["paper"], row(tmp_path, model, split)["paper_spread"]) == (
            None,
            None,
        )


@pytest.mark.parametrize(
    ("model", "split", "paper"),
    [("cnp-wide", "test-J", 1.5), ("cnp", "test-J-max", 1.5), ("cnpx", "test-J", None)],
)
def test_variants_and_largest_contexts_are_compared_with_the_same_figure(model, split, paper):
    unit = UnitResult(Label.parse(model), (0,), (Measurement("numbers", "nll", split, "nats", (1.0,)),))
    assert rows_of(Counting(), [unit])[0]["paper"] == paper


def test_a_unit_of_a_data_set_is_a_row_of_its_model():
    def unit(dataset: str, value: float) -> UnitResult:
        return UnitResult(
            Label("cnp", dataset=dataset), (0,), (Measurement(dataset, "nll", "test-J", "nats", (value,)),)
        )

    rows = rows_of(Counting(), [unit("numbers", 1.0), unit("letters", 2.0)])
    assert [(r["dataset"], r["model"], r["mean"], r["paper"]) for r in rows] == [
        ("numbers", "cnp", 1.0, 1.5),
        ("letters", "cnp", 2.0, None),
    ]


def test_a_value_that_is_no_number_leaves_no_spread():
    values = (1.0, float("nan"), float("inf"))
    (row,) = rows_of(
        Counting(), [UnitResult(Label("cnp"), (0, 1, 2), (Measurement("a", "nll", "b", "c", values),))]
    )
    assert row["std"] != row["std"]


def test_what_json_lacks_becomes_null_and_digits_are_few(tmp_path, monkeypatch):
    values = (float("nan"), float("inf"), 1 / 3)

    def measured(self, model, seeds, place):
        return UnitResult(model, tuple(seeds), (), {"seeds": [], "values": values})

    monkeypatch.setattr(Counting, "run_unit", measured)
    run(Counting(), place(tmp_path))
    assert read_units(tmp_path)["units"][0]["extras"]["values"] == [None, None, 0.333333]


def test_settings_keep_all_their_digits_and_each_row_has_a_line():
    row = {"recipe": {"decay": 1 / 3}, "value": 1 / 3, "worst": math.inf}
    odd = {"config": {"rate": 0.123456789}, "rows": [row, row]}
    text = running.results_text(odd)
    rounded = {"recipe": {"decay": 1 / 3}, "value": 0.333333, "worst": None}
    assert json.loads(text) == odd | {"rows": [rounded, rounded]}
    assert [json.loads(line.rstrip(",")) for line in text.splitlines()[-4:-2]] == [rounded, rounded]


def test_a_run_with_a_value_that_json_lacks_can_be_added_to(tmp_path, monkeypatch):
    def measured(self, model, seeds, place):
        measurement = Measurement("numbers", "nll", "test-J", "nats", tuple(float("inf") for _ in seeds))
        return UnitResult(model, tuple(seeds), (measurement,), {"seeds": list(seeds)})

    monkeypatch.setattr(Counting, "run_unit", measured)
    run(Counting(num_seeds=1), place(tmp_path))
    run(Counting(num_seeds=2), place(tmp_path), resume=True)
    rows = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["rows"]
    assert [row["seeds"] for row in rows] == [[None, None]] * 2


def test_units_survive_being_written(tmp_path):
    run(Counting(num_seeds=1), place(tmp_path))
    (unit, _) = read_units(tmp_path)["units"]
    read = UnitResult.from_dict(unit)
    assert (read.label, read.seeds, read.extras) == (Label("cnp"), (0,), {"seeds": [0]})
    assert read.measurements[0] == Measurement("numbers", "nll", "test-J", "nats", (1.0,))
    assert not {"drawn", "batches"} & unit["measurements"][0].keys()
    full = replace(read.measurements[0], drawn=(Drawn("prior", 128, None),), batches=(1024,))
    kept = running.stored(replace(read, measurements=(full,)))
    assert kept.measurements == (full,)
    older = read.to_dict()
    older["measurements"][0]["drawn"] = [["prior", 128, False]]  # from before the last change was kept
    assert UnitResult.from_dict(older).measurements[0].drawn == (Drawn("prior", 128, False, None),)
    assert "CPU" in read.machine


# --- presets ---


def test_a_preset_is_changed_by_what_is_given():
    made = make_experiment(Counting, "paper", models=("np",))
    assert made == Counting(preset="paper", size=70, models=("np",))
    with pytest.raises(ValueError, match=r"unknown preset 'papr'.* Did you mean 'paper'"):
        make_experiment(Counting, "papr")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"num_seeds": 0}, "num_seeds must be at least 1, got 0"),
        ({"seeds_at_once": 0}, "seeds_at_once must be at least 1, got 0"),
        ({"models": ("cnp", "np", "cnp")}, "cnp is listed twice in models"),
    ],
)
@pytest.mark.parametrize("kind", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_what_no_run_can_be_made_of_is_refused(kind, bad, message):
    with pytest.raises(ValueError, match=message):
        make_experiment(kind, "smoke", **bad)


@pytest.mark.parametrize("kind", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_experiment_has_three_presets_that_know_their_names(kind):
    presets = kind.presets()
    assert list(presets) == ["smoke", "quick", "paper"]
    assert all(made.preset == name for name, made in presets.items())
    assert presets["paper"].num_seeds >= (3 if kind.name in ("images", "field", "completion") else 5)


@pytest.fixture
def own_model(monkeypatch):
    """A model of one's own, with a hyphen in its name."""
    own = type("Own", (MODELS["np"],), {"name": "np-max"})
    monkeypatch.setitem(MODELS, own.name, own)
    return own.name


@pytest.mark.parametrize("name", ["toy", "curves", "cartpole"])
def test_an_experiment_takes_every_model_whatever_its_name(tmp_path, own_model, name):
    models = ("mc-dropout", "nn", own_model)
    made = make_experiment(EXPERIMENTS[name], "smoke", models=models, num_seeds=1)
    run(made, place(tmp_path))
    assert {Label.parse(row["model"]).model for row in results(tmp_path)["rows"]} >= set(models)


@pytest.mark.parametrize("kind", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_a_label_tells_its_model(kind, own_model):
    models = ("mc-dropout", "dsvnp", own_model)
    made = make_experiment(kind, "smoke", models=models)
    labels = [Label.parse(str(label)) for label in made.labels()]
    assert {label.model for label in labels} & set(MODELS) == (
        {"dsvnp"} if kind.name == "ablations" else set(models)
    )


def test_the_curves_smoke_preset_gives_all_rows_and_figures(tmp_path):
    made = make_experiment(EXPERIMENTS["curves"], "smoke", num_global=2)
    run(made, place(tmp_path))
    written = results(tmp_path)
    splits = [
        f"{part}-{points}{suffix}"
        for part in ("inter", "extra")
        for suffix in ("", "-max")
        for points in "JP"
    ]
    expected = {
        (m, metric, split) for m in made.models for split in splits for metric in ("nll", "nll-median")
    }
    expected |= {(model, "mse", split) for model in made.models for split in splits if "-P" in split}
    assert {(r["model"], r["metric"], r["split"]) for r in written["rows"]} == expected
    assert all(len(r["seeds"]) == 2 and r["dataset"] == "curves" for r in written["rows"])
    paper = {(r["model"], r["split"]): r["paper"] for r in written["rows"] if r["metric"] == "nll"}
    assert paper["dsvnp", "extra-J"] == paper["dsvnp", "extra-J-max"] == 4.203
    assert paper["cnp", "inter-J"] is None
    figures = {"functions-paper.svg", "nll-by-context.svg", "calibration.svg", "training.svg"}
    assert {path.name for path in tmp_path.glob("*.svg")} == figures
    assert all(path.stat().st_size > 1000 for path in tmp_path.glob("*.svg"))
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {
        f"{model}-seeds-0-1.jsonl" for model in made.models
    }


# --- one writer, and the same bytes ---


def test_a_folder_in_use_is_refused_and_nothing_is_run(tmp_path):
    with folder_lock(tmp_path), pytest.raises(FolderInUseError, match="is in use by process"):
        run(Counting(), place(tmp_path))
    assert Counting.calls == []
    assert list(tmp_path.iterdir()) == []


def test_a_run_may_wait_for_its_folder(tmp_path):
    where = replace(place(tmp_path), wait=True)
    waiting = threading.Thread(target=run, args=(Counting(), where))
    with folder_lock(tmp_path):
        waiting.start()
        waiting.join(0.5)
        assert Counting.calls == []
    waiting.join(20)
    assert len(Counting.calls) == 4
    assert "is in use by process" in where.console.file.getvalue()


def test_leftovers_of_a_kill_are_swept(tmp_path):
    (tmp_path / "logs").mkdir()
    for name in (f".writing-{UNITS_FILE}-00112233", "logs/.writing-log.jsonl-00112233"):
        (tmp_path / name).write_text("half")
    run(Counting(), place(tmp_path))
    assert not list(tmp_path.rglob(".*"))


def test_a_resumed_run_leaves_the_bytes_of_an_undisturbed_one(tmp_path):
    run(Digits(), place(tmp_path / "whole"))
    run(Digits(models=("cnp",)), place(tmp_path / "parts"))
    run(Digits(), place(tmp_path / "parts"))
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
