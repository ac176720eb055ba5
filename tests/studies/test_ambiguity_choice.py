"""Every row of the ambiguity experiment has the same number of trials, and the best of them is what its preset uses."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import pytest

from dsvnp.paper.ambiguity import recipes
from dsvnp.paper.ambiguity.experiment import AmbiguityExperiment
from dsvnp.paper.ambiguity.recipes import REFERENCES, recipe_of, trials_of, tuned_as
from dsvnp.paper.label import Label
from dsvnp.paper.settings import make_experiment
from studies import ambiguity_choice
from studies.ambiguity_choice import choose, fleets_of


def test_every_row_has_eight_trials_that_differ_and_can_be_trained():
    made = AmbiguityExperiment.presets()["paper"]
    for label in made.labels():
        if label.model in REFERENCES:
            continue
        trials = trials_of(label)
        tried = [recipe_of(label, trial) for trial in trials]
        assert len({json.dumps(trial, sort_keys=True) for trial in trials}) == 8
        assert all(tried[i] != tried[j] for i in range(8) for j in range(i))
        for recipe in tried:
            made.plan(label, recipe)  # settings that do not go together are refused here
    cells = [cell for fleet in fleets_of(made) for cell in fleet]
    rows = {(cell["row"], cell["problem"]) for cell in cells}
    assert len(cells) == 8 * len(rows)
    tuned = {tuned_as(label) for label in made.labels() if label.model not in REFERENCES}
    assert {row for row, _ in rows} == tuned
    assert tuned_as(Label("tnp", "mixture-5")) == "tnp-mixture-20"
    assert tuned_as(Label("dsvnp", "no-context")) == "dsvnp"


def test_the_choice_is_the_lowest_mean_over_problems():
    def entry(problem, rate, nll):
        return {"row": "np", "problem": problem, "trial": {"learning_rate": rate}, "nll": nll}

    done = [entry("a", 1e-3, 0.0), entry("b", 1e-3, 3.0), entry("a", 2e-3, 1.0), entry("b", 2e-3, 1.5)]
    assert choose(done) == {"np": {"learning_rate": 2e-3}}
    done[2:3] = [entry("a", 2e-3, math.nan)]
    assert choose(done) == {"np": {"learning_rate": 1e-3}}
    with pytest.raises(ValueError, match=r"np has trials on \[1, 2\] problems"):
        choose(done[:-1])


def test_trials_are_run_once_and_what_they_choose_is_written(tmp_path, monkeypatch, capsys):
    out, chosen = tmp_path / "trials.jsonl", tmp_path / "chosen.json"
    given = {"preset": "smoke", "problems": "branches", "models": "np", "steps": "2", "tasks": "2"}
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    options += ["--rows", "np", "--set", "sizes.width=4"]
    monkeypatch.setattr(sys, "argv", ["choice", str(out), *options])
    ambiguity_choice.main()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 8
    assert {line["sizes"]["width"] for line in lines} == {4}
    assert {line["trial"]["learning_rate"] for line in lines} == set(recipes.RATES)
    assert len({line["nll"] for line in lines}) == 8
    monkeypatch.setattr(ambiguity_choice, "judge", None)  # nothing is left to run
    ambiguity_choice.main()
    assert "Trials of each row: {'np': 8}" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["choice", str(out), "--write", str(chosen)])
    ambiguity_choice.main()
    best = min(lines, key=lambda line: line["nll"])
    written = json.loads(chosen.read_text())
    assert written == {"np": best["trial"]}
    made = replace(make_experiment(AmbiguityExperiment, "smoke"), chosen=written)
    label = next(label for label in made.labels() if label.row == "np")
    assert recipe_of(label, made.chosen[label.row]).learning_rate == best["trial"]["learning_rate"]
