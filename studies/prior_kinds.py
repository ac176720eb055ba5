"""Pages of the gallery of priors by kind: noise and outputs, then inputs of tables. `prior_gallery` writes them."""

import torch
from matplotlib.figure import Figure
from torch import Tensor

from dsvnp.sources.priors import inputs, noise, spectra, targets
from dsvnp.sources.priors.randomness import Random, unit
from studies import prior_pages as pages

POINTS, ROWS, COLUMNS = 250, 30, 12
ERRORS = ("normal", "heavy tails", "skewed")  # `noise.KINDS`
OUTPUTS = ("as drawn", "skewed", "heavy tails", "rounded", "bounded", "censored", "counts")  # `targets.WARPS`
COLUMN_KINDS = (  # `inputs.WEIGHTS`
    *("normal", "uniform", "bimodal", "skewed", "heavy tails", "rounded", "many zeros"),
    *("ordinal", "binary", "categorical"),
)
TOGETHER = ("chained", "common causes", "clusters")  # the last of `inputs.STRUCTURES`


def noise_page(random: Random) -> Figure:
    """One row per kind of noise around a smooth function, then one per kind of output of a table."""
    names = [*ERRORS, "size depends on x", "outliers", *(f"output {name}" for name in OUTPUTS)]
    figure, axes = pages.page(
        len(names), "Noise around a function (line), and kinds of outputs y of the same function"
    )
    u = torch.linspace(-1, 1, POINTS).expand(pages.DRAWS, POINTS)
    x = torch.stack([u, 0 * u, 0 * u], dim=-1)
    f = unit(pages.kernel_draws(random, x, spectra.RBF, 1, 0))
    draws = [*noisy(random, f, u), *warped(random, f)]
    for place, (row, name, values) in enumerate(zip(axes, names, draws, strict=True)):
        pages.name_row(row, name)
        for panel, line, dots in zip(row, f, values, strict=True):
            panel.plot(u[0], dots, ".", ms=2, color="tab:orange")
            if place < len(names) - len(OUTPUTS):
                panel.plot(u[0], line, lw=1, color="black")
    return figure


def noisy(random: Random, f: Tensor, u: Tensor) -> list[Tensor]:
    """A function [n, T] with noise of each kind."""
    steady = pages.Picked(random, noise.VARYING, False)
    draws = [
        f + 0.3 * noise.draw_error(pages.Picked(steady, noise.KINDS, kind), 0 * f)
        for kind in range(len(ERRORS))
    ]
    varying = noise.draw_error(pages.Picked(random, noise.VARYING, True), unit(u))
    return [*draws, f + 0.3 * varying, noise.add_outliers(random, f + 0.1 * random.normal(*f.shape), share=1)]


def warped(random: Random, f: Tensor) -> list[Tensor]:
    """Outputs [n, T] of a table by kind."""
    return [
        targets.draw_numbers(pages.Picked(random, targets.WARPS, kind), f, 0 * f)
        for kind in range(len(OUTPUTS))
    ]


def inputs_page(random: Random) -> Figure:
    """Histograms of a column by kind; effects of codes; correlations of columns; missing values."""
    names = [*COLUMN_KINDS, "effect of a code", *(f"columns: {name}" for name in TOGETHER), "missing values"]
    figure, axes = pages.page(
        len(names),
        f"Inputs: histograms; correlations of {COLUMNS} columns (red: 1, blue: −1); missing values (black)",
    )
    for row, name in zip(axes, names, strict=True):
        pages.name_row(row, name)
    hidden = inputs.draw_hidden(random, pages.DRAWS, 2 * POINTS, 1)
    for kind in range(len(COLUMN_KINDS)):
        x, z = columns(random, hidden, inputs.WEIGHTS, kind)
        for panel, values in zip(axes[kind], x[..., 0], strict=True):
            panel.hist(values.numpy(), bins=60)
    for panel, values, effects in zip(axes[len(COLUMN_KINDS)], x[..., 0], z[..., 0], strict=True):
        panel.plot(values, effects, ".", ms=4)
    for structure, row in enumerate(axes[-len(TOGETHER) - 1 : -1], 1):
        picked = pages.Picked(random, inputs.STRUCTURES, structure)
        tables = inputs.draw_hidden(picked, pages.DRAWS, 2 * POINTS, COLUMNS)
        for panel, table in zip(row, tables, strict=True):
            panel.imshow(table.T.corrcoef().numpy(), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    tables = inputs.draw_hidden(random, pages.DRAWS, ROWS, COLUMNS)
    gaps = columns(random, tables, inputs.GAPS, True)[0].isnan().numpy()
    for panel, table in zip(axes[-1], gaps, strict=True):
        panel.imshow(table, cmap="binary", vmin=-0.2, vmax=1, aspect="auto", interpolation="nearest")
    return figure


def columns(
    random: Random, hidden: Tensor, of: tuple[float, ...] | float, pick: int
) -> tuple[Tensor, Tensor]:
    """What tables show, and what their outputs depend on, [n, T, D] each, with one choice made beforehand."""
    whole = random if of == inputs.GAPS else pages.Picked(random, inputs.GAPS, False)
    used = torch.ones(len(hidden), hidden.shape[-1], dtype=torch.bool)
    return inputs.observe(pages.Picked(whole, of, pick), hidden, used)
