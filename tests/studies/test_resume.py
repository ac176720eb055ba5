"""Cells of a selection are run once and leave a line each."""

from __future__ import annotations

import json

import pytest

from studies.resume import finish


def test_each_cell_is_run_once_and_written_when_its_fleet_is_finished(tmp_path):
    out, ran = tmp_path / "cells.jsonl", []

    def run(cells):
        if any(cell["a"] == 3 for cell in cells):
            raise RuntimeError("stopped")
        ran.append([cell["a"] for cell in cells])
        return [{"score": (10 * cell["a"],)} for cell in cells]

    with pytest.raises(RuntimeError, match="stopped"):
        finish([[{"a": 1, "b": (1, 2)}, {"a": 2}], [{"a": 3}]], out, run)
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert written == [{"a": 1, "b": [1, 2], "score": [10]}, {"a": 2, "score": [20]}]
    more = finish([[{"a": 2}], [{"a": 1, "b": (1, 2)}, {"a": 4}]], out, run)
    assert more == [*written, {"a": 4, "score": [40]}]
    assert ran == [[1, 2], [4]]  # of a fleet, what is missing


def test_a_last_line_without_its_end_is_kept(tmp_path):
    out = tmp_path / "cells.jsonl"
    out.write_text('{"a": 1, "score": 10}', encoding="utf-8")  # as an editor may leave it
    done = finish([[{"a": 1}], [{"a": 2}]], out, lambda cells: [{"score": 30}])
    assert done == [{"a": 1, "score": 10}, {"a": 2, "score": 30}]
    assert [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] == done


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    out = tmp_path / "cells.jsonl"
    out.write_text('{"a": 1, "score": 10}\n{"a": 2, "sco', encoding="utf-8")
    done = finish([[{"a": 1}], [{"a": 2}]], out, lambda cells: [{"score": 30}])
    assert done == [{"a": 1, "score": 10}, {"a": 2, "score": 30}]
    assert [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] == done
    assert [path.name for path in tmp_path.iterdir()] == ["cells.jsonl"]
    out.write_text('{"a": 1, "sc\n{"a": 2, "score": 30}\n', encoding="utf-8")
    with pytest.raises(json.JSONDecodeError):  # that is no accident of ours
        finish([], out, dict)
