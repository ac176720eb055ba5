"""Cells of a selection are run once and leave a line each."""

from __future__ import annotations

import json

import pytest

from dsvnp.experiments.cells import finish


def test_each_cell_is_run_once_and_written_when_it_is_finished(tmp_path):
    out, ran = tmp_path / "cells.jsonl", []

    def run(cell):
        if cell["a"] == 3:
            raise RuntimeError("stopped")
        ran.append(cell)
        return {"score": 10 * cell["a"]}

    cells = [{"a": 1, "b": (1, 2)}, {"a": 2}, {"a": 3}]
    with pytest.raises(RuntimeError, match="stopped"):
        finish(cells, out, run)
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert written == [{"a": 1, "b": [1, 2], "score": 10}, {"a": 2, "score": 20}]
    assert finish([cells[1], {"a": 1, "b": (2, 1)}, cells[0]], out, run) == [
        *written,
        {"a": 1, "b": [2, 1], "score": 10},
    ]
    assert ran == [cells[0], cells[1], {"a": 1, "b": (2, 1)}]
