"""Pictures of an estimator: `plot` chooses what suits the rows and leaves the drawing to `dsvnp.plotting`."""

from typing import Any

import numpy as np

from dsvnp.naming import lookup
from dsvnp.tabular.columns import values_of

COMPARE = ("calibration", "residuals")
KINDS = ("predictive", "functions", *COMPARE)


class Pictures:
    """Gives an estimator `plot`."""

    def plot(
        self: Any,
        X: Any = None,
        y: Any = None,
        ax: Any = None,
        *,
        kind: str = "predictive",
        context: Any = None,
        n_functions: int = 10,
        **look: Any,
    ) -> Any:
        """Draw predictions of rows, with what is known of them, on axes of matplotlib, and return the axes.

        Args:
            X: inputs; None draws the calibration of rows that the fit held out.
            y: their outputs, where they are known.
            ax: axes; None makes a figure by pyplot.
            kind: "predictive" draws mean and interval, and "functions" sampled functions: along a single input, of
                several inputs with rows sorted by their prediction; "calibration" and "residuals" compare with y.
            context: a pair (X, y) to predict from in place of the rows of the fit.
            n_functions: how many functions.
            look: what the function of `dsvnp.plotting` takes as well, as `coverage=0.5`, `parts=True`, `output=1`.
        """
        from dsvnp.plotting import everyday

        lookup(kind, dict.fromkeys(KINDS), "kind")
        if X is None:
            return everyday.draw_calibration(self.ensemble_.calibration, ax, **look)
        if y is None and kind in COMPARE:
            raise ValueError(f"a plot of {kind} compares with outputs that are known; pass y")
        found = self.predict_dist(X, context)
        if kind in COMPARE:
            draw = everyday.plot_calibration if kind == "calibration" else everyday.plot_residuals
            return draw(found, y, ax, **look)
        x, name = _places(X, found)
        known = None if y is None or self.kind == "classifier" else (x, _column(y, look.get("output", 0)))
        if kind == "functions":
            # [rows, samples], or with an axis of outputs or classes
            drawn = found.sample(n_functions, noise=False)
            drawn = drawn if drawn.ndim == 2 else drawn[:, look.pop("output", 0)]
            ax = everyday.plot_functions(drawn, x, ax, known=known, **look)
        else:
            ax = everyday.plot_predictive(found, x, ax, known=known, **look)
        ax.set_xlabel(name)
        return ax


def _places(X: Any, found: Any) -> tuple[Any, str]:
    """Where rows are drawn, [rows], and what that is: their single input, or their rank by the prediction."""
    values = values_of(X)
    array = np.asarray(values)
    if array.ndim == 1 or array.shape[1] == 1:
        return array.ravel(), str(next(iter(getattr(X, "columns", ["x"]))))
    (mean,) = found.reduce(lambda predictive, _: predictive.mean[0, :, 0])
    return mean.argsort(kind="stable").argsort(), "rows, sorted by their prediction"


def _column(y: Any, output: int) -> Any:
    """One output of possibly several."""
    array = np.asarray(values_of(y))
    return array if array.ndim == 1 else array[:, output]
