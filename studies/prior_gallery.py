"""Draw a gallery of what the priors for pretraining draw, and measure how much of it can be learned.

    python -m studies.prior_gallery FOLDER [--format svg] [--dpi 110] [--seed 0] [--tables 300]
    python -m studies.prior_gallery docs/images --format webp --dpi 80      # what docs/gallery.md shows

writes `prior_curves`, `prior_noise`, `prior_inputs`, `prior_tables` and `prior_classes` to a folder; `prior_pages` has
what they share. With `--tables N` it also draws N tables and prints how well nearest neighbours, a linear model and
extremely randomised trees predict held-out rows: most tables should be learnable, some nearly noise-free, some nearly
noise, and no single method should win on all.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from torch import Tensor

from dsvnp.sources import priors
from dsvnp.sources.priors.causal import draw_causal
from dsvnp.sources.priors.curves import add_changepoint, draw_curve_functions
from dsvnp.sources.priors.randomness import Random, unit
from dsvnp.sources.priors.targets import draw_classes
from studies import prior_pages as pages
from studies.prior_kinds import inputs_page, noise_page

CPU = torch.device("cpu")
POINTS, SIDE = 400, 48
KERNELS = {
    "RBF": (priors.spectra.RBF, 1, 0),
    "Matérn-1/2": (priors.spectra.MATERN, 1, 0),
    "Matérn-3/2": (priors.spectra.MATERN, 3, 0),
    "Matérn-5/2": (priors.spectra.MATERN, 5, 0),
    "rational quadratic": (priors.spectra.RATIONAL, 1, 0),
    "periodic": (priors.spectra.NONE, 1, priors.spectra.PERIODIC),
    "locally periodic": (priors.spectra.RBF, 1, priors.spectra.PERIODIC),
    "cosine × RBF": (priors.spectra.RBF, 1, priors.spectra.COSINE),
}


def curves_page(random: Random) -> Figure:
    """One row per kernel and per shape, changepoints, functions of two and three inputs, then whole tasks."""
    tasks, planes = 3, 3
    names = [*KERNELS, *(shape.__name__ for shape in priors.shapes.SHAPES), "changepoint"]
    figure, axes = pages.page(
        len(names) + planes + tasks, "Curves: functions without noise, and tasks (black: context)"
    )
    u = torch.linspace(-1, 1, POINTS).expand(pages.DRAWS, POINTS)
    x = torch.stack([u, 0 * u, 0 * u], dim=-1)
    draws = [pages.kernel_draws(random, x, *kind) for kind in KERNELS.values()]
    draws += [shape(random, u) for shape in priors.shapes.SHAPES]
    draws.append(add_changepoint(random, draws[0], x, torch.arange(3).expand(pages.DRAWS, 3) < 1))
    for row, name, curves in zip(axes, names, draws, strict=False):
        pages.name_row(row, name)
        for panel, curve in zip(row, curves, strict=True):
            panel.plot(u[0], curve, lw=0.8)
    for place, dims in enumerate((2, 2, 3)):
        pages.name_row(axes[len(names) + place], f"{dims} inputs" + (", a plane" if dims == 3 else ""))
        for panel, values in zip(axes[len(names) + place], surfaces(random, dims), strict=True):
            panel.imshow(values.numpy(), aspect="auto", interpolation="bilinear")
    settings = priors.CurveSettings(
        pages.DRAWS * tasks, num_points=128, dimensions=(1, 0, 0), refresh_every=1
    )
    source = priors.CurvePrior(settings)
    uniforms = {"context": random.uniform(pages.DRAWS * tasks, low=0.4)}
    task = source.batch(source.pool(random.generator, CPU), uniforms, torch.tensor(0))
    for index, panel in enumerate(axes[-tasks:].flat):
        seen, px, py = task.mask_context[index], task.x_target[index, :, 0], task.y_context[index, :, 0]
        panel.plot(px[~seen], py[~seen], ".", ms=2, color="tab:orange")
        panel.plot(px[seen], py[seen], ".", ms=3, color="black")
    pages.name_row(axes[-tasks], "tasks, 1 input")
    return figure


def surfaces(random: Random, dims: int) -> Tensor:
    """Functions of the prior on a plane of the first two inputs, [n, S, S]; a third input is 0."""
    side = torch.linspace(-1, 1, SIDE)
    plane = torch.cartesian_prod(side, side, torch.zeros(1)).expand(pages.DRAWS, -1, -1)
    used = torch.arange(3).expand(pages.DRAWS, 3) < dims
    return draw_curve_functions(random, plane, used).unflatten(1, (SIDE, SIDE))


def family_draws() -> dict[str, Callable[[Random, Tensor, int], Tensor]]:
    """Functions by name; each reads columns z [n, T, D]."""

    def of(family: priors.functions.Family) -> Callable[[Random, Tensor, int], Tensor]:
        def draw(random: Random, z: Tensor, outputs: int) -> Tensor:
            weight = priors.functions.draw_relevance(
                random, torch.ones(z.shape[0], z.shape[2], dtype=torch.bool)
            )
            return unit(family(random, z, weight, outputs))

        return draw

    return {family.__name__.replace("_", " "): of(family) for family in priors.functions.FAMILIES}


def tables_page(random: Random) -> Figure:
    """Functions of one column and of two; outputs against their first column in whole tables; causal pairs."""
    families = family_draws()
    tasks = 4
    figure, axes = pages.page(
        2 * len(families) + 1 + tasks, "Tables: functions without noise, and whole tables"
    )
    line = torch.linspace(-2, 2, POINTS).expand(pages.DRAWS, POINTS).unsqueeze(-1)
    plane = 1.7 * (2 * random.uniform(pages.DRAWS, 1500, 2) - 1)
    for place, (name, draw) in enumerate(families.items()):
        pages.name_row(axes[2 * place], f"{name}, 1 column")
        pages.name_row(axes[2 * place + 1], "2 columns")
        for panel, curve in zip(axes[2 * place], draw(random, line, 1), strict=True):
            panel.plot(line[0], curve, lw=0.8)
        for panel, at, value in zip(axes[2 * place + 1], plane, draw(random, plane, 1), strict=True):
            panel.scatter(*at.T, c=value[:, 0], s=1)
    inputs, outputs = draw_causal(random, pages.DRAWS, POINTS, 2, 1)
    pages.name_row(axes[2 * len(families)], "causal: input, output")
    for panel, at, value in zip(axes[2 * len(families)], inputs, outputs, strict=True):
        panel.plot(at[:, 0], value[:, 0], ".", ms=1)
    settings = priors.TableSettings(pages.DRAWS * tasks, 256, max_columns=3, classes=0.0, refresh_every=1)
    pool = priors.TablePrior(settings).pool(random.generator, CPU)
    pages.name_row(axes[-tasks], "tables: first column, y")
    for panel, x, y in zip(axes[-tasks:].flat, pool["x"], pool["y"], strict=True):
        panel.plot(x[:, 0], y, ".", ms=2)
    return figure


def classes_page(random: Random) -> Figure:
    """Classes of two columns: one row per family, then whole tables."""
    families = family_draws()
    tasks = 5
    figure, axes = pages.page(
        len(families) + tasks, "Classes of two columns, and whole tables with two columns"
    )
    plane = 1.7 * (2 * random.uniform(pages.DRAWS, 1000, 2) - 1)
    for row, (name, draw) in zip(axes, families.items(), strict=False):
        pages.name_row(row, name)
        for panel, at, label in zip(row, plane, draw_classes(random, draw(random, plane, 10)), strict=True):
            panel.scatter(*at.T, c=label, s=1.5, cmap="tab10", vmin=0, vmax=9)
    settings = priors.TableSettings(
        pages.DRAWS * tasks, 256, min_columns=2, max_columns=2, classes=1.0, refresh_every=1
    )
    pool = priors.TablePrior(settings).pool(random.generator, CPU)
    pages.name_row(axes[-tasks], "tables")
    for panel, x, y in zip(axes[-tasks:].flat, pool["x"], pool["y"], strict=True):
        panel.scatter(*x.T, c=y, s=2, cmap="tab10", vmin=0, vmax=9)
    return figure


def print_statistics(random: Random, count: int) -> None:
    """Print how much better than a constant three methods predict held-out rows, 192 rows known."""
    source = priors.TablePrior(priors.TableSettings(count, 256, max_context=192, refresh_every=1))
    pool = source.pool(random.generator, CPU)
    task = source.batch(pool, {"context": torch.full((count,), 0.95)}, torch.tensor(0))
    gains: dict[bool, list[list[float]]] = {False: [], True: []}
    for index in range(count):
        columns, is_class = int(pool["used"][index].sum()), bool(pool["is_class"][index])
        x = task.x_target[index].unflatten(-1, (2, -1))[..., :columns].flatten(1).numpy()
        y, seen = task.y_context[index, :, 0].numpy(), task.mask_context[index].numpy()
        asked = task.mask_target[index].numpy() & ~seen
        if len(np.unique(y[seen])) > 1:
            gains[is_class].append(_gains(x[seen], y[seen], x[asked], y[asked], is_class))
    for is_class, name in ((False, "numbers, R²"), (True, "classes, 1 − error / error of the commonest")):
        gain = np.array(gains[is_class])
        wins = np.bincount(gain.argmax(1), minlength=3) / len(gain)
        print(f"{name}: {len(gain)} tables; 3 neighbours, linear, trees")
        print(
            f"  better than a constant: {(gain > 0.02).mean(0).round(2)}, any {(gain.max(1) > 0.02).mean():.2f}"
        )
        print(f"  best of the three: {wins.round(2)}")
        print(
            f"  5, 25, 50, 75, 95 % of the best: {np.quantile(gain.max(1), [0.05, 0.25, 0.5, 0.75, 0.95]).round(2)}"
        )


def _gains(
    x: np.ndarray, y: np.ndarray, x_asked: np.ndarray, y_asked: np.ndarray, is_class: bool
) -> list[float]:
    """What share of the error of a constant prediction each method takes away."""
    if is_class:
        values, counts = np.unique(y, return_counts=True)
        models = (KNeighborsClassifier(3), LogisticRegression(), ExtraTreesClassifier(50, min_samples_leaf=2))
        base = max((y_asked != values[counts.argmax()]).mean(), 0.01)
        errors = [(model.fit(x, y).predict(x_asked) != y_asked).mean() for model in models]
    else:
        models = (
            KNeighborsRegressor(3),
            RidgeCV(np.logspace(-3, 3, 7)),
            ExtraTreesRegressor(50, min_samples_leaf=2),
        )
        base = np.square(y_asked - y.mean()).mean() + 1e-12
        errors = [np.square(model.fit(x, y).predict(x_asked) - y_asked).mean() for model in models]
    return [1 - error / base for error in errors]


def main() -> None:
    """Write the pages, and print statistics if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--format", default="png", choices=("png", "svg", "pdf", "webp"))
    parser.add_argument("--dpi", type=int, default=110)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tables", type=int, default=0, help="tables to measure; 0 for none")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    drawn = {"curves": curves_page, "noise": noise_page, "inputs": inputs_page}
    drawn |= {"tables": tables_page, "classes": classes_page}
    for name, draw in drawn.items():
        random = Random(torch.Generator().manual_seed(options.seed), CPU)
        figure = draw(random)
        light = {"quality": 40, "method": 6} if options.format == "webp" else {}
        path = options.folder / f"prior_{name}.{options.format}"
        figure.savefig(path, dpi=options.dpi, pil_kwargs=light)
        plt.close(figure)
    if options.tables:
        warnings.filterwarnings("ignore", module="sklearn")
        print_statistics(Random(torch.Generator().manual_seed(options.seed), CPU), options.tables)


if __name__ == "__main__":
    main()
