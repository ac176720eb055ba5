"""All experiments in one go: what can run does, what cannot is named, and nothing stops the rest."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from rich.console import Console

from dsvnp.paper import EXPERIMENTS
from dsvnp.paper.all import plan, run_all
from dsvnp.paper.experiment import Experiment, Measurement, UnitResult, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.report.contents import Report
from dsvnp.paper.report.tables import tables_of
from dsvnp.training import CheckpointError, Interrupted


@dataclass(frozen=True)
class Plain(Experiment):
    """Runs anywhere; fails, or is interrupted, where it is told to."""

    name: ClassVar[str] = "plain"
    ran: ClassVar[list[str]] = []
    error: ClassVar[BaseException | None] = None

    models: tuple[str, ...] = ("cnp",)

    @classmethod
    def presets(cls) -> dict[str, Plain]:
        return {"smoke": cls(preset="smoke")}

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        if self.error is not None:
            raise self.error
        self.ran.append(place.out.name)
        return UnitResult(
            label, tuple(seeds), (Measurement("d", "nll", "test", "nats", (1.0,) * len(seeds)),)
        )

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        return []


@dataclass(frozen=True)
class Needy(Plain):
    """Two runs, each of which needs a file of its own."""

    name: ClassVar[str] = "needy"
    parts: ClassVar[tuple[dict[str, Any], ...]] = ({"domain": "sea"}, {"domain": "land"})
    error: ClassVar[BaseException | None] = None

    domain: str = "sea"

    def read_data(self, data_dir: Path | None) -> None:
        if data_dir is None:
            raise ValueError("no directory")
        if not (data_dir / self.domain).is_file():
            raise FileNotFoundError(f"{self.domain} is not there")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    Plain.ran.clear()
    for kind in (Plain, Needy):
        monkeypatch.setattr(kind, "error", None)


def place(out: Path) -> Workplace:
    return Workplace(out, torch.device("cpu"), Console(file=io.StringIO(), width=200))


def said(where: Workplace) -> str:
    assert isinstance(where.console.file, io.StringIO)
    return where.console.file.getvalue()


def test_each_part_is_a_job_that_says_what_it_lacks(tmp_path):
    (tmp_path / "sea").touch()
    jobs = plan([Plain, Needy], "smoke", tmp_path, num_seeds=2, models=None)
    assert [(job.name, job.missing) for job in jobs] == [
        ("plain", None),
        ("needy-sea", None),
        ("needy-land", "land is not there"),
    ]
    assert [job.experiment.num_seeds for job in jobs] == [2, 2, 2]


def test_what_stands_in_the_way_of_one_does_not_stop_the_plan(tmp_path):
    assert [job.missing for job in plan([Needy, Plain], "smoke", None)] == ["no directory"] * 2 + [None]


def test_what_can_run_runs_in_a_folder_of_its_own_and_the_rest_is_listed(tmp_path):
    (tmp_path / "land").touch()
    where = place(tmp_path / "out")
    assert run_all(plan([Plain, Needy], "smoke", tmp_path), where) == []
    assert Plain.ran == ["plain", "needy-land"]
    assert (tmp_path / "out" / "needy-land" / "results.json").is_file()
    assert "plain, 1 of 2" in said(where)
    assert "2 of 2 experiments done" in said(where)
    assert said(where).splitlines()[-1] == "Left out: needy-sea. sea is not there"


@pytest.mark.parametrize("kind", [ValueError, OSError, CheckpointError, torch.OutOfMemoryError])
def test_one_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, kind):
    (tmp_path / "land").touch()
    monkeypatch.setattr(Plain, "error", kind("[bad] luck"))
    where = place(tmp_path / "out")
    assert run_all(plan([Plain, Needy], "smoke", tmp_path), where) == ["plain"]
    assert Plain.ran == ["needy-land"]
    assert "plain failed: [bad] luck" in said(where)


def test_after_an_interruption_the_next_run_goes_on(tmp_path, monkeypatch):
    (tmp_path / "land").touch()
    jobs, where = plan([Plain, Needy], "smoke", tmp_path), place(tmp_path / "out")
    monkeypatch.setattr(Needy, "error", Interrupted(2, None, 1))
    with pytest.raises(Interrupted):
        run_all(jobs, where)
    monkeypatch.setattr(Needy, "error", None)
    assert run_all(jobs, where, resume=True) == []
    assert Plain.ran == ["plain", "needy-land"]  # neither ran twice


def test_nothing_to_resume_is_said(tmp_path):
    with pytest.raises(ValueError, match="nothing to resume"):
        run_all(plan([Plain], "smoke", None), place(tmp_path), resume=True)


def test_every_registered_experiment_has_a_smoke_job():
    names = [job.name for job in plan(EXPERIMENTS.values(), "smoke", Path("/nowhere"))]
    assert {name.split("-")[0] for name in names} == set(EXPERIMENTS)
    assert len(names) == len(set(names))


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("DSVNP_DATA"), reason="DSVNP_DATA names no directory of data sets")
def test_with_the_real_data_the_report_has_every_experiment_with_tables_and_figures(tmp_path):
    jobs = plan(EXPERIMENTS.values(), "smoke", None)
    assert run_all(jobs, place(tmp_path)) == []
    runs = Report.find(tmp_path).runs
    assert {run.folder.name for run in runs} == {job.name for job in jobs}
    assert all(run.figures and tables_of(run) for run in runs)
