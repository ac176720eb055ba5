"""What stands in the tables of a report."""

import json
from dataclasses import replace

import pytest
from made_runs import row, write_run

from dsvnp.paper import EXPERIMENTS
from dsvnp.paper.records import UNITS_FILE
from dsvnp.paper.report.about import goal_of, metric_text, order_of, split_text, words_of
from dsvnp.paper.report.numbers import clear_best
from dsvnp.paper.report.runs import Run, find_runs, find_speed
from dsvnp.paper.report.tables import seeds_text, summary_of, tables_of, title_of


def run_of(tmp_path, rows, experiment="curves", **config) -> Run:
    return Run.read(write_run(tmp_path / "run", rows, experiment, config) / "results.json")


def test_ours_and_the_papers_stand_in_one_cell(tmp_path):
    rows = [row("np", [-1.0, -0.9, -0.8], -0.958), row("dsvnp-wide", [-1.2, -1.2, -1.2], -0.975)]
    (table,) = tables_of(run_of(tmp_path, rows))
    assert table.columns == ("model", "interpolation, J")
    assert table.title == "NLL, nats/point"
    assert table.caption == "Lower is better; 3 seeds."
    (_, (first,)), (name, (second,)) = table.rows
    assert (first.text, first.notes, first.verdict) == ("−0.90 ± 0.10", ("paper −0.958 (2e−5)",), "level")
    assert (name, second.text, second.verdict) == ("dsvnp-wide", "−1.200", "better")
    assert (first.best, second.best) == (False, True)


def test_each_metric_unit_and_data_set_has_a_table_with_splits_as_columns(tmp_path):
    rows = [
        row(model, [1.0], split=split, dataset=dataset, metric=metric)
        for dataset in ("one", "two")
        for metric in ("nll", "mse")
        for split in ("test-J", "test-P")
        for model in ("cnp", "np")
    ]
    tables = tables_of(run_of(tmp_path, rows))
    assert [t.title for t in tables] == [
        f"{d}, {m}, nats/point" for d in ("One", "Two") for m in ("NLL", "MSE")
    ]
    assert {t.columns for t in tables} == {("model", "test, J", "test, P")}


def test_multioutput_has_a_table_for_each_split_with_data_sets_as_columns(tmp_path):
    rows = [
        row("np", [1.0], split=split, dataset=dataset, metric="mse", unit="standard")
        for split in ("test", "train")
        for dataset in ("sarcos", "wq")
    ]
    tables = tables_of(run_of(tmp_path, rows, "multioutput"))
    assert [t.title for t in tables] == ["Test, MSE, unit variance", "Train, MSE, unit variance"]
    assert tables[0].columns == ("model", "SARCOS", "Water Quality")
    assert tables[0].caption == "Lower is better; 1 split."


def test_a_table_that_is_too_wide_is_cut_by_the_first_word_of_its_columns(tmp_path):
    splits = [
        f"{part}-{points}{suffix}"
        for part in ("inter", "extra")
        for points in "JP"
        for suffix in ("", "-max")
    ]
    tables = tables_of(run_of(tmp_path, [row("np", [1.0], split=split) for split in splits]))
    assert [len(t.columns) for t in tables] == [5, 5]
    assert [t.title for t in tables] == ["Interpolation, NLL, nats/point", "Extrapolation, NLL, nats/point"]
    assert tables[1].columns[1:3] == ("J", "J, full context")


def test_what_was_not_measured_is_left_open_and_other_numbers_of_seeds_are_said(tmp_path):
    rows = [row("np", [1.0, 1.1]), row("np", [1.0, 1.1], split="inter-P"), row("gp", [1.0])]
    (table,) = tables_of(run_of(tmp_path, rows))
    (_, both), (_, (alone, nothing)) = table.rows
    assert both[0].notes == ()
    assert alone.notes == ("1 seed",)
    assert nothing is None


def test_a_mean_that_exploded_is_never_the_best(tmp_path):
    (table,) = tables_of(
        run_of(tmp_path, [row("np", [1.0, None]), row("cnp", [9.0, 9.0]), row("gp", [8.0, 9.0])])
    )
    assert [cells[0].best for _, cells in table.rows] == [False, False, False]  # 8.5 is not clearly below 9
    assert table.rows[0][1][0].text == "∞"


@pytest.mark.parametrize(
    ("mine", "its", "clear"),
    [
        ([1.0, 2.0, 3.0], [1.5, 2.5, 3.5], True),  # the same difference in each seed, whatever their spread
        ([1.0, 2.0, 3.0], [1.1, 2.0, 3.1], False),  # 0.067 with a standard error of 0.033
        ([1.0, 2.0, 3.0], [1.1, 2.05, 3.1], True),  # 0.083 with a standard error of 0.017
        ([1.0], [2.0], False),
        ([1.0, 1.0], [2.0, 2.0, 2.0], True),  # over the two seeds that both have
        ([1.0, 1.0], [2.0, 0.8, 9.0], False),  # where it is not ahead
    ],
)
def test_bold_is_what_exceeds_two_standard_errors_paired_over_seeds(mine, its, clear):
    rows = [row("np", mine), row("cnp", its), row("gp", [9.0 + value for value in mine])]
    best = clear_best(rows, "lower")
    assert (best is not None and best["model"] == "np") is clear


@pytest.mark.parametrize(
    ("numbers", "clear"),
    [([0, 1, 2], False), ([2, 0, 1], True), ([2, 5, 6], False), ([5, 6, 7], False)],
)
def test_seeds_are_paired_by_their_numbers(numbers, clear):
    rows = [row("np", [1.0, 2.0, 3.0]), row("cnp", [3.5, 1.5, 2.5], seed_numbers=numbers)]
    assert (clear_best(rows, "lower") is rows[0]) is clear


@pytest.mark.parametrize(("value", "clear"), [(5.0, True), (1.9, False)])
def test_a_row_of_one_seed_prevents_bold_only_by_a_better_mean(value, clear):
    rows = [row("np", [1.0, 2.0, 3.0]), row("cnp", [1.5, 2.5, 3.5]), row("tnp", [value])]
    assert (clear_best(rows, "lower") is rows[0]) is clear
    assert clear_best(rows[::2], "lower") is None  # nothing to compare with


@pytest.mark.parametrize(
    ("drawn", "clear"),
    [
        ({"still": [True, True]}, True),
        ({"still": [True, False]}, False),  # it may gain up to a nat
        ({"still": [True, None]}, False),
        ({"still": [True, False], "change": [0.2, 0.04]}, True),  # 0.4 at most
        ({"still": [True, False], "change": [0.001, 0.06]}, False),
    ],
)
@pytest.mark.parametrize("seeds", [2, 1])
def test_a_rival_whose_estimate_more_draws_may_improve_prevents_bold(drawn, clear, seeds):
    best, worse = row("np", [1.0, 2.0], still=[False, False]), row("gp", [3.0, 4.0], still=[True, True])
    shown = {name: values[-seeds:] for name, values in drawn.items()}
    rival = row("dsvnp", [1.5, 2.5] if seeds == 2 else [2.0], **shown)
    assert (clear_best([best, rival, worse], "lower") is best) is clear
    far = row("dsvnp", [2.5, 3.6], **drawn)
    assert clear_best([best, far, worse], "lower") is best
    upwards = [
        {**each, "mean": -each["mean"], "seeds": [-v for v in each["seeds"]]} for each in (best, rival, worse)
    ]
    assert (clear_best(upwards, "higher") is upwards[0]) is clear


def test_references_neither_win_nor_prevent_bold(tmp_path):
    shared = {"dataset": "rbf", "metric": "log-likelihood", "split": "marginal"}
    rows = [
        row(model, [value, value + 0.1], **shared)
        for model, value in (("tnp", 1.3), ("np", 0.3), ("gp", 1.5), ("gp-floor", 1.3))
    ]
    (table,) = tables_of(run_of(tmp_path, rows, "field"))
    assert [cells[0].best for _, cells in table.rows] == [True, False, False, False]


def test_batches_of_tests_are_said_where_they_differ_and_such_rows_are_not_compared(tmp_path):
    rows = [
        row("np", [1.0, 1.1], batches=[1024, 3000]),
        row("cnp", [2.0, 2.1], batches=[3000, 3000]),
        row("tnp", [3.0, 3.1], batches=[3000, 3000]),
    ]
    (table,) = tables_of(run_of(tmp_path, rows))
    assert table.caption == "Lower is better; 2 seeds, 3000 batches of tests."
    assert [cells[0].notes for _, cells in table.rows] == [("1024–3000 batches",), (), ()]
    assert clear_best(rows, "lower") is None
    assert clear_best(rows[1:], "lower") is rows[1]


def test_the_only_model_is_not_called_the_best(tmp_path):
    (table,) = tables_of(run_of(tmp_path, [row("np", [1.0])]))
    assert not table.rows[0][1][0].best


def test_entropy_is_to_be_low_in_the_domain_and_high_elsewhere(tmp_path):
    rows = [
        row(model, [value, value], dataset=dataset, metric="entropy", split="test")
        for model, value in (("np", 0.1), ("dsvnp", 0.5))
        for dataset in ("mnist", "kmnist")
    ]
    run = run_of(tmp_path, rows, "images", domain="mnist")
    (table,) = tables_of(run)
    assert [[cell.best for cell in cells] for _, cells in table.rows] == [[True, False], [False, True]]
    assert "Lower is better on the data trained on" in table.caption
    assert title_of(run) == "Images and out-of-distribution detection: MNIST"


@pytest.mark.parametrize(
    ("experiment", "metric", "text", "goal"),
    [
        ("toy", "mse", "MSE", "lower"),
        ("images", "accuracy", "accuracy", "higher"),
        ("images", "auroc-mi", "AUROC of the mutual information", "higher"),
        ("multioutput", "coverage-90", "coverage of 90% intervals", 0.9),
        ("cartpole", "rollout-coverage-90", "roll-out coverage of 90% intervals", 0.9),
        ("toy", "sigma", "mean predictive σ", None),
        ("of another", "novelty", "novelty", None),
    ],
)
def test_metrics_in_words(tmp_path, experiment, metric, text, goal):
    assert metric_text(words_of(experiment), metric) == text
    assert goal_of({"metric": metric}, run_of(tmp_path, [], experiment)) == goal


@pytest.mark.parametrize(
    ("experiment", "name", "text"),
    [
        ("curves", "inter-J-max", "interpolation, J, full context"),
        ("cartpole", "test-P", "test, P"),
        ("ablations", "step-10", "step 10"),
        ("images", "fashion-mnist", "Fashion-MNIST"),
    ],
)
def test_splits_in_words(experiment, name, text):
    assert split_text(words_of(experiment), name) == text


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_its_words_in_its_folder(name):
    words = words_of(name)
    assert words.title
    assert words.question
    assert words.differs


def test_a_table_tells_the_draws_behind_its_likelihoods(tmp_path):
    counted = {"method": ["prior", "importance"], "draws": [512, 128], "still": [True, False]}
    exact = {"method": ["exact"] * 2, "draws": [1, 1], "still": [True, True]}
    fixed = {"method": ["prior"] * 2, "draws": [32, 32], "still": [None, None]}
    rows = [row("dsvnp", [1.0, 2.0]) | counted, row("cnp", [1.0, 2.0]) | exact, row("np", [1.0, 2.0]) | fixed]
    for metric in ("nll", "log-likelihood"):
        renamed = [each | {"metric": metric} for each in rows]
        (table,) = tables_of(run_of(tmp_path / metric, renamed))
        assert table.caption.endswith("unless a cell says otherwise; one without a number of draws is exact.")
        (_, (drawn,)), (_, (sure,)), (_, (given,)) = table.rows
        assert drawn.notes == ("128–512 draws", "not still")
        assert sure.notes == ()
        moved = [renamed[0] | {"change": [0.1, 0.034]}]
        (table,) = tables_of(run_of(tmp_path / f"{metric}-moved", moved))
        assert table.rows[0][1][0].notes == ("128–512 draws", "not still, last change 0.034")
        assert given.notes == ("32 draws", "not doubled")
    (table,) = tables_of(run_of(tmp_path / "old", [row("dsvnp", [1.0])], num_global=32))
    assert table.caption == (
        "Lower is better; 1 seed. NLL is from 32 draws, which may be too few where latents are active."
    )


def test_the_summary_counts_what_is_better_and_what_is_worse(tmp_path):
    rows = [row("cnp", [1.0], 2.0), row("np", [1.0], 0.5), row("dsvnp", [1.0], 0.1), row("gp", [1.0, 2.0])]
    run = run_of(tmp_path, rows)
    ((title, cells),) = summary_of([run]).rows
    assert title == "Curves from a stochastic process"
    assert [cell.text for cell in cells] == ["paper", "4", "1–2", "1", "0", "2"]
    assert seeds_text(run) == "1–2"


# --- reading


def test_every_run_at_or_below_a_folder_is_found(tmp_path):
    write_run(tmp_path / "a", [])
    write_run(tmp_path / "b" / "c", [], "toy")
    runs = find_runs(tmp_path)
    assert [run.experiment for run in runs] == ["curves", "toy"]
    assert runs[0].seconds == 180
    assert [run.experiment for run in find_runs(tmp_path / "b" / "c")] == ["toy"]


def test_a_run_without_its_units_is_read_all_the_same(tmp_path):
    folder = write_run(tmp_path / "a", [])
    (folder / UNITS_FILE).unlink()
    assert Run.read(folder / "results.json").seconds is None


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ("{}", "lacks experiment"), ("[]", "lacks")]
)
def test_a_damaged_file_is_named(tmp_path, text, message):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"results.json {message}"):
        Run.read(path)


def test_a_smoke_run_is_not_compared(tmp_path):
    run = replace(run_of(tmp_path, [row("cnp", [1.0], 2.0)]), preset="smoke")
    ((_, cells),) = summary_of([run]).rows
    assert cells[-3:] == (None, None, None)
    (table,) = tables_of(run)
    assert table.rows[0][1][0].verdict == ""


def test_a_wide_table_of_data_sets_is_cut_into_equal_parts(tmp_path):
    rows = [row("np", [1.0], dataset=f"set-{i}", split="test") for i in range(9)]
    assert [len(t.columns) for t in tables_of(run_of(tmp_path, rows, "images"))] == [6, 5]


def test_tables_that_are_no_headline_are_marked(tmp_path):
    rows = [
        row("np", [1.0], metric=metric, split="test", dataset=dataset)
        for metric in ("accuracy", "aupr-mi")
        for dataset in ("mnist", "kmnist")
    ]
    assert [t.headline for t in tables_of(run_of(tmp_path, rows, "images"))] == [True, False]


def test_metrics_of_a_single_column_share_a_table(tmp_path):
    rows = [
        row(model, [1.0, 2.0], metric=metric, split="test", dataset=dataset, unit="share")
        for metric, dataset in (
            ("accuracy", "mnist"),
            ("ece", "mnist"),
            ("auroc", "kmnist"),
            ("auroc", "svhn"),
        )
        for model in ("np", "dsvnp")
    ]
    both, auroc = tables_of(run_of(tmp_path, rows, "images"))
    assert both.title == "MNIST"
    assert both.columns == (
        "model",
        "accuracy (higher is better)",
        "expected calibration error (lower is better)",
    )
    assert both.caption == "2 seeds."
    assert auroc.columns == ("model", "KMNIST", "SVHN")


def test_units_of_a_single_column_share_a_table(tmp_path):
    rows = [row("np", [v], metric="mse", split="test", unit=u) for v, u in ((1.0, "standard"), (2.0, "raw"))]
    (table,) = tables_of(run_of(tmp_path, rows))
    assert table.columns[1:] == ("MSE, unit variance (lower is better)", "MSE, raw units (lower is better)")
    assert [cell.text for cell in table.rows[0][1]] == ["1.000", "2.000"]


def test_speed_is_found_a_gpu_first(tmp_path):
    (tmp_path / "speed").mkdir()
    for name, device in (("a", "CPU, 2 threads"), ("b", "NVIDIA H200")):
        (tmp_path / "speed" / f"{name}.json").write_text(
            json.dumps({"machine": {"device": device}, "rows": []})
        )
    assert [file["machine"]["device"] for file in find_speed(tmp_path)] == ["NVIDIA H200", "CPU, 2 threads"]


def test_runs_come_in_the_papers_order(tmp_path):
    for name, config in (("a", {"domain": "cifar10"}), ("b", {"domain": "mnist"})):
        write_run(tmp_path / name, [], "images", config)
    write_run(tmp_path / "c", [], "toy")
    write_run(tmp_path / "d", [], "novelty")
    runs = sorted(find_runs(tmp_path), key=order_of)
    assert [run.folder.name for run in runs] == ["c", "b", "a", "d"]
