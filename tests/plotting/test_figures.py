"""What figures are made of; how they look is for a person to judge."""

from io import BytesIO

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from dsvnp.plotting.figures import (
    FunctionPanel,
    Line,
    Plot,
    Reference,
    dots_figure,
    draw_panel,
    draw_plot,
    functions_figure,
    lines_figure,
)
from dsvnp.plotting.style import COLOURS, INK, Look, look_of, save
from dsvnp.predictive import GaussianPredictive

X = torch.linspace(0, 1, 50)
CNP, NP = look_of("cnp"), look_of("np")


def panel(num_global: int) -> FunctionPanel:
    loc = torch.arange(float(num_global)).reshape(-1, 1, 1, 1, 1) + X.reshape(1, 1, 1, -1, 1)
    return FunctionPanel.of(X, X.sin(), X[:3], X[:3].sin(), GaussianPredictive(loc, torch.tensor(0.5)))


def test_a_latent_model_shows_its_functions_without_noise():
    assert torch.equal(panel(6).draws, torch.stack([k + X for k in range(4)]))


def test_a_model_without_a_latent_shows_samples_of_its_outputs():
    draws = panel(1).draws
    assert draws.shape == (2, 50)
    assert float((draws - X).std()) == pytest.approx(0.5, rel=0.25)


def test_a_panel_survives_json():
    one = panel(3)
    for before, after in zip(one, FunctionPanel.from_lists(one.to_lists()), strict=True):
        torch.testing.assert_close(after, before)


def test_a_panel_shows_the_band_of_three_sigma_and_every_line_once_in_the_legend():
    axes, one = Figure().subplots(), panel(3)
    draw_panel(axes, one, COLOURS["np"])
    edges = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert edges.max() == pytest.approx(float((one.mean + 3 * one.stddev).max()), abs=1e-5)
    assert edges.min() == pytest.approx(float((one.mean - 3 * one.stddev).min()), abs=1e-5)
    assert len(axes.lines) == 3 + 3  # draws; truth, mean, context
    assert axes.get_legend_handles_labels()[1] == ["±3σ", "draws", "truth", "mean", "context"]


def test_lines_show_the_mean_over_seeds_and_dash_a_variant():
    axes = Figure().subplots()
    lines = {NP: Line([0, 1], [[0, 2], [2, 4]]), look_of("np", "wide"): Line([0, 1], [[5, 5]])}
    draw_plot(axes, Plot("title", "x", "y", lines))
    assert axes.lines[0].get_ydata().tolist() == [1, 3]
    corners = axes.collections[0].get_paths()[0].vertices
    assert {y for x, y in corners.tolist() if x == 0} == {0, 2}
    assert {y for x, y in corners.tolist() if x == 1} == {2, 4}
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--"]
    assert {line.get_color() for line in axes.lines} == {COLOURS["np"]}


def test_the_legend_names_a_model_that_only_the_first_plot_shows(tmp_path, monkeypatch):
    named = []
    monkeypatch.setattr(Figure, "legend", lambda self, handles, labels, **_: named.extend(labels))
    one, two = {CNP: Line([0, 1], [[0, 1]]), NP: Line([0, 1], [[0, 1]])}, {NP: Line([0, 1], [[0, 1]])}
    lines_figure([Plot("first", "x", "y", one), Plot("second", "x", "y", two)], tmp_path / "f.svg")
    assert named == ["CNP", "NP"]


def test_a_figure_is_written_where_asked_and_is_the_same_file_each_time(tmp_path):
    first, second = (
        functions_figure([("a row", {CNP: panel(1), NP: panel(4)})], tmp_path / name / "f.svg").read_text()
        for name in ("new", "newer")
    )
    assert first.count("<svg") == 1
    assert first == second


def test_a_webp_keeps_every_pixel_and_is_the_same_file_each_time(tmp_path):
    figure = Figure(figsize=(1, 1))
    figure.figimage(np.random.default_rng(0).integers(0, 256, (150, 150, 3), dtype=np.uint8))
    paths = [save(figure, tmp_path / name) for name in ("a.webp", "b.webp")]
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=150)
    seen = [np.asarray(Image.open(each).convert("RGB")) for each in (paths[0], drawn)]
    assert np.array_equal(*seen)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_look_is_a_name_a_colour_and_a_style():
    assert look_of("mc-dropout") == Look("MC-Dropout", COLOURS["mc-dropout"], dashed=False)
    assert look_of("dsvnp", "wide") == Look("DSVNP wide", COLOURS["dsvnp"], dashed=True)
    assert look_of("oracle-average") == Look("oracle-average", INK, dashed=False)


def test_a_reference_has_its_own_style_and_name_and_bands_can_be_left_out():
    axes = Figure().subplots()
    plot = Plot(
        "a", "x", "y", {NP: Line([1, 10], [[1, 2], [2, 4]])}, Reference([0.5, 0.5], "nothing learned")
    )
    draw_plot(axes, plot, bands=False)
    assert not axes.collections
    dotted = axes.lines[1]
    assert (list(dotted.get_xdata()), list(dotted.get_ydata())) == ([1, 10], [0.5, 0.5])
    assert (dotted.get_label(), dotted.get_linestyle(), dotted.get_color()) == ("nothing learned", ":", INK)
    axes = Figure().subplots()
    draw_plot(axes, plot._replace(reference=Reference(0.5, "nothing learned")))
    level = axes.lines[1]  # from one side of the plot to the other, however far the lines go
    assert (list(level.get_xdata()), list(level.get_ydata())) == ([0, 1], [0.5, 0.5])
    assert (level.get_label(), level.get_linestyle(), level.get_color()) == ("nothing learned", ":", INK)


def test_dots_are_the_seeds_and_a_bar_their_mean(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: figures.append(figure))
    dots_figure(
        [("one", "NLL", {NP: [1.0, 2.0, 6.0], look_of("dsvnp", "exp"): [0.5]})], tmp_path / "dots.svg"
    )
    (axes,) = figures[0].axes
    assert [list(line.get_xdata()) for line in axes.lines] == [[1.0, 2.0, 6.0], [3.0], [0.5], [0.5]]
    assert [set(line.get_ydata()) for line in axes.lines] == [{0}, {0}, {1}, {1}]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["NP", "DSVNP exp"]
    assert [line.get_color() for line in axes.lines] == [COLOURS["np"]] * 2 + [COLOURS["dsvnp"]] * 2


def test_each_plot_may_have_a_logarithmic_axis(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: figures.append(figure))
    lines = {NP: Line([1, 2], [[0.1, 10.0]])}
    lines_figure([Plot("a", "x", "y", lines), Plot("b", "x", "y", lines, log="y")], tmp_path / "lines.svg")
    assert [axes.get_yscale() for axes in figures[0].axes] == ["linear", "log"]


@pytest.mark.parametrize(
    ("last", "ticks"), [(50, ["1", "2", "5", "10", "20", "50"]), (2000, ["1", "10", "100", "1000"])]
)
def test_a_logarithmic_x_has_plain_numbers_at_its_ticks(tmp_path, monkeypatch, last, ticks):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: figures.append(figure))
    lines = {NP: Line([1, 3, last], [[0.1, 1.0, 10.0]])}
    lines_figure([Plot("a", "x", "y", lines, log="x")], tmp_path / "lines.svg")
    (axes,) = figures[0].axes
    low, high = axes.get_xlim()
    shown = [axes.xaxis.get_major_formatter()(tick) for tick in axes.get_xticks() if low <= tick <= high]
    assert shown == ticks
