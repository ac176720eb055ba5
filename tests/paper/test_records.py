"""Files of results that are damaged or hostile are refused in one line that names them."""

import json
import random
import tracemalloc
from dataclasses import replace
from functools import partial

import pytest
from made_runs import row, write_run

from dsvnp.files import gunzipped, gzipped
from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.gather import gather
from dsvnp.paper.label import Label
from dsvnp.paper.records import RESULTS, UNITS, UNITS_FILE, check_name, read_record, read_units, write_units
from dsvnp.paper.report.numbers import clear_best
from dsvnp.paper.report.page import write_report
from dsvnp.paper.runner import run
from dsvnp.schema import LARGEST, read_json, wrong
from tests.faults.counting import Counting, place

HOSTILE = [
    "",
    "[]",
    "null",
    "7",
    '"x"',
    "{",
    "\0",
    "[" * 100_000,
    '{"a":' * 100_000,
    "1" * 10_000,
    '{"units": {}}',
]


@pytest.mark.parametrize("name", ["results.json", UNITS_FILE])
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_record_is_named_by_report_and_gather(tmp_path, name, text):
    folder = write_run(tmp_path / "a", [row("cnp", [1.0])])
    (folder / name).write_bytes(gzipped(text) if name == UNITS_FILE else text.encode())
    with pytest.raises(ValueError, match=rf"{name} .+; ") as caught:
        write_report(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    if name == UNITS_FILE:
        with pytest.raises(ValueError, match=rf"{name} .+; "):
            gather(tmp_path / "out", [folder])


def damaged(data, chance: random.Random):
    """A record with one value replaced by something that does not belong there."""
    data = json.loads(json.dumps(data))
    places = []

    def walk(node):
        keys = node if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(data)
    node, key = chance.choice(places)
    odd = [
        None,
        [],
        {},
        "",
        "x" * 1000,
        "../../etc",
        "a\nb\x1b[31m",
        True,
        10**400,
        -1,
        1e308,
        float("nan"),
        [[]],
    ]
    node[key] = chance.choice([*odd, {"a": 1}])
    if isinstance(node, dict) and chance.random() < 0.2:
        del node[key]
    return data


@pytest.mark.parametrize("seed", range(3))
def test_damaged_records_never_lead_to_anything_but_a_line(tmp_path, seed):
    chance = random.Random(seed)
    folder = write_run(tmp_path / "a", [row("cnp", [1.0, 2.0], paper=1.0), row("np", [None, 2.0])])
    original = json.loads((folder / "results.json").read_text())
    refused = []
    for _ in range(80):
        (folder / "results.json").write_text(json.dumps(damaged(original, chance)))
        try:
            write_report(tmp_path)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert all("results.json" in text and "\n" not in text for text in refused)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)
    monkeypatch.setattr(type(path), "read_bytes", None)
    with pytest.raises(ValueError, match=r"results\.json has \d+ bytes, more than any"):
        read_record(path, RESULTS)


def test_the_message_says_where():
    form = {"rows": [{"seeds": [int]}]}
    assert wrong({"rows": [{"seeds": [1]}, {"seeds": [1, "a"]}]}, form) == (
        "has rows[1].seeds[1] = 'a', not a whole number"
    )
    assert wrong({"rows": [{}]}, form) == "lacks rows[0].seeds"
    assert wrong({"rows": 3}, form) == "has rows = 3, not a list"


# --- compression ---


def test_a_gzip_bomb_is_refused_before_memory_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("dsvnp.paper.records.read_json", partial(read_json, largest=10_000))
    (tmp_path / UNITS_FILE).write_bytes(gzipped(b" " * 9_998 + b"{}"))
    with pytest.raises(ValueError, match=r"units\.json\.gz lacks experiment"):
        read_units(tmp_path)  # of just that size: its form is looked at
    (tmp_path / UNITS_FILE).write_bytes(gzipped(bytes(5_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"units\.json\.gz unpacks to more bytes than any .*\(10000\)"):
            read_units(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_a_damaged_or_truncated_gzip_file_is_named_in_one_line(tmp_path):
    folder = write_run(tmp_path / "a", [row("cnp", [1.0])])
    file = folder / UNITS_FILE
    data = file.read_bytes()
    flipped = data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]  # the checksum
    no_block = data[:10] + b"\xff" + data[11:]
    for bad in (data[:5], data[:-1], data[:-9], flipped, no_block, b"{}", data + b"x"):
        file.write_bytes(bad)
        with pytest.raises(ValueError, match=r"units\.json\.gz is no complete gzip .+\); run") as caught:
            write_report(tmp_path)
        assert "\n" not in str(caught.value)
        with pytest.raises(ValueError, match=r"units\.json\.gz is no complete gzip file"):
            gather(tmp_path / "out", [folder])


def test_equal_units_give_equal_bytes_whenever_they_are_written(tmp_path, monkeypatch):
    record = {"experiment": "x", "units": [1.5] * 99}
    first = write_units(tmp_path, record).read_bytes()
    monkeypatch.setattr("time.time", lambda: 2e9)
    (tmp_path / "elsewhere").mkdir()
    assert write_units(tmp_path / "elsewhere", record).read_bytes() == first
    assert first[:10] == b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"  # no name, no time, level 9, no system
    assert gunzipped(first, LARGEST).decode() == json.dumps(record) + "\n"


# --- names ---


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "a\\b", "", ".x", "a..b", "a\nb", "\x1b[0m", "price_$", "a" * 200]
)
def test_names_that_lead_elsewhere_are_refused(name):
    with pytest.raises(ValueError, match=r"label .* cannot be used"):
        check_name(name, "label")


@pytest.mark.parametrize(
    "name", ["dsvnp-beta-local-5", "5-nn", "sarcos (7684 of 48933 rows)", "a_b", "dsvnp-x=1.5"]
)
def test_names_in_use_are_taken(name):
    assert check_name(name, "label") == name


@pytest.mark.parametrize("label", ["../../planted", "np@../planted", "np-../../planted", "/planted"])
def test_gather_writes_nothing_outside_its_folder(tmp_path, label):
    folder = tmp_path / "run"
    run(Counting(), place(folder))
    record = read_units(folder)
    record["units"][0]["model"] = label
    write_units(folder, record)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="cannot be used"):
        run(Counting(), place(folder))
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("odd", [{"drawn": 3}, {"drawn": [1]}, {"drawn": [[1]]}, {"new": 1}])
def test_a_measurement_of_another_form_is_one_line(tmp_path, odd):
    run(Counting(), place(tmp_path))
    record = read_units(tmp_path)
    record["units"][0]["measurements"][0] |= odd
    write_units(tmp_path, record)
    with pytest.raises(ValueError, match=r"units\.json\.gz holds a unit of another form"):
        run(Counting(), place(tmp_path))


def test_units_without_seeds_and_settings_without_their_number_are_one_line(tmp_path):
    run(Counting(), place(tmp_path))
    good = read_units(tmp_path)
    write_units(tmp_path, good | {"units": [good["units"][0] | {"seeds": []}]})
    with pytest.raises(ValueError, match=r"units\.json\.gz holds .* without seeds"):
        run(Counting(), place(tmp_path))
    write_units(tmp_path, good | {"config": {}})
    with pytest.raises(ValueError, match=r"units\.json\.gz lacks config.num_seeds"):
        run(Counting(), place(tmp_path))


def test_a_row_that_lacks_a_seeds_number_is_not_in_bold(tmp_path):
    best, other = row("cnp", [1.0, 1.1]), row("np", [2.0, 2.1])
    assert clear_best([best, other], "lower") is best
    assert clear_best([best | {"seeds": [1.0, None]}, other], "lower") is None
    assert clear_best([best, other | {"seeds": [None, 2.1]}], "lower") is None


def test_a_stored_label_is_checked_and_others_survive():
    unit = UnitResult(Label("dsvnp", "strong", "wq"), (0,), ())
    assert UnitResult.from_dict(unit.to_dict()) == unit
    with pytest.raises(ValueError, match="cannot be used"):
        UnitResult.from_dict(replace(unit, label=Label("..", "/x")).to_dict())


# --- links ---


def test_links_next_to_results_are_not_read(tmp_path):
    secret = tmp_path / "secret.svg"
    secret.write_text('<svg width="1pt">very secret</svg>')
    folder = write_run(tmp_path / "runs" / "a", [row("cnp", [1.0])], figures=("real.svg",))
    (folder / "planted.svg").symlink_to(secret)
    (tmp_path / "runs" / "b").mkdir()
    other = write_run(tmp_path / "c", [row("np", [1.0])])
    (tmp_path / "runs" / "b" / "results.json").symlink_to(other / "results.json")
    write_report(tmp_path / "runs")
    text = (tmp_path / "runs" / "report.md").read_text()
    assert "real.svg" in text
    assert "planted" not in text
    assert "| CNP |" in text
    assert "| NP |" not in text


def test_texts_from_files_are_neither_html_nor_cells_in_markdown(tmp_path):
    made = row("cnp", [1.0], split="<img src=x onerror=alert(1)>|x")
    folder = write_run(tmp_path / "a", [made, row("np", [2.0])], config={"note": "<script>|"})
    write_report(tmp_path)
    text = (folder.parent / "report.md").read_text()
    assert "<script" not in text
    assert "<img" not in text


def test_the_form_is_what_a_run_writes(tmp_path):
    run(Counting(), place(tmp_path))
    for name, form in (("results.json", RESULTS), (UNITS_FILE, UNITS)):
        assert read_record(tmp_path / name, form)["experiment"] == "counting"
