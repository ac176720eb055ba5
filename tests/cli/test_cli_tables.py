"""`dsvnp fit`, `predict` and `evaluate` as a person types them, and what a person may get wrong."""

import csv
import io
import os
import sys
import threading
from contextlib import ExitStack

import numpy as np
import polars as pl
import polars.testing
import pytest

from dsvnp import NPRegressor
from dsvnp.cli import main
from dsvnp.locks import folder_lock

PNG = b"\x89PNG\r\n\x1a\n"


def write(path, columns, separator=","):
    lines = [
        separator.join(columns),
        *(separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def columns(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, rows)).round(4)
    town = np.array(["Ely", "Bath"])[rng.integers(2, size=rows)]
    flow = (100 + 10 * a + 5 * (town == "Ely") + rng.normal(size=rows)).round(3)
    return {"a": a, "b": b, "town": town, "flow": flow, "depth": (flow / 50 + b).round(3)}


@pytest.fixture
def run(monkeypatch, capsys):
    def typed(*words):
        """Exit code, what was printed, and what was said on the standard error."""
        monkeypatch.setattr(sys, "argv", ["dsvnp", *map(str, words)])
        with pytest.raises(SystemExit) as leaving:
            main()
        printed = capsys.readouterr()
        return leaving.value.code or 0, printed.out, printed.err

    return typed


def fit(run, table, out, *words):
    quick = (
        ("--replicas", 1, "--steps", 4) if "--model" in words or "--group" in words else ("--effort", "fast")
    )
    return run("fit", table, "--out", out, *quick, "--device", "cpu", *words)


def test_a_second_fit_into_one_folder_is_refused_before_it_trains_or_waits(run, tmp_path):
    table, model = write(tmp_path / "river.csv", columns()), tmp_path / "model"
    words = (run, table, model, "--target", "flow", "--exclude", "depth", "--model", "cnp")
    with ExitStack() as held:
        held.enter_context(folder_lock(model))
        code, _, err = fit(*words)
        assert code
        assert f"{model} is in use by process {os.getpid()}" in err
        assert "step" not in err
        timer = threading.Timer(0.5, held.close)
        timer.start()
        code, out, err = fit(*words, "--wait")
        timer.join()
    assert code == 0, err
    assert "waiting" in out.replace("\n", " ")
    assert {file.name for file in model.iterdir()} == {
        "calibration.png",
        "estimator.json",
        "tensors.safetensors",
    }


def test_a_fit_that_fails_leaves_no_folder(run, tmp_path, monkeypatch):
    def fails(self, *_, **__):
        assert (tmp_path / "model").is_dir()
        raise ValueError("training broke down")

    monkeypatch.setattr(NPRegressor, "fit", fails)
    table = write(tmp_path / "river.csv", columns())
    code, _, err = fit(run, table, tmp_path / "model", "--target", "flow")
    assert code
    assert "training broke down" in err
    assert list(tmp_path.iterdir()) == [table]


def test_numbers_from_fit_to_evaluate(run, tmp_path):
    table, model = write(tmp_path / "river.csv", columns()), tmp_path / "model"
    code, out, err = fit(run, table, model, "--target", "flow,depth", "--model", "cnp")
    assert code == 0, err
    assert "ridge" in out
    assert "step 4/4" in err  # progress
    assert (model / "calibration.png").read_bytes()[:8] == PNG
    new = write(tmp_path / "new.csv", {k: v for k, v in columns(seed=1).items() if k in ("town", "b", "a")})
    assert run("predict", model, new, "--out", tmp_path / "out.csv")[0] == 0
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    expected = NPRegressor.load(model).predict(pl.read_csv(new).select("a", "b", "town"))
    np.testing.assert_allclose([float(row["flow"]) for row in rows], expected["flow"].to_numpy(), rtol=1e-5)
    assert all(float(row["depth_low"]) < float(row["depth"]) < float(row["depth_high"]) for row in rows)
    code, out, _ = run("evaluate", model, table, "--plot", tmp_path / "plots" / "c.png")
    assert code == 0
    assert "60 rows of river.csv" in out
    assert "mean predictor" in out
    assert (tmp_path / "plots" / "c.png").read_bytes()[:8] == PNG


def test_an_evaluation_tells_where_more_draws_help(run, tmp_path, monkeypatch):
    table, model = write(tmp_path / "river.csv", columns()), tmp_path / "model"
    assert fit(run, table, model, "--target", "flow", "--model", "dsvnp")[0] == 0
    monkeypatch.setattr("dsvnp.tabular.base.STILL", -1.0)  # any change, of either sign, is one
    assert "With n_draws=512 in place of" in run("evaluate", model, table)[1]
    monkeypatch.setattr("dsvnp.tabular.base.STILL", 99.0)
    assert "n_draws" not in run("evaluate", model, table)[1]


def test_classes_from_fit_to_evaluate_by_parquet(run, tmp_path):
    table = tmp_path / "river.parquet"
    pl.DataFrame(columns()).write_parquet(table)
    assert fit(run, table, tmp_path / "model", "--target", "town", "--inputs", "a,flow")[0] == 0
    assert run("predict", tmp_path / "model", table, "--out", tmp_path / "out.parquet")[0] == 0
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert out.columns == ["town", "p_Bath", "p_Ely", "ood_score"]
    assert set(out["town"]) <= {"Bath", "Ely"}
    np.testing.assert_allclose(out["p_Bath"] + out["p_Ely"], 1)
    code, printed, _ = run("evaluate", tmp_path / "model", table)
    assert code == 0
    assert "accuracy" in printed


def test_semicolons_empty_cells_and_whole_numbers_as_classes(run, tmp_path):
    cells = columns(rows=30)
    cells["kind"] = ["1", "2", ""] * 10
    del cells["town"]
    table = write(tmp_path / "t.csv", cells, separator=";")
    code, out, err = fit(run, table, tmp_path / "m", "--target", "kind", "--task", "classification")
    assert code == 0, err
    assert "accuracy" in out


def changed(name, row, value):
    cells = {key: list(values) for key, values in columns().items()}
    cells[name][row] = value
    return cells


WRONG = [
    (columns(), ["--target", "flaw"], "Did you mean 'flow'?"),
    (columns(), ["--target", "flow", "--inputs", "a,c"], "unknown column of"),
    (columns(), ["--target", "flow", "--inputs", "a,flow"], "flow is in --inputs and in --target"),
    (columns(), ["--target", "flow", "--model", "dsvpn"], "Did you mean 'dsvnp'?"),
    (columns(), ["--target", "town,flow"], "one column at a time"),
    (columns(), ["--target", "flow,town"], "target 'town' holds texts ('"),
    (columns(), ["--target", "flow", "--task", "classification"], "'flow' holds fractions"),
    (changed("a", 4, "tall"), ["--target", "flow"], "t.csv line 6, column 'a': 'tall' is not a number"),
    (
        changed("a", 4, ""),
        ["--target", "flow", "--strict"],
        "t.csv: column 'a' is empty in 1 of 60 rows (first: line 6)",
    ),
    (changed("a", 4, "inf"), ["--target", "flow"], "t.csv line 6, column 'a': inf is too large"),
    (changed("b", 7, "1e200"), ["--target", "flow"], "t.csv line 9, column 'b': 1e+200 is too large"),
    ({**columns(), "flow": [3] * 60}, ["--target", "flow"], "target 'flow' is 3 in every row"),
    ({**columns(), "flow": [3] + [""] * 59}, ["--target", "flow"], "target 'flow' is known in 1 row"),
    (
        {**columns(), "flow_low": columns()["flow"]},
        ["--target", "flow,flow_low"],
        "would be called 'flow_low'",
    ),
    ({**columns(), "ood_score": columns()["flow"]}, ["--target", "ood_score"], "would be called 'ood_score'"),
    ({**columns(), "p_x": ["x", "y"] * 30}, ["--target", "p_x"], "would be called 'p_x'"),
    ({**columns(), "b": ["3/4/2024"] * 60}, ["--target", "flow"], "t.csv: column 'b' holds dates"),
    ({**columns(), "b": ["1 000"] * 60}, ["--target", "flow"], "t.csv: column 'b' holds numbers that"),
    (
        {**columns(), "b": [f"id{i}" for i in range(60)]},
        ["--target", "flow"],
        "another text in each of 60 rows",
    ),
    (
        {**columns(), "a": ["", 1] * 30, "b": [1, ""] * 30},
        ["--target", "flow", "--drop-missing"],
        "missing in every row",
    ),
    (columns(rows=1), ["--target", "flow"], "known in 1 row(s); a fit needs at least 2"),
    ({k: [] for k in columns()}, ["--target", "flow"], "has a header but no row"),
    ({"1": [1], "2": [2]}, ["--target", "1"], "the first line holds numbers"),
    ({"a": [1], "": [2]}, ["--target", "a"], "column 2 has no name"),
]


@pytest.mark.parametrize(("cells", "words", "message"), WRONG, ids=range(len(WRONG)))
def test_a_mistake_is_one_line_with_its_place_and_leaves_nothing(run, tmp_path, cells, words, message):
    table = write(tmp_path / "t.csv", cells)
    code, out, err = fit(run, table, tmp_path / "model", *words)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"a,b\n1,2\n3\n", "line 3: expected 2 cells, got 1"),
        (b"a,a\n1,2\n", "two columns are called 'a'"),
        (b"a,b\n1,\xff\n", "is not UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_refused(run, tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    code, _, err = fit(run, tmp_path / "t.csv", tmp_path / "model", "--target", "a")
    assert code == 2
    assert message in err


def test_a_far_away_value_is_a_warning_with_its_place(run, tmp_path):
    table = write(tmp_path / "t.csv", changed("b", 7, "1e12"))
    code, _, err = fit(run, table, tmp_path / "model", "--target", "flow")
    assert code == 0
    assert "warning" in err
    assert "t.csv line 9, column 'b': 1e+12 is far from the others" in err


def test_mistakes_with_models_and_outputs(run, tmp_path):
    table, model = write(tmp_path / "t.csv", columns()), tmp_path / "model"
    assert fit(run, table, model, "--target", "flow")[0] == 0
    less = write(tmp_path / "less.csv", {"a": [1.0], "town": ["Ely"]})
    strange = write(tmp_path / "strange.csv", {"a": ["x"], "b": [1], "depth": [1], "town": ["Ely"]})
    (tmp_path / "holiday").mkdir()
    (tmp_path / "holiday" / "photo.jpg").write_text("")
    picture = write(tmp_path / "table.png", columns())
    for name in ("d.csv", "d.png"):
        (tmp_path / name).mkdir()
    x = np.linspace(0, 1, 30)[:, None]
    unnamed = tmp_path / "unnamed"
    NPRegressor("cnp", n_replicas=1, max_steps=2, random_state=0).fit(x, x[:, 0]).save(unnamed)
    for words, message in [
        (["predict", model, less, "--out", tmp_path / "o.csv"], "less.csv has no column 'b'"),
        (
            ["predict", model, strange, "--out", tmp_path / "o.csv"],
            "'a' held numbers in training but holds 'x' at line 2",
        ),
        (["predict", model, table, "--out", tmp_path / "o.xls"], "ends in .csv or .parquet"),
        (["predict", model, table, "--out", tmp_path / "d.csv"], "d.csv is a folder"),
        (["evaluate", model, table, "--plot", tmp_path / "d.png"], "d.png is a folder"),
        (
            ["fit", table, "--target", "flow", "--inputs", "a,a", "--out", tmp_path / "n"],
            "column 'a' is listed twice in 'a,a'",
        ),
        (["predict", tmp_path / "none", table, "--out", tmp_path / "o.csv"], "holds no estimator"),
        (["predict", model, tmp_path / "none.csv", "--out", tmp_path / "o.csv"], "none.csv is not there"),
        (["predict", model, table, "--out", tmp_path / "o.csv", "--coverage", "90"], "coverage must lie"),
        (["evaluate", model, less], "less.csv has no column 'flow', which the model was fitted to predict"),
        (["evaluate", model, table, "--plot", tmp_path / "p.svg"], "expected a name that ends in .png"),
        (["evaluate", model, picture, "--plot", picture], "is the table itself"),
        (["predict", unnamed, table, "--out", tmp_path / "o.csv"], "fitted to arrays"),
        (["fit", tmp_path, "--target", "flow", "--out", tmp_path / "n"], "is a folder; pass the path"),
        (["fit", table, "--target", "flow", "--out", table / "n"], "nothing can be written into"),
        (["fit", table, "--target", "flow", "--out", tmp_path / "holiday"], "holds no model"),
        (["fit", tmp_path / "t.xls", "--target", "flow", "--out", tmp_path / "n"], "t.xls is not there"),
    ]:
        code, _, err = run(*words)
        assert (code, message in err) == (2, True), (words, err)
    assert not (tmp_path / "o.csv").exists()
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


def test_a_column_may_be_left_out(run, tmp_path):
    cells = {**columns(), "day": ["3/4/2024"] * 60, "id": [f"n{row}" for row in range(60)]}
    table, model = write(tmp_path / "t.csv", cells), tmp_path / "m"
    code, _, err = fit(run, table, model, "--target", "flow")
    assert (code, "column 'day' holds dates" in err, "--exclude" in err) == (2, True, True)
    code, out, err = fit(run, table, model, "--target", "flow", "--exclude", "day,id,depth")
    assert code == 0, err
    assert "regression on flow; numbers: a, b; categories: town (2)" in out
    code, _, err = fit(run, table, model, "--target", "flow", "--exclude", "dya")
    assert (code, "Did you mean 'day'?" in err) == (2, True)


def test_what_the_columns_are_taken_for_is_said_before_the_training(run, tmp_path, monkeypatch):
    def interrupted(*_):
        raise ValueError("no time")

    monkeypatch.setattr(NPRegressor, "fit", interrupted)
    code, out, err = fit(run, write(tmp_path / "t.csv", columns()), tmp_path / "m", "--target", "flow")
    assert (code, "no time" in err) == (2, True)
    assert "regression on flow; numbers: a, b, depth; categories: town (2)" in out
    assert "60 rows, none left out because flow is missing" in out


def test_a_separator_that_is_none_is_hinted_at(run, tmp_path):
    table = write(tmp_path / "t.csv", columns(), separator=":")
    code, _, err = fit(run, table, tmp_path / "m", "--target", "flow")
    assert (code, "It has a single column; columns are separated by a comma" in err) == (2, True)


def test_an_empty_folder_takes_a_model(run, tmp_path):
    (tmp_path / "m").mkdir()
    code, _, err = fit(run, write(tmp_path / "t.csv", columns()), tmp_path / "m", "--target", "flow")
    assert code == 0, err


def test_what_is_missing_in_parquet_goes_by_what_the_model_takes_a_column_for(run, tmp_path):
    cells = {**columns(), "code": [1, ""] * 30}
    cells["town"] = np.where(np.arange(60) % 5 == 0, "", cells["town"])
    cells["code"] = [f"c{code}" if code else "" for code in cells["code"]]
    table, model = write(tmp_path / "t.csv", cells), tmp_path / "m"
    assert fit(run, table, model, "--target", "flow", "--inputs", "a,town,code")[0] == 0
    nulls = pl.DataFrame({"a": ["0.1", "0.2"], "town": [None, None], "code": [None, "c1"]})
    nulls.write_parquet(tmp_path / "nulls.parquet")
    code, out, err = run("predict", model, tmp_path / "nulls.parquet", "--out", tmp_path / "o.csv")
    assert (code, "2 predictions" in out) == (0, True), err
    pl.DataFrame({"a": ["0.1", None], "town": ["Ely"] * 2, "code": ["c1"] * 2}).write_parquet(
        tmp_path / "g.parquet"
    )
    code, _, err = run("predict", model, tmp_path / "g.parquet", "--out", tmp_path / "o.csv", "--strict")
    assert (code, "column 'a' is empty in 1 of 2 rows" in err) == (2, True)
    code, out, err = run(
        "predict", model, tmp_path / "g.parquet", "--out", tmp_path / "o.csv", "--drop-missing"
    )
    assert (code, "1 predictions" in out) == (0, True), err


def test_a_column_that_is_empty_is_not_worth_its_rows(run, tmp_path):
    table = write(tmp_path / "t.csv", {**columns(), "b": [""] * 60})
    code, _, err = fit(run, table, tmp_path / "m", "--target", "flow")
    assert (code, "'b' is empty in all 60 rows" in err, "--exclude" in err) == (2, True, True)
    assert fit(run, table, tmp_path / "m", "--target", "flow", "--exclude", "b,town")[0] == 0
    new = write(tmp_path / "new.csv", {"a": [""], "depth": [1]})
    code, _, err = run("predict", tmp_path / "m", new, "--out", tmp_path / "o.csv")
    assert (code, "'a' has missing values (1 of 1 rows) but had none in training" in err) == (0, True)
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 2


def test_a_row_that_lacks_a_number_is_left_out_in_any_company(run, tmp_path):
    table, model = write(tmp_path / "t.csv", columns()), tmp_path / "m"
    assert fit(run, table, model, "--target", "flow", "--inputs", "a,town")[0] == 0
    for rows in (2, 1):
        some = write(tmp_path / "some.csv", {"a": ["NA", "0.5"][:rows], "town": ["Ely", "Bath"][:rows]})
        code, out, err = run("predict", model, some, "--out", tmp_path / "o.csv", "--drop-missing")
        assert (code, "missing" in out + err) == ((0, True) if rows == 2 else (2, True)), err
        assert "held numbers in training" not in err


def test_a_class_called_none_is_a_class_and_rows_without_a_label_are_counted(run, tmp_path):
    cells = {**columns(), "defect": ["none", "dent", "NA", "?", "1", ""] * 10}
    table, model = write(tmp_path / "t.csv", cells), tmp_path / "m"
    code, out, err = fit(run, table, model, "--target", "defect")
    assert code == 0, err
    assert "classification (5 classes) on defect; numbers: a, b, flow, depth; categories: town (2)" in out
    assert "60 rows, 10 left out because defect is missing" in out
    assert "class shares" in out
    assert "mean predictor" not in out
    ones = write(tmp_path / "ones.csv", {name: values[4::6] for name, values in cells.items()})
    code, out, err = run("evaluate", model, ones)
    assert code == 0, err  # a column of 1 alone looks like numbers
    assert "10 rows, none left out because defect is missing" in out


def test_categories_that_look_like_numbers_are_those_of_the_fit(run, tmp_path):
    sizes = np.array(["S", "M", "038", "40"] * 15)
    cells = {"a": columns()["a"], "size": sizes, "y": 10.0 * (sizes == "40") + columns()["a"]}
    model = tmp_path / "m"
    code, out, err = fit(run, write(tmp_path / "t.csv", cells), model, "--target", "y")
    assert code == 0, err
    assert "regression on y; numbers: a; categories: size (4)" in out
    few = {name: values[2:4] for name, values in cells.items()}
    assert run("predict", model, write(tmp_path / "few.csv", few), "--out", tmp_path / "o.csv")[0] == 0
    frame = pl.DataFrame({"a": few["a"], "size": ["038", "40"]})
    expected = NPRegressor.load(model).predict(frame)
    np.testing.assert_allclose(pl.read_csv(tmp_path / "o.csv")["y"], expected, rtol=1e-5)
    assert expected[1] - expected[0] > 5
    few["size"] = np.array(["40", "XL"])
    new = write(tmp_path / "new.csv", few)
    code, _, err = run("predict", model, new, "--out", tmp_path / "o.csv")
    assert (code, err.count("column 'size': 'XL' was not there in training (1 of 2 rows)")) == (0, 1)
    few["size"] = np.array(["XL", "XL"])
    code, _, err = run("evaluate", model, write(tmp_path / "strange.csv", few))
    assert code == 0
    assert "column 'size': 'XL' was not there in training (2 of 2 rows)" in err


def test_decimal_commas_make_the_same_model_as_points(run, tmp_path):
    cells = {name: values for name, values in columns().items() if name != "town"}
    points = write(tmp_path / "points.csv", cells)
    commas = tmp_path / "commas.csv"
    commas.write_text(points.read_text().replace(",", ";").replace(".", ","))
    for table in (points, commas):
        assert fit(run, table, tmp_path / table.stem, "--target", "flow", "--model", "cnp")[0] == 0
        out = tmp_path / f"{table.stem}-out.csv"
        assert run("predict", tmp_path / table.stem, table, "--out", out)[0] == 0
    assert (tmp_path / "points-out.csv").read_text() == (tmp_path / "commas-out.csv").read_text()


def test_whole_numbers_that_may_be_classes_get_a_hint(run, tmp_path):
    table = write(tmp_path / "t.csv", {**columns(), "churn": [0, 1] * 30})
    hint = "churn takes 2 whole values only (0, 1); if they are classes, use --task classification"
    assert hint in fit(run, table, tmp_path / "m", "--target", "churn")[1]
    for words in (["--target", "churn", "--task", "regression"], ["--target", "flow"]):
        code, out, _ = fit(run, table, tmp_path / "m", *words)
        assert (code, "--task" in out) == (0, False)


def test_a_prediction_does_not_overwrite_its_table(run, tmp_path):
    table = write(tmp_path / "t.csv", columns())
    before = table.read_bytes()
    assert fit(run, table, tmp_path / "m", "--target", "flow")[0] == 0
    (tmp_path / "link.csv").symlink_to(table)
    for name in ("t.csv", "m/../t.csv", "link.csv"):
        code, _, err = run("predict", tmp_path / "m", table, "--out", tmp_path / name)
        assert (code, "is the table itself" in err) == (2, True)
    assert table.read_bytes() == before


def test_rows_with_missing_inputs_are_left_out_when_asked(run, tmp_path):
    table, whole = write(tmp_path / "t.csv", changed("a", 4, "")), tmp_path / "whole.csv"
    lines = table.read_text().splitlines(keepends=True)
    whole.write_text("".join(lines[:5] + lines[6:]))
    assert "--drop-missing" in fit(run, table, tmp_path / "m", "--target", "flow", "--strict")[2]
    code, out, err = fit(run, table, tmp_path / "m", "--target", "flow", "--drop-missing")
    assert code == 0, err
    assert "60 rows, 1 left out because an input is missing" in out
    assert "59 rows, none left out because flow is missing" in out
    code, out, _ = run("predict", tmp_path / "m", table, "--out", tmp_path / "o.csv", "--drop-missing")
    assert (code, "60 rows, 1 left out" in out) == (0, True)
    assert run("predict", tmp_path / "m", whole, "--out", tmp_path / "w.csv")[0] == 0
    made, expected = (tmp_path / name for name in ("o.csv", "w.csv"))
    rows = made.read_text().splitlines()
    assert rows.pop(5) == ",,,,"  # line for line the table
    assert rows == expected.read_text().splitlines()
    code, out, _ = run("evaluate", tmp_path / "m", table, "--drop-missing")
    assert (code, "59 rows of t.csv" in out) == (0, True)


def test_several_targets_are_measured_each_in_its_unit(run, tmp_path):
    cells = columns()
    cells["flow"] = cells["flow"] * 1e6
    table = write(tmp_path / "t.csv", cells)
    code, out, err = fit(run, table, tmp_path / "m", "--target", "flow,depth")
    assert code == 0, err
    code, again, err = run("evaluate", tmp_path / "m", table)
    assert code == 0, err
    for text in (out, again):
        lines = {line.split("│")[1].strip(): line for line in text.splitlines() if "│" in line}
        assert " mse " not in text
        assert "e+" in lines["flow"]
        assert "e+" not in lines["depth"]
    frame = pl.read_csv(table)
    guess = NPRegressor.load(tmp_path / "m").predict(frame.select("a", "b", "town"))
    expected = np.sqrt(np.mean((guess["depth"].to_numpy() - cells["depth"]) ** 2))
    assert float(lines["depth"].split("│")[2]) == pytest.approx(expected, rel=1e-3)


def holes(rows=120, seed=0):
    """A table as they come: missing cells, categories and a date."""
    rng = np.random.default_rng(seed)
    cells = {name: np.array(values, dtype=object) for name, values in columns(rows, seed).items()}
    cells["day"] = np.array(
        [str(np.datetime64("2024-01-01") + int(d)) for d in rng.integers(400, size=rows)], object
    )
    for name in ("a", "b", "town", "day"):
        cells[name][rng.random(rows) < 0.04] = ""
    return cells


def test_a_table_as_they_come_goes_through_at_the_first_try(run, tmp_path):
    table, model = write(tmp_path / "t.csv", holes()), tmp_path / "m"
    code, out, err = fit(run, table, model, "--target", "flow")
    assert code == 0, err
    assert "numbers: a, b, depth; dates: day; categories: town (3)" in out
    new = write(tmp_path / "new.csv", holes(50, seed=1))
    code, out, err = run("predict", model, new, "--out", tmp_path / "o.csv", "--keep", "day,town")
    assert (code, "50 predictions" in out) == (0, True), err
    made, asked = pl.read_csv(tmp_path / "o.csv"), pl.read_csv(new)
    assert made.columns == ["day", "town", "flow", "flow_std", "flow_low", "flow_high", "ood_score"]
    assert made["flow"].null_count() == 0
    assert made["day"].to_list() == asked["day"].to_list()
    assert run("evaluate", model, new)[0] == 0
    code, _, err = fit(run, table, tmp_path / "n", "--target", "flow", "--strict")
    assert (code, [f"column {name!r} is empty" in err for name in ("a", "b", "day")]) == (2, [True] * 3)


def test_standard_streams(run, tmp_path, monkeypatch, capsys):
    table = write(tmp_path / "t.csv", columns())
    assert fit(run, table, tmp_path / "m", "--target", "flow")[0] == 0
    assert run("predict", tmp_path / "m", table, "--out", tmp_path / "o.csv")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(table.read_text()))
    code, out, _ = run("predict", tmp_path / "m", "-", "--out", "-")
    assert (code, out) == (0, (tmp_path / "o.csv").read_text())


def test_groups_are_tasks_and_new_ones_are_predicted_from_some_of_their_rows(run, tmp_path):
    rng = np.random.default_rng(0)
    sensor = np.repeat([f"s{i}" for i in range(12)], 10)
    cells = {
        "sensor": sensor,
        "x": rng.normal(size=120).round(3),
        "y": (10.0 * rng.normal(size=12)).repeat(10).round(3),
    }
    code, out, err = fit(
        run, write(tmp_path / "t.csv", cells), tmp_path / "m", "--target", "y", "--group", "sensor"
    )
    assert code == 0, err
    assert "12 groups by sensor" in out
    assert "Groups of t.csv that were held out" in out
    new = write(tmp_path / "new.csv", {"sensor": ["b", "a", "b"], "x": [1, 2, 3]})
    known = write(tmp_path / "known.csv", {"sensor": ["a", "a", "b"], "x": [0, 1, 0], "y": [-5, -5, 8]})
    words = ["predict", tmp_path / "m", new, "--context", known, "--group", "sensor", "--keep", "sensor"]
    code, _, err = run(*words, "--out", tmp_path / "o.csv")
    assert code == 0, err
    made = pl.read_csv(tmp_path / "o.csv")
    assert made["sensor"].to_list() == ["b", "a", "b"]
    fitted = NPRegressor.load(tmp_path / "m", device="cpu")
    frame = pl.DataFrame({"x": [2.0]})
    expected = fitted.predict(frame, context=(pl.DataFrame({"x": [0.0, 1.0]}), [-5.0, -5.0]))
    assert made["y"][1] == pytest.approx(expected[0], rel=1e-4)
    one = write(tmp_path / "one.csv", {"x": [2]})
    part = write(tmp_path / "part.csv", {"x": [0, 1], "y": [-5, -5]})
    assert run("predict", tmp_path / "m", one, "--context", part, "--out", tmp_path / "p.csv")[0] == 0
    assert pl.read_csv(tmp_path / "p.csv")["y"][0] == pytest.approx(expected[0], rel=1e-4)
    asked = write(tmp_path / "asked.csv", {"sensor": ["b", "a", "b"], "x": [1, 2, 3], "y": [8, -5, 8]})
    code, out, err = run("evaluate", tmp_path / "m", asked, "--context", known, "--group", "sensor")
    rmse = np.sqrt(np.mean((made["y"].to_numpy() - [8, -5, 8]) ** 2))
    assert (code, f"{rmse:.4g}" in out) == (0, True), err + out


def test_groups_and_the_latest_rows_are_held_out_when_asked(run, tmp_path):
    table = write(tmp_path / "t.csv", {**holes(80), "day": [f"2024-01-{1 + i % 28:02}" for i in range(80)]})
    code, out, err = fit(run, table, tmp_path / "m", "--target", "flow", "--time", "day")
    assert (code, "dates: day" in out) == (0, True), err
    whole = write(tmp_path / "u.csv", {**holes(80), "plot": np.arange(80) % 6})
    code, out, err = fit(run, whole, tmp_path / "n", "--target", "flow", "--group", "plot", "--one-table")
    assert (code, "Rows of u.csv" in out) == (0, True), err
    assert run("predict", tmp_path / "n", whole, "--out", tmp_path / "o.csv")[0] == 0
    for words, message in (
        (["--one-table"], "got no --group"),
        (["--group", "town", "--time", "day"], "got both"),
        (["--time", "town"], "--time town has no number or date"),
    ):
        code, _, err = fit(run, table, tmp_path / "q", "--target", "flow", *words)
        assert (code, message in err) == (2, True), err


def test_a_column_of_weights_is_no_input_and_moves_predictions(run, tmp_path):
    x, y = np.random.default_rng(0).normal(size=80).round(3), np.arange(80) % 2
    table = write(tmp_path / "t.csv", {"x": x, "y": y, "count": 1 + 2 * y, "word": ["a"] * 80})
    told = ["--target", "y", "--task", "regression", "--exclude", "word", "--weight"]
    code, out, err = fit(run, table, tmp_path / "m", *told, "count")
    assert (code, "count" in out) == (0, False), err
    assert run("predict", tmp_path / "m", table, "--out", tmp_path / "p.csv")[0] == 0
    assert pl.read_csv(tmp_path / "p.csv")["y"].mean() == pytest.approx(0.75, abs=0.08)
    for words, message in (
        (["word"], "--weight word has no number at"),
        (["count", "--group", "word"], "add --one-table"),
    ):
        code, _, err = fit(run, table, tmp_path / "q", *told, *words)
        assert (code, message in err) == (2, True), err


def test_a_fit_that_learned_nothing_says_so(run, tmp_path):
    rng = np.random.default_rng(0)
    table = write(tmp_path / "t.csv", {"a": rng.normal(size=60).round(3), "y": rng.normal(size=60).round(3)})
    code, _, err = fit(run, table, tmp_path / "m", "--target", "y")
    assert (code, "warning: rows that were held out are not predicted clearly better" in err) == (0, True)


def test_all_mistakes_of_a_table_are_listed_at_once(run, tmp_path):
    cells = {
        **columns(),
        "id": [f"r{i}" for i in range(60)],
        "when": ["01/02/2024"] * 60,
        "big": ["1 000"] * 60,
        "odd": [*map(str, range(57)), "x", "y", "z"],
        "gap": [None, *range(59)],
        "still": [1] * 60,
        "note": [*map(str, range(59)), "unread"],
    }
    options = ["--target", "flow,still", "--exclude", "note", "--strict"]
    code, _, err = fit(run, write(tmp_path / "t.csv", cells), tmp_path / "m", *options)
    assert code == 2
    for name in ("id", "when", "big", "odd", "gap", "still"):
        assert err.count(repr(name)) == 1, (name, err)
    assert "'x' is not a number, as most of this column are (nor are 2 others)" in err
    assert "note" not in err  # an excluded column may hold anything


def test_a_model_lists_all_mistakes_of_a_new_table_at_once(run, tmp_path):
    told = {"a": np.arange(30), "b": np.arange(30) % 7, "c": np.arange(30) % 5, "y": np.arange(30) ** 2}
    assert fit(run, write(tmp_path / "t.csv", told), tmp_path / "m", "--target", "y")[0] == 0
    asked = write(tmp_path / "u.csv", {"a": ["1", "2", "x"], "d": ["1", "2", "u"]})
    for command in (
        ["predict", tmp_path / "m", asked, "--out", tmp_path / "p.csv"],
        ["evaluate", tmp_path / "m", asked],
    ):
        code, _, err = run(*command)
        assert code == 2
        assert [repr(name) in err for name in "abcd"] == [True, True, True, False], err


# --- names are texts, and nothing else ---


def test_names_are_neither_mathematics_nor_markup_nor_escapes_nor_formulas(run, tmp_path):
    given = columns()
    names = ["price_$", "rate [/h]", "length [cm]", "=1+1", "\x1b[31mred"]
    cells = {"a": given["a"], "b": given["b"]} | {name: given["flow"] + i for i, name in enumerate(names)}
    table = write(tmp_path / "[bold] t$.csv", cells)
    model, out = tmp_path / "m [red] $x", tmp_path / "o [/].csv"
    code, said, err = fit(run, table, model, "--target", ",".join(names), "--inputs", "a,b", "--model", "cnp")
    assert code == 0, err
    assert (model / "calibration.png").read_bytes()[:8] == PNG
    for name in ("price_$", "rate [/h]", "length [cm]", "=1+1", "\\x1b[31mred", "[bold] t$.csv"):
        assert name in said, name
    assert "m[red]$x" in "".join(said.split())
    assert "\x1b[31mred" not in said + err
    code, said, err = run("predict", model, table, "--out", out)
    assert code == 0, err
    assert "o[/].csv" in "".join(said.split())
    with out.open() as file:
        header = next(csv.reader(file))
    assert {"price_$", "rate [/h]", "'=1+1", "'=1+1_std"} <= set(header)
    code, said, err = run("evaluate", model, table, "--plot", tmp_path / "$.png")
    assert code == 0, err
    assert "length [cm]" in said
    code, _, err = run("predict", tmp_path / "\x1b[2J", table, "--out", out)
    assert code == 2
    assert "\x1b" not in err


def test_a_model_is_kept_though_its_plot_cannot_be_drawn(run, tmp_path, monkeypatch):
    def fail(*args):
        raise ValueError("no ink")

    monkeypatch.setattr("dsvnp.tabular.summary.calibration_plot", fail)
    code, _, err = fit(run, write(tmp_path / "t.csv", columns()), tmp_path / "model", "--target", "flow")
    assert (code, "no ink" in err) == (2, True)
    assert NPRegressor.load(tmp_path / "model").target_names_ == ("flow",)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_is_predicted_part_by_part_as_in_one(run, tmp_path, monkeypatch, ending):
    cells = columns(rows=50)
    cells["town"][1:12] = ""
    cells["b"] = [*[""] * 10, *cells["b"][10:].tolist()]
    table = write(tmp_path / "t.csv", cells)
    words = ["--target", "town", "--inputs", "a,b,flow", "--model", "cnp"]
    assert fit(run, table, tmp_path / "m", *words)[0] == 0
    whole, parts = tmp_path / f"whole.{ending}", tmp_path / f"parts.{ending}"
    cells["town_before"] = cells.pop("town")
    table = write(tmp_path / "t.csv", cells)
    words = ["--keep", "flow,town_before", "--drop-missing"]
    if ending == "parquet":
        frame = pl.read_csv(table, null_values="")
        frame.write_parquet(table := tmp_path / "t.parquet")
    assert run("predict", tmp_path / "m", table, "--out", whole, *words)[0] == 0
    monkeypatch.setattr("dsvnp.cli.table_answers.PART", 7)
    code, said, err = run("predict", tmp_path / "m", table, "--out", parts, *words)
    assert code == 0, err
    assert "50 rows, 10 left out" in said
    if ending == "csv":
        assert parts.read_text() == whole.read_text()
    else:
        polars.testing.assert_frame_equal(pl.read_parquet(parts), pl.read_parquet(whole))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_later_part_that_is_refused_leaves_the_file_of_before(run, tmp_path, monkeypatch):
    table = write(tmp_path / "t.csv", columns(rows=30))
    assert fit(run, table, tmp_path / "m", "--target", "flow")[0] == 0
    out = tmp_path / "o.csv"
    out.write_text("before")
    (tmp_path / ".writing-o.csv-0123abcd").write_text("of a process that was killed")
    (tmp_path / ".writing-no.csv-0123abcd").write_text("of another file")
    broken = write(tmp_path / "t.csv", changed("a", 28, "tall"))
    monkeypatch.setattr("dsvnp.cli.table_answers.PART", 7)
    code, _, err = run("predict", tmp_path / "m", broken, "--out", out)
    assert code == 2
    assert "'a' held numbers in training but holds" in err or "line 30, column 'a'" in err
    assert out.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == [
        ".writing-no.csv-0123abcd"
    ]
