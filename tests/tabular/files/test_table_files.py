"""Tables as people's programs write them: what is read, and what is refused."""

import random
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dsvnp.naming import unknown
from dsvnp.tabular.columns import Columns
from dsvnp.tabular.files import table_files
from dsvnp.tabular.files.parquet_pages import _pages, check_pages
from dsvnp.tabular.files.table_files import check_texts, parts_of_table, read_table
from dsvnp.tabular.files.table_writing import write_table
from tests.faults.attacks import damage


def read(tmp_path, text, **options):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    return read_table(path, **options)


@pytest.mark.parametrize("word", ["none", "NA", "null", "n/a", "?", "NaN"])
def test_a_word_for_nothing_is_a_text_among_texts_and_missing_among_numbers(tmp_path, word):
    table = read(tmp_path, f"kind,size,all\nscratch,1,{word}\n{word},{word},{word}\n,2,\n")
    assert table["kind"].tolist() == ["scratch", word, ""]
    np.testing.assert_array_equal(table["size"], [1, np.nan, 2])
    assert table["all"].tolist() == [word, word, ""]


def test_a_cell_may_hold_lines_and_signs_that_end_them_elsewhere(tmp_path):
    table = read(tmp_path, 'note,size\n"two\nlines",1\nnext\x85line,2\n')
    assert table["note"].tolist() == ["two\nlines", "next\x85line"]
    assert table["size"].tolist() == [1, 2]


def test_python_s_own_way_to_group_digits_is_text(tmp_path):
    assert read(tmp_path, "a,b\n1_000,1\n2_000,2\n")["a"].tolist() == ["1_000", "2_000"]


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_text("junk")
    with pytest.raises(ValueError, match=r"t\.parquet cannot be read as Parquet"):
        read_table(path)


def test_a_column_of_empty_cells_is_missing_numbers(tmp_path):
    assert np.isnan(read(tmp_path, "a,b\n1,\n2,\n")["b"]).all()


def test_a_column_of_words_for_nothing_is_missing_numbers_to_a_model_that_knows_its_texts(tmp_path):
    table = read(tmp_path, "a,b,c\nNA,NA,u\n?,x,v\n", texts={"b"})
    assert np.isnan(table["a"]).all()
    assert table["b"].tolist() == ["NA", "x"]
    assert table["c"].tolist() == ["u", "v"]


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("empty", ["\n", " \n\n", ",,\n", ";;\n", '"",""\n', "\n||\n\u00a0\n"])
def test_empty_lines_above_the_header_do_not_count(tmp_path, empty, separator):
    table = read(tmp_path, empty + "a\u2028a,b,c\n1,2,x\n".replace(",", separator))
    assert table.columns == ("a\u2028a", "b", "c")
    assert table.place(0) == f"line {empty.count(chr(10)) + 2}"


@pytest.mark.parametrize("text", ["", "\n \n", ",,\n;\n", '"",""\n', "\u00a0"])
def test_a_file_without_a_word_is_empty(tmp_path, text):
    with pytest.raises(ValueError, match=r"t\.csv is empty; expected a header"):
        read(tmp_path, text)


@pytest.mark.parametrize("rows", [3, 50_000])
def test_a_quote_that_is_left_open_is_mentioned(tmp_path, rows):
    with pytest.raises(ValueError, match=r"t\.csv line \d+: .*; is a quote left open there or above\?"):
        read(tmp_path, '\na,b\n1,"x\n' + "2,y\n" * rows)


def test_texts_that_are_asked_for_stay_as_they_are_written(tmp_path):
    table = read(tmp_path, "size;code\n38;1,5\n040;2,5\n", texts={"size", "code"})
    assert table["size"].tolist() == ["38", "040"]
    assert table["code"].tolist() == ["1,5", "2,5"]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_decimal_commas_are_read_where_commas_do_not_separate(tmp_path, separator):
    text = "a;n;town\n1,5;1;Ely\n-,25;2;Bath\n2,5e3;na;Ely, Cambs\n".replace(";", separator)
    table = read(tmp_path, text)
    assert table["a"].tolist() == [1.5, -0.25, 2500]
    np.testing.assert_array_equal(table["n"], [1, 2, np.nan])
    assert table["town"].tolist() == ["Ely", "Bath", "Ely, Cambs"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(tmp_path, separator):
    table = read(tmp_path, separator.join(["a", "b"]) + "\n" + separator.join(["1.5", "x"]) + "\n")
    assert (table["a"].tolist(), table["b"].tolist()) == ([1.5], ["x"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a;b\n1 000;1\n2 000;2\n", r"column 'a' holds numbers .* \('1 000' at line 2\)"),
        ("a;b\n1\u202f000;1\n", "column 'a' holds numbers"),
        ("a;b\n1'000;1\n", "column 'a' holds numbers"),
        ("a;b\n1.234,56;1\n", "column 'a' holds numbers"),
        ("a;b\n1,234,567;1\n", "column 'a' holds numbers"),
        ("a;b\n1,500;1\n", "column 'a' holds numbers"),  # 1.5 or 1500?
        ("a;b\n1,5;2.5\n", "column 'a' holds numbers"),  # which of the two is the decimal one?
        ('a,b\n"1,5",1\n', "column 'a' holds numbers"),
        ("a,b\n2024-02-31,1\n,2\n", r"column 'a' holds dates .* \('2024-02-31' at line 2\)"),
        ("a,b\n3/4/2024,1\n", "column 'a' holds dates"),  # in March or in April?
        ("a,b\n31.12.2024,1\n2024-01-05,2\n", "column 'a' holds dates"),
    ],
)
def test_numbers_in_doubt_and_dates_are_refused_where_they_are_used(tmp_path, text, message):
    table = read(tmp_path, text)
    with pytest.raises(ValueError, match=message):
        check_texts(tmp_path / "t.csv", table)
    check_texts(tmp_path / "t.csv", table.select(["b"]))


def test_texts_with_a_few_of_these_are_texts(tmp_path):
    check_texts(tmp_path / "t.csv", Columns(("a",), (np.array(["x", "2024-01-31", "1 000", ""], object),)))


def test_an_empty_cell_of_parquet_is_missing_and_a_word_is_not(tmp_path):
    pl.DataFrame({"kind": ["none", None, "x"]}).write_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet")["kind"].tolist() == ["none", "", "x"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2024-01-31", "", "2024-2-1"], ["2024-01-31", "NaT", "2024-02-01"]),
        (["2024-01-31T10:15:00Z", "2024-01-31 9:05"], ["2024-01-31T10:15", "2024-01-31T09:05"]),
        (["2024-01-31T10:15:00+02:00"], ["2024-01-31T08:15"]),
        (["31.12.2024", "1.2.2024"], ["2024-12-31", "2024-02-01"]),
        (["31/12/2024", "1/2/2024"], ["2024-12-31", "2024-02-01"]),
        (["12/31/2024", "1/2/2024"], ["2024-12-31", "2024-01-02"]),
    ],
)
def test_dates_are_read(tmp_path, cells, expected):
    table = read(tmp_path, "\n".join(["a,b", *(f"{cell},1" for cell in cells)]) + "\n")
    np.testing.assert_array_equal(table["a"], np.array(expected, dtype="datetime64[s]"))


def test_all_mistakes_of_a_table_are_named_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"(?s)line 3, column 'a': 'x'.*line 4, column 'b': 'y'"):
        read(tmp_path, "a,b\n1,1\nx,2\n3,y\n4,4\n")
    with pytest.raises(ValueError, match=r"(?s)'a' holds numbers.*'b' holds numbers"):
        check_texts(tmp_path / "t.csv", read(tmp_path, "a;b\n1 000;1 000\n"))


def test_predictions_have_six_digits_and_may_go_to_the_standard_output(tmp_path, capsys):
    for path in (tmp_path / "o.csv", Path("-")):
        write_table(path, ["a", "b"], [np.array([1 / 3, 2e9 / 3]), np.array(["x", None], dtype=object)])
    assert (tmp_path / "o.csv").read_text() == capsys.readouterr().out == "a,b\n0.333333,x\n6.66667e+08,\n"


def test_a_hundred_thousand_columns_are_found_by_name_in_seconds():
    names = tuple(f"c{i}" for i in range(100_000))
    start = time.process_time()
    table_files._check_header(Path("t.csv"), names)
    table = Columns(names, (np.zeros(1),) * len(names))
    assert table.select(names[1:]).columns == names[1:]
    assert len(unknown("c", names, "column")) < 2000
    assert time.process_time() - start < 5


def test_decimal_commas_and_days_show_in_the_first_part_and_hold_for_all(tmp_path):
    path = tmp_path / "t.csv"
    lines = ["x;day;n", "0,25;25/1/2024;1", "1,5;2/3/2024;2", "1,500;3/4/2024;3", "7,125;5/6/2024;4"]
    path.write_text("\n".join(lines) + "\n")
    parts = list(parts_of_table(path, (), 2))
    assert [part["x"].tolist() for part in parts] == [[0.25, 1.5], [1.5, 7.125]]
    assert parts[1]["day"].astype(str).tolist() == ["2024-04-03T00:00:00", "2024-06-05T00:00:00"]
    assert [part.place(1) for part in parts] == ["line 3", "line 5"]
    path.write_text("\n".join([*lines, "1.5;1/2/2024;4"]) + "\n")
    with pytest.raises(ValueError, match=r"t\.csv line 6 and below: decimal points, where rows above"):
        list(parts_of_table(path, (), 2))


def test_damaged_parquet_is_refused_by_name_or_read(tmp_path):
    path, chance = tmp_path / "t.parquet", random.Random(0)
    pl.DataFrame({"a": np.arange(50.0), "t": ["x", "y"] * 25}).write_parquet(path)
    whole = path.read_bytes()
    refusals = []
    for _ in range(60):
        path.write_bytes(damage(whole, chance))
        try:
            read_table(path)
        except ValueError as error:
            refusals.append(str(error))
    assert len(refusals) > 20
    assert all(str(path) in reason for reason in refusals)


# --- pages of Parquet ---


@pytest.mark.parametrize(
    "options", [{}, {"compression": "uncompressed"}, {"row_group_size": 7, "statistics": "full"}]
)
def test_pages_that_polars_writes_pass(tmp_path, options):
    path = tmp_path / "t.parquet"
    frame = pl.DataFrame({"a": np.arange(20.0), "t": ["x", None] * 10, "list": [[1, 2], []] * 10})
    frame.write_parquet(path, **options)
    check_pages(path)
    with path.open("rb") as file:
        pages = list(_pages(file))
    data = [header[5] for _, header, _ in pages if 5 in header]
    groups = -(-20 // options.get("row_group_size", 20))
    assert len(data) == 3 * groups
    assert sum(page[1] for page in data) == 20 + 20 + 30  # an empty list is a value, too


def test_a_page_with_a_negative_or_too_large_count_is_refused_and_does_not_end_the_process(tmp_path):
    """polars would take memory for 2**61 bytes, and abort."""
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": np.arange(20.0)}).write_parquet(path)
    data = path.read_bytes()
    at = data.index(bytes([0x2C, 0x15, 40])) + 2  # the header of a data page: 20 values, as 40
    for count in (39, 42):  # -20 and 21
        path.write_bytes(data[:at] + bytes([count]) + data[at + 1 :])
        with pytest.raises(ValueError, match=r"cannot be read as Parquet \(the page at byte 4 has sizes"):
            read_table(path)
    path.write_bytes(data)
    assert len(read_table(path)) == 20
