"""The tutorials: pages say what their scripts say; `pytest -m tutorials` runs the scripts."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import matplotlib.pyplot as plt
import pytest

from studies.tutorials import FOLDER, PageCell, cells_of, names, page_of, run_cells

NEEDS = {"bayesian-optimisation": "botorch"}  # extras without which a tutorial has nothing to show


def test_a_script_is_cut_into_text_and_code():
    script = "# %% [markdown]\n# # Title\n#\n#     r = 1\n\n# %%\nx = 1\n\n# no cell\n# %%\ny = 2\n"
    cells = [
        PageCell(False, "# Title\n\n    r = 1"),
        PageCell(True, "x = 1\n\n# no cell"),
        PageCell(True, "y = 2"),
    ]
    assert cells_of(script) == cells


def test_output_and_figures_follow_their_cell_and_the_first_figure_leads(tmp_path):
    code = "import matplotlib.pyplot as plt\nprint('hello')\nplt.plot([1, 2])\nplt.figure()"
    cells = [PageCell(False, "Why?"), PageCell(True, code), PageCell(True, "x = 1")]
    _ = plt.figure(), plt.figure()  # of somebody else
    page = page_of("one", cells, run_cells("one", cells, tmp_path))
    order = [
        "Why?",
        "one-1.png",
        "```python",
        "```text\nhello\n```",
        "one-2.png",
        "x = 1",
        "[one.py](one.py)",
    ]
    assert sorted(map(page.index, order)) == list(map(page.index, order))
    assert page.count("one-1.png") == 1
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"one-1.png", "one-2.png"}


@pytest.mark.parametrize("name", names())
def test_a_page_is_of_its_script(name):
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    place = 0
    for cell in cells_of((FOLDER / f"{name}.py").read_text(encoding="utf-8")):
        place = page.find(cell.source, place)
        assert place >= 0, f"run `python -m studies.tutorials {name}`: the page lacks {cell.source[:60]!r}"
    assert re.match(r"# .+\n\n\*\*.+\?\*\*\n", page, flags=re.DOTALL)  # it begins with a question
    assert page.index(f"figures/{name}-1.png") < page.index("```python")


@pytest.mark.tutorials
@pytest.mark.parametrize("name", names())
def test_a_tutorial_runs_as_a_script(name, tmp_path):
    if (extra := NEEDS.get(name)) and find_spec(extra) is None:
        pytest.skip(f"{name} needs the extra `{extra}`")
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    command = [sys.executable, str(FOLDER / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
