"""Small SVG files: the picture stays the same to a hundredth of a point."""

import io
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from dsvnp.plotting.style import save
from dsvnp.plotting.svg import compact, in_steps


def places_of(path: bytes) -> np.ndarray:
    """All places of a path, absolute or relative, by a plain reading of its commands; NaN for a closed one."""
    found, here, start = [], np.zeros(2), np.zeros(2)
    for command, text in re.findall(rb"([MLQCzmlqc])([^A-Za-z]*)", path):
        numbers = np.array([float(number) for number in re.findall(rb"-?(?:\d+\.?\d*|\.\d+)", text)])
        places = numbers.reshape(-1, 2) + (here if command.islower() else 0)
        here = places[-1] if len(places) else start
        start = here if command in b"Mm" else start
        found += [*places] or [np.full(2, np.nan)]
    return np.array(found)


@pytest.fixture(scope="module")
def figure() -> Figure:
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    x = np.linspace(-2, 2, 500)
    axes.plot(x, np.sin(9 * x), "-")
    axes.plot(x[::20], x[::20], "o", label="marks")
    axes.fill_between(x, x - 1, x + 1, alpha=0.2)
    axes.legend()
    return figure


@pytest.fixture(scope="module")
def written(figure) -> bytes:
    """The figure as matplotlib writes it."""
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        (
            b"M 48.350703 165.997634 \nL 216.129872 165.997634 \nL 216 20.7 \nz\n",
            b"m48.35 166l167.78 0l-.13-145.3z",
        ),
        (b"M 1 1 \nL 2 3 \nz\nM 5 5 \n", b"m1 1l1 2zm4 4"),  # a closed path is back where it began
        (b"M 0 -0.001 \nQ 1 2 3 4 \nC 1 1 2 2 10 100 \n", b"m0 0q1 2 3 4c-2-3-1-2 7 96"),
    ],
)
def test_a_path_in_steps(path, steps):
    assert in_steps(path) == steps


def test_a_small_figure_has_all_places_to_a_hundredth_of_a_point(written):
    small = compact(written)
    paths = [re.findall(rb' d="([^"]*)"', svg) for svg in (written, small)]
    assert len(paths[0]) == len(paths[1]) > 20
    for absolute, steps in zip(*paths, strict=True):
        np.testing.assert_allclose(places_of(steps), places_of(absolute), atol=0.0051)
    marks = [re.findall(rb' [xy]="([^"]*)"', svg) for svg in (written, small)]
    np.testing.assert_allclose(*([float(place) for place in found] for found in marks), atol=0.0051)
    assert len(small) < 0.75 * len(written)


def test_all_else_stays(written):
    rest, small = (re.sub(rb' (d|x|y)="[^"]*"', b"", svg) for svg in (written, compact(written)))
    assert b"scale(0.015625)" in small  # text is scaled
    assert [line.strip() for line in rest.splitlines()] == small.splitlines()


def test_figures_are_saved_small_and_stay_so(figure, tmp_path):
    saved = save(figure, tmp_path / "figure.svg").read_bytes()
    assert compact(saved) == saved
    assert not re.search(rb"(?m)^ ", saved)
