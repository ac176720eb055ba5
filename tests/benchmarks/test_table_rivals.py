"""Rivals of `benchmarks/tables`, and what a run and its summary write."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import baselines
import classifiers
import gaussian_process
import goals
import numpy as np
import predictives
import pytest
import registry
import regressors
import run as running
import summary
from making import made_table
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

# --- rivals ---


def test_gp_likelihood_gradient_and_prediction_are_scikit_learns():
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(40, 3)), rng.normal(size=(5, 3))
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=40)
    theta = np.log([1.3, 0.7, 2.0, 3.0, 0.05])
    kernel = ConstantKernel(1.3) * Matern([0.7, 2.0, 3.0], nu=2.5) + WhiteKernel(0.05)
    theirs = GaussianProcessRegressor(kernel, optimizer=None, alpha=gaussian_process.JITTER).fit(x, y)
    value, gradient = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    found = gaussian_process.negative_log_likelihood(theta, x, y, np.arange(3))
    assert -found[0] == pytest.approx(value)
    np.testing.assert_allclose(-found[1], gradient, rtol=1e-6, atol=1e-8)
    ours = gaussian_process.fit_gp(x, y, np.arange(3), num_starts=2, max_steps=50, seed=0)
    assert ours.log_likelihood >= value
    kernel.theta = np.log([ours.amplitude, *ours.lengths, ours.noise])
    theirs = GaussianProcessRegressor(kernel, optimizer=None, alpha=gaussian_process.JITTER).fit(x, y)
    np.testing.assert_allclose(
        ours.predict(x_test), theirs.predict(x_test, return_std=True), rtol=1e-4, atol=1e-6
    )


def test_gp_columns_of_one_input_share_a_length():
    rng = np.random.default_rng(0)
    x, y, theta = rng.normal(size=(20, 3)), rng.normal(size=20), np.log([1.0, 0.8, 2.0, 0.1])
    _, shared = gaussian_process.negative_log_likelihood(theta, x, y, np.array([0, 1, 1]))
    _, apart = gaussian_process.negative_log_likelihood(theta[[0, 1, 2, 2, 3]], x, y, np.arange(3))
    np.testing.assert_allclose(shared, [apart[0], apart[1], apart[2] + apart[3], apart[4]])
    fitted = gaussian_process.fit_gp(x, y, np.array([4, 7, 7]), 1, 5, 0)
    assert fitted.lengths[1] == fitted.lengths[2]


@pytest.fixture
def small(monkeypatch):
    for module in (regressors, classifiers):
        monkeypatch.setitem(module.FOREST, "trees", 60)
        monkeypatch.setitem(module.HGB, "most_iterations", 25)
        monkeypatch.setitem(module.MLP, "networks", 1)
    monkeypatch.setitem(regressors.HGB, "levels", [0.1, 0.5, 0.9])


@pytest.mark.parametrize(("kind", "name"), sorted(baselines.MODELS))
def test_every_rival_learns(kind, name, small):
    line = running.measure(registry.model_of(name, kind), made_table(kind), 0)
    if kind == "regression":
        assert line["rmse"] < 0.6
        assert line["nll"] < 1.0
        assert 0.7 <= line["coverage"] <= 1
    else:
        assert line["accuracy"] > 0.7
        assert line["log_loss"] < 0.8


def test_boosted_trees_take_quantiles_where_noise_is_skewed(small):
    rng = np.random.default_rng(0)
    x = rng.random((400, 4))
    noise = rng.exponential(size=400)
    flat = np.zeros(4, bool)
    skewed = regressors.hgb(x, (noise * (0.05 + 3 * x[:, 0])), x[:5], flat, seed=0)
    normal = regressors.hgb(x, rng.normal(size=400), x[:5], flat, seed=0)
    assert skewed.notes["likelihood"] == "quantiles"
    assert normal.notes["likelihood"] == "constant"


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="registered already"):
        registry.register("ridge", "regression")(lambda: None)
    with pytest.raises(KeyError, match=r"there are .*ridge"):
        registry.model_of("rigde", "regression")


# --- running ---


def test_a_run_adds_what_is_missing(tmp_path, monkeypatch):
    fits = []

    def fit(x, y, x_test, categorical, seed):
        fits.append(seed)
        return predictives.Gaussian(np.zeros(len(x_test)), 1.0, {"told": seed})

    model = registry.Model("flat", "regression", fit, {"width": 1})
    monkeypatch.setattr(running, "load", lambda name: made_table("regression"))
    out = tmp_path / "deep" / "lines.jsonl"
    running.run(["made"], [model], "validation", out, [0, 1])
    out.write_text(
        out.read_text() + '{"table": "made", "fo'
    )  # a run that was stopped in the middle of a line
    running.run(["made"], [model], "validation", out, range(5))
    assert fits == [0, 1, 2, 3, 4]
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    assert [line["fold"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[0]["settings"] == {"width": 1}
    assert lines[3]["notes"] == {"told": 3}
    assert lines[0]["rmse"] == pytest.approx(1, abs=0.2)  # y is standardised


def test_the_test_part_asks_for_the_end(monkeypatch, capsys):
    options = ["run.py", "--kind", "regression", "--part", "test", "--models", "ridge", "--out", "unused"]
    monkeypatch.setattr(sys, "argv", options)
    with pytest.raises(SystemExit):
        running.main()
    assert "--final" in capsys.readouterr().err


def test_lines_are_read_from_a_compressed_file_too_but_not_added_to_one(tmp_path, monkeypatch, capsys):
    path = tmp_path / "lines.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"table": "a"}\n{"table": "b"}\n{"ta'))
    assert running.read_lines(path) == [{"table": "a"}, {"table": "b"}]
    monkeypatch.setattr(
        sys, "argv", ["run.py", "--kind", "regression", "--models", "ridge", "--out", str(path)]
    )
    with pytest.raises(SystemExit):
        running.main()
    assert "name a .jsonl file" in capsys.readouterr().err


def test_adapters_join_by_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "MODELS", dict(registry.MODELS))
    file = tmp_path / "mine.py"
    file.write_text(
        "from registry import register\n@register('mine', 'regression')\ndef fit(*a, seed): ...\n"
    )
    registry.import_adapters(file)
    assert registry.model_of("mine", "regression").name == "mine"
    with pytest.raises(FileNotFoundError, match="is not a Python file"):
        registry.import_adapters(tmp_path / "absent.py")


def test_summary_ranks_models_on_tables_that_all_have(tmp_path):
    def line(table, model, fold, value):
        about = {"kind": "regression", "table": table, "model": model, "fold": fold}
        return {**about, **dict.fromkeys(["nll", "crps", "rmse", "coverage", "cpu_seconds"], value)}

    values = {("a", "good"): 1.0, ("a", "bad"): 2.0, ("b", "good"): 3.0, ("b", "bad"): 4.0, ("c", "bad"): 0.0}
    lines = [line(*pair, fold, value) for pair, value in values.items() for fold in range(5)]
    text, plots = summary.summary(lines, "regression")
    assert "2 tables" in text[0]  # c lacks a model
    names, mean_ranks, _ = plots["nll"]
    assert dict(zip(names, mean_ranks, strict=True)) == {"good": 1.0, "bad": 2.0}
    assert "| a | 2.000 | 1.000 |" in text
    summary.save_plot(plots, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000
    with pytest.raises(ValueError, match="no regression table"):
        summary.summary(lines[:3], "regression")


def made_lines(kind, values, **more):
    """Lines of five folds: values are [models][tables], the same for all measures that `more` does not set."""
    names = ["nll", "crps", "rmse", "accuracy", "log_loss", "ece", "coverage", "cpu_seconds"]
    return [
        {"kind": kind, "table": f"t{place}", "model": model, "fold": fold, "rows": 80}
        | {"bins": [[10.0], [5.0], [5.0 - value]]}
        | dict.fromkeys(names, value)
        | {name: of_model[model] for name, of_model in more.items() if model in of_model}
        for model, row in values.items()
        for place, value in enumerate(row)
        for fold in range(5)
    ]


def reached(found):
    return [is_reached for *_, is_reached in found]


def test_goals_for_numbers_compare_with_the_best_rival_of_each_table():
    rivals = {"gp": [1.0, 2.0, 3.0], "hgb": [2.0, 1.0, 3.0]}
    near = made_lines("regression", {"np": [0.9, 0.9, 3.2], **rivals}, coverage={"np": 0.88})
    found = goals.number_goals(goals.Scores(near, "regression"))
    assert reached(found) == [True, True, True, True]
    assert "2 of 3" in found[2][2]
    assert "not on t2" in found[2][2]
    far = made_lines("regression", {"np": [1.06, 1.06, 2.9], **rivals}, coverage={"np": 0.86})
    found = goals.number_goals(goals.Scores(far, "regression"))
    assert reached(found) == [True, True, False, False]
    last = made_lines("regression", {"np": [4.0], "gp": [3.0]})
    assert not any(reached(goals.number_goals(goals.Scores(last, "regression"))))


def test_goals_for_classes_count_ties_and_ask_for_the_lowest_calibration_error():
    values = {"np": [0.5, 0.8, 0.2], "hgb": [0.5, 0.6, 0.3], "gp": [0.9, 0.9, 0.9]}
    found = goals.class_goals(goals.Scores(made_lines("classification", values), "classification"))
    assert reached(found) == [True, False]  # the calibration error of boosted trees is lower
    assert "2 of 3" in found[0][2]
    chance = goals.calibration(goals.Scores(made_lines("classification", values), "classification"))
    assert [line.split(" | ")[0] for line in chance[2:]] == ["| gp", "| hgb", "| np"]
    assert "3 tables with fewer than 500 rows | … 0 larger ones" in chance[0]
    # of 10 rows 5 are right by confidence, and 5 − value in fact
    assert chance[-1].endswith(" | +0.0500 ± 0.0173 | – |")
    values["np"] = [0.4, 0.7, 0.2]
    found = goals.class_goals(goals.Scores(made_lines("classification", values), "classification"))
    assert reached(found) == [False, True]


def test_goals_against_a_trained_model_are_judged_on_its_folds():
    ours, trained = (
        made_lines("regression", {model: values})
        for model, values in (("np", [1.0, 1.0, 1.0, 5.0]), ("np-trained", [2.0, 2.0, 2.0, 4.0]))
    )
    ours[0] |= {"fold": 5, "nll": 9.0}  # a fold of the first table that the trained model has not
    for seconds, is_fast in (1.0, False), (0.9, True):
        times = [{**line, "cpu_seconds": seconds} for line in ours]
        times += [{**line, "cpu_seconds": 19.0} for line in trained]
        found = goals.trained_goals(ours, trained, times)
        assert reached(found) == [True, is_fast]
        assert "3 of 4" in found[0][2]
        assert "not on t3" in found[0][2]
    assert reached(goals.trained_goals([{**line, "nll": 3.0} for line in ours], trained, times)) == [
        False,
        True,
    ]


def test_losses_begin_with_the_worst():
    values = {"np": [1.0, 5.0], "gp": [2.0, 4.0]}
    found = goals.Scores(made_lines("regression", values), "regression")
    assert goals.losses(found, "rmse", "nll", 1)[2] == "| t1 | 80 | 1.250 | gp 4.000 | +1.000 |"
    values = {"np": [0.8, 0.5], "hgb": [0.7, 0.9], "gp": [0.6, 0.8]}
    found = goals.Scores(made_lines("classification", values), "classification")
    assert goals.losses(found, "accuracy", "log_loss", 1)[2] == "| t1 | 80 | 0.400 | hgb 0.900 | -0.300 |"
    with pytest.raises(ValueError, match="no regression table"):
        goals.Scores([], "regression")


def test_the_committed_report_on_goals_is_that_of_the_committed_lines():
    folder = Path(__file__).parents[2] / "results" / "tables"
    expected = ["# Goals, test part", "", *goals.report(folder, "test", 100)]
    assert (folder / "test-goals.md").read_text(encoding="utf-8").splitlines() == expected


@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize("part", ["validation", "test"])
def test_the_committed_summaries_are_those_of_the_committed_lines(part, kind):
    folder = Path(__file__).parents[2] / "results" / "tables"
    files = [folder / f"{part}-ours.jsonl.gz", folder / f"{part}-baselines.jsonl.gz"]
    text, _ = summary.summary([line for path in files for line in running.read_lines(path)], kind)
    assert (folder / f"{part}-{kind}.md").read_text(encoding="utf-8").splitlines() == text
