"""Frames in as numbers, answers out as the same kind."""

import decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.preprocessing import OneHotEncoder

from dsvnp import NPRegressor
from dsvnp.tabular.columns import Columns, answer, names_of, values_of
from dsvnp.tabular.rows.encoding import Encoding, Filling

CELLS = {"a": [1.0, 2.0, 3.0], "town": ["Ely", "Bath", "Ely"], "n": [1, 2, 3], "yes": [True, False, True]}
FRAMES = [pd.DataFrame(CELLS), pl.DataFrame(CELLS)]


@pytest.mark.parametrize("frame", FRAMES, ids=["pandas", "polars"])
def test_texts_are_encoded_as_scikit_learn_does_and_numbers_stay(frame):
    table = Columns.of(frame)
    numbers = Encoding.fit(table).transform(table)
    town = OneHotEncoder(sparse_output=False).fit_transform(np.array(CELLS["town"])[:, None])
    expected = np.column_stack([CELLS["a"], CELLS["n"], CELLS["yes"], town]).astype(float)
    np.testing.assert_array_equal(numbers, expected)


def test_an_unknown_category_is_zeros_and_a_missing_one_is_a_category():
    encoding = Encoding.fit(Columns.of(pd.DataFrame({"c": ["x", None, "y"]})))
    assert encoding.categories == (("", "x", "y"),)
    with pytest.warns(UserWarning, match=r"column 'c': 'z' was not there in training \(1 of 3 rows\)"):
        out = encoding.transform(Columns.of(pd.DataFrame({"c": ["z", None, "y"]})))
    assert out.tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    "series",
    [
        pd.Series([1, 2, None], dtype="Int64"),
        pd.Series([decimal.Decimal("1"), decimal.Decimal("2"), None]),
        pl.Series([1, 2, None]),
    ],
)
def test_numbers_in_other_clothes_are_numbers(series):
    frame = pd.DataFrame({"a": series}) if isinstance(series, pd.Series) else pl.DataFrame({"a": series})
    np.testing.assert_array_equal(Columns.of(frame)["a"], [1.0, 2.0, np.nan])


def test_numbers_that_are_declared_categories_are_categories():
    frame = pd.DataFrame({"code": pd.Series([10, 20, 10], dtype="category")})
    assert Encoding.fit(Columns.of(frame)).categories == (("10", "20"),)


CODES = [10, 20, 10]
SAME_CODES = [
    pd.Series(CODES),
    pd.Series(CODES, dtype="float64"),
    pd.Series(CODES, dtype="Int64"),
    pd.Series(CODES, dtype="category"),
    pd.Series([*CODES, None], dtype="category")[:3],
    pd.Series(["10", "20", "10"]),
    pd.Series(["10", "20", "10"], dtype="category"),
]


@pytest.mark.parametrize("asked", SAME_CODES, ids=range(len(SAME_CODES)))
@pytest.mark.parametrize("seen", SAME_CODES[3:], ids=range(3, len(SAME_CODES)))
def test_a_category_is_the_same_in_whatever_type_it_comes(seen, asked):
    encoding = Encoding.fit(Columns.of(pd.DataFrame({"code": seen})))
    assert encoding.categories == (("10", "20"),)
    out = encoding.transform(Columns.of(pd.DataFrame({"code": asked})))
    assert out.tolist() == [[1, 0], [0, 1], [1, 0]]


def test_flags_are_the_same_as_categories_and_as_they_are():
    flags = pd.Series([True, False])
    encoding = Encoding.fit(Columns.of(pd.DataFrame({"yes": flags.astype("category")})))
    assert encoding.transform(Columns.of(pd.DataFrame({"yes": flags}))).tolist() == [[0, 1], [1, 0]]


def test_numbers_of_training_may_come_as_texts_or_categories_later():
    encoding = Encoding.fit(Columns.of(pd.DataFrame({"a": [1.5, 2.0]})))
    for asked in (pd.Series(["1.5", "2"]), pd.Series([1.5, 2.0], dtype="category")):
        assert encoding.transform(Columns.of(pd.DataFrame({"a": asked}))).tolist() == [[1.5], [2.0]]
    out = encoding.transform(Columns.of(pd.DataFrame({"a": ["1.5", None]})))
    np.testing.assert_array_equal(out, [[1.5], [np.nan]])


def test_words_for_nothing_are_categories_and_missing_cells_are_not():
    frame = pd.DataFrame({"c": pd.Series(["none", "<NA>", "NaT", None, np.nan, pd.NA], dtype=object)})
    assert Encoding.fit(Columns.of(frame)).categories == (("", "<NA>", "NaT", "none"),)


def test_a_row_of_an_unknown_category_is_zeros_alone_as_among_others():
    encoding = Encoding.fit(Columns.of(pd.DataFrame({"c": ["x", "y"]})))
    with pytest.warns(UserWarning, match=r"column 'c': an empty cell, 'z' was not there .* \(2 of 2 rows\)"):
        alone = encoding.transform(Columns.of(pd.DataFrame({"c": ["z", None]})))
    with pytest.warns(UserWarning, match=r"\(2 of 3 rows\)"):
        among = encoding.transform(Columns.of(pd.DataFrame({"c": ["z", None, "y"]})))
    assert (alone == 0).all()
    np.testing.assert_array_equal(among[:2], alone)


def test_some_rows_keep_their_places():
    table = Columns(("a",), (np.array([1.0, 2.0, 3.0]),), ["line 2", "line 3", "line 4"])
    kept = table.rows(np.array([True, False, True]))
    assert (kept["a"].tolist(), kept.place(1), len(kept)) == ([1.0, 3.0], "line 4", 2)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"id": [f"n{i}" for i in range(30)]}), "'id' has another text in each of 30 rows"),
        (
            pd.DataFrame({"id": [f"n{i}" for i in range(30)], "name": [f"n{i}" for i in range(30)]}),
            "(?s)'id' has another text.*'name' has another text",
        ),
        (pd.DataFrame({"a": [np.inf, 1.0]}), "contains infinity: column 'a' at row 0"),
    ],
)
def test_what_cannot_be_read_is_named(frame, message):
    with pytest.raises(ValueError, match=message):
        Encoding.fit(Columns.of(frame)).transform(Columns.of(frame))


def test_a_text_where_training_had_numbers_is_named_with_its_row():
    encoding = Encoding.fit(Columns.of(pd.DataFrame({"a": [1.0, 2.0]})))
    with pytest.raises(ValueError, match=r"'a' held numbers in training but holds 'n/a' at row 1"):
        encoding.transform(Columns.of(pd.DataFrame({"a": ["1", "n/a"]})))


def test_answers_are_of_the_kind_that_was_asked_with():
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=[7, 9])
    one, two = np.array([1.0, 2.0]), np.array([[1.0, 2.0], [3.0, 4.0]])
    pd.testing.assert_series_equal(answer(one, frame, ["t"]), pd.Series(one, index=[7, 9], name="t"))
    pd.testing.assert_frame_equal(
        answer(two, frame, ["u", "v"]), pd.DataFrame(two, index=[7, 9], columns=["u", "v"])
    )
    polars = pl.DataFrame({"a": [1.0, 2.0]})
    assert answer(one, polars, ["t"]).equals(pl.Series("t", [1.0, 2.0]))
    assert answer(np.array(["x", "y"], dtype=object), polars, ["t"]).to_list() == ["x", "y"]
    assert answer(two, polars, ["u", "v"]).equals(pl.DataFrame({"u": [1.0, 3.0], "v": [2.0, 4.0]}))
    assert answer(one, np.zeros((2, 1)), ["t"]) is one
    assert answer(np.zeros((2, 2, 2)), frame, ["t"]).shape == (2, 2, 2)


def test_outputs_of_frames_have_names_and_nan_where_missing():
    assert names_of(pd.Series([1.0], name="flow"), 1) == ("flow",)
    assert names_of(pl.DataFrame({"u": [1], "v": [2]}), 2) == ("u", "v")
    assert names_of(np.zeros((3, 2)), 2) == ("y0", "y1")
    assert names_of(pd.Series([1.0]), 1) == ("y",)
    np.testing.assert_array_equal(values_of(pd.Series([1, None], dtype="Int64")), [1.0, np.nan])
    np.testing.assert_array_equal(values_of(pl.Series([1, None])), [1.0, np.nan])
    assert values_of(pd.DataFrame({"u": [1.0], "v": [2.0]})).tolist() == [[1.0, 2.0]]
    assert values_of(pd.Series(["x", "y"])).tolist() == ["x", "y"]


def test_tables_below_each_other_must_have_the_same_columns():
    first, second = (Columns.of(pd.DataFrame({name: [1.0]})) for name in "ab")
    assert len(Columns.concatenate([first, first])) == 2
    with pytest.raises(ValueError, match="expected the columns a, got b"):
        Columns.concatenate([first, second])


WHEN = ["2024-01-01", "2024-04-01T06:00", None, "2024-07-02T12:00"]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"t": pd.to_datetime(WHEN, format="ISO8601")}),
        pl.DataFrame({"t": np.array(WHEN, dtype="datetime64[us]")}),
    ],
    ids=["pandas", "polars"],
)
def test_dates_are_days_and_points_on_circles(frame):
    encoding = Encoding.fit(Columns.of(frame))
    assert encoding.cycles == (("year", "week", "clock"),)
    out = encoding.transform(Columns.of(frame))
    days = (np.array(WHEN, dtype="datetime64[s]") - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    np.testing.assert_allclose(out[:, 0], days)
    assert np.isnan(out[2]).all()
    np.testing.assert_allclose(out[:, 5], np.sin(2 * np.pi * days), atol=1e-9)
    np.testing.assert_allclose(out[:2, 6], [1, 0], atol=1e-9)  # midnight, six in the morning
    assert np.hypot(out[0, 1] - out[3, 1], out[0, 2] - out[3, 2]) == pytest.approx(
        2, abs=0.01
    )  # half a year apart


def test_a_cycle_that_dates_are_too_short_or_coarse_for_is_left_out():
    for days, cycles in ((1, ()), (10, ("week",)), (100, ("year", "week"))):
        frame = pd.DataFrame({"t": pd.date_range("2024-01-01", periods=days + 1)})
        assert Encoding.fit(Columns.of(frame)).cycles == (cycles,)


def test_numbers_as_text_are_numbers_if_they_are_many_and_codes_if_few():
    many, few = [str(0.5 * i) for i in range(30)], ["10", "20"] * 15
    encoding = Encoding.fit(Columns.of(pl.DataFrame({"a": many, "b": few})))
    assert encoding.categories == (None, ("10", "20"))


def test_of_many_categories_the_frequent_ones_count():
    texts = [f"n{i}" for i in range(300)] + [f"n{i}" for i in range(150)]
    (found,) = Encoding.fit(Columns.of(pd.DataFrame({"name": texts}))).categories
    assert len(found) == 200
    assert {f"n{i}" for i in range(150)} <= set(found)


def test_gaps_are_filled_with_the_median_and_flagged_where_training_had_some():
    x = np.array([[1.0, 5.0], [np.nan, 6.0], [3.0, 7.0], [9.0, 8.0]])
    filling = Filling.fit(x, ["a", "b"])
    np.testing.assert_array_equal(
        filling.transform(x, ["a", "b"]), [[1, 5, 0], [3, 6, 1], [3, 7, 0], [9, 8, 0]]
    )
    with pytest.warns(UserWarning, match=r"'b' has missing values \(1 of 1 rows\) but had none in training"):
        out = filling.transform(np.array([[2.0, np.nan]]), ["a", "b"])
    assert out.tolist() == [[2, 6.5, 0]]


@pytest.mark.parametrize("settings", [{}, {"model": "cnp", "max_steps": 100}], ids=["pretrained", "cnp"])
def test_an_empty_column_as_in_a_fold_is_a_warning(settings):
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = np.sin(3 * x[:, 0])
    x[:, 1] = np.nan
    with pytest.warns(UserWarning, match="column '1' is empty in all 60 rows; nothing is learned from it"):
        found = NPRegressor(**settings, random_state=0).fit(x, y)
    for value in (0.5, 1e6):
        there = x[:5].copy()
        there[:, 1] = value  # as little as a missing one
        np.testing.assert_array_equal(found.predict(there), found.predict(x[:5]))
    x[:, 1] = 0.0
    np.testing.assert_array_equal(found.predict(x[:5]), found.predict(there))
