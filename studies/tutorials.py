"""Render the tutorials: scripts in the percent format become pages with their output and figures.

    python -m studies.tutorials [NAME …]      # docs/tutorials/NAME.py → NAME.md and figures/NAME-N.png; all by default
    python -m studies.tutorials demo          # what `dsvnp demo` draws → docs/images/demo.png

A cell begins at a line `# %%` (code) or `# %% [markdown]` (text behind `# `). Each script runs in a process of its own,
in an empty folder. What a cell prints follows its code on the page, then the figures of pyplot that it leaves open. The
first figure stands above the code that draws it, right behind the question that a page begins with.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
TEXT = "# %% [markdown]"
CODE = "# %%"
COLOURS = 64  # of a figure: enough for plots, and a third of the bytes
DPI = 100


class PageCell(NamedTuple):
    """A cell of a script: Markdown, or code."""

    is_code: bool
    source: str


def cells_of(script: str) -> list[PageCell]:
    """Cut a script into its cells."""
    cells: list[PageCell] = []
    lines: list[str] = []
    is_code = True
    for line in [*script.splitlines(), CODE]:
        if line.rstrip() not in (TEXT, CODE):
            lines.append(line)
            continue
        source = "\n".join(lines if is_code else [each.removeprefix("#").removeprefix(" ") for each in lines])
        if source.strip():
            cells.append(PageCell(is_code, source.strip("\n")))
        lines, is_code = [], line.rstrip() == CODE
    return cells


def page_of(name: str, cells: list[PageCell], outputs: dict[int, str]) -> str:
    """The page: text, code, and what followed the code when it ran."""
    first = re.search(r"!\[.*", "\n\n".join(outputs.values()))
    parts = []
    for number, cell in enumerate(cells):
        parts.append(f"```python\n{cell.source}\n```" if cell.is_code else cell.source)
        if first and number == 0:
            parts.append(first.group())
        if first and (rest := outputs.get(number, "").replace(first.group(), "").strip()):
            parts.append(rest)
    parts.append(f"This page is the output of a script: [{name}.py]({name}.py).")
    return "\n\n".join(parts) + "\n"


def run_cells(name: str, cells: list[PageCell], folder: Path) -> dict[int, str]:
    """Run the code of all cells in one namespace; return what each printed and drew, as Markdown."""
    import matplotlib.pyplot as plt

    plt.close("all")  # figures that were open before are nobody's here
    space: dict[str, Any] = {"__name__": "__main__"}
    outputs, count = {}, 0
    for number, cell in enumerate(cells):
        if not cell.is_code:
            continue
        printed, parts = io.StringIO(), []
        with redirect_stdout(printed):
            exec(compile(cell.source, f"{name}.py, cell {number}", "exec"), space)
        if printed.getvalue().strip():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
        for figure in plt.get_fignums():
            count += 1
            title = plt.figure(figure).get_label() or f"figure {count}"
            save_figure(plt.figure(figure), folder / "figures" / f"{name}-{count}.png")
            parts.append(f"![{title}](figures/{name}-{count}.png)")
        plt.close("all")
        outputs[number] = "\n\n".join(parts)
    return outputs


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure in few colours: pages must stay light."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI, bbox_inches="tight", metadata={"Software": None})
    small = Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def render_demo() -> None:
    """Draw the demo's figure for the front page."""
    from PIL import Image
    from rich.console import Console

    from dsvnp.demo import run_demo

    with tempfile.TemporaryDirectory() as place:
        drawn = Image.open(run_demo(Path(place), Console())).convert("RGB")
    small = drawn.quantize(4 * COLOURS, dither=Image.Dither.NONE)
    small.save(FOLDER.parent / "images" / "demo.png", optimize=True)


def render(name: str) -> None:
    """Run one script here and write its page; figures of an earlier run are removed."""
    cells = cells_of((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    for old in FOLDER.glob(f"figures/{name}-*.png"):
        old.unlink()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        outputs = run_cells(name, cells, FOLDER)
        os.chdir(FOLDER)
    (FOLDER / f"{name}.md").write_text(page_of(name, cells, outputs), encoding="utf-8")


def names() -> list[str]:
    """All tutorials."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def main(wanted: list[str]) -> None:
    """Render tutorials, each in a process of its own; with one name, in this one."""
    if wanted == ["demo"]:
        return render_demo()
    if len(wanted) == 1:
        return render(wanted[0])
    for name in wanted or names():
        environment = {**os.environ, "MPLBACKEND": "Agg"}
        command = [sys.executable, "-m", "studies.tutorials", name]
        subprocess.run(command, check=True, env=environment, cwd=FOLDER.parents[1])
        print(f"docs/tutorials/{name}.md")
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
