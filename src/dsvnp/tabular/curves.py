"""CurveRegressor: time series and functions of one to three inputs, predicted without training."""

import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dsvnp.devices import one_thread, pick_device, threads_for
from dsvnp.models.base import NeuralProcess
from dsvnp.predictive import GaussianPredictive
from dsvnp.pretrained.curves import outside, predict_views, scaled_task
from dsvnp.pretrained.loading import SHIPPED, load_pretrained
from dsvnp.pretrained.seasons import CurveView
from dsvnp.pretrained.series import fit_curve, mixed, predict_process
from dsvnp.sources.priors.spectra import DIMENSIONS

Floats = NDArray[np.float64]
NAME = "curves"
NANOSECONDS_PER_DAY = 86_400 * 10**9
CALENDAR = (365.2425, 7.0, 1.0)  # seasons of dates, in days
WITHIN_SIGMA = (0.158655, 0.841345)  # probabilities below μ − σ and μ + σ of a Gaussian


class CurveRegressor(RegressorMixin, BaseEstimator):
    """A pretrained neural process for curves: interpolation, gaps, noise, extrapolation, whole functions.

    `fit` keeps the points and trains nothing; a prediction is one pass of the network over them. Inputs are one to
    three columns of numbers or dates (days since 1970), in any units; the network scales them by the points of the fit.
    It mixes the network's prediction with that of a small Gaussian process; held-out points weigh the two
    (`dsvnp.pretrained.series`). Of one input it also looks for a season and a trend (`dsvnp.pretrained.seasons`).

    Args:
        season: period of a season, in units of X (days for dates); "auto" looks for one (of dates, first for a year, a
            week and a day) and keeps it if held-out points are predicted better with it; None for none. For one input.
        process: whether the Gaussian process joins.
        max_context: points that a prediction is made from, at most. A longer curve is predicted piece by piece, each
            from the points nearest to it.
        weights: folder with the network's two files; None takes those of the package.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.

    Attributes:
        X_: inputs of the points, in days where they were dates, [points, inputs].
        y_: their outputs, without missing ones, [points].
        view_: season and trend that were found; `view_.period` is None without a season.
        process_: the Gaussian process, or None.
        share_: its weight in the mixture.
    """

    def __init__(
        self,
        max_context: int = 896,
        weights: Path | str | None = None,
        device: str = "cpu",
        season: float | str | None = "auto",
        process: bool = True,
    ) -> None:
        self.max_context = max_context
        self.weights = weights
        self.device = device
        self.season = season
        self.process = process

    def fit(self, X: Any, y: Any) -> Self:
        """Keep the points of a curve.

        Args:
            X: inputs, [points] or [points, inputs]; numbers or dates.
            y: outputs, [points]; points without one (NaN) are left out.
        """
        if self.max_context < 2:
            raise ValueError(f"max_context must be at least 2, got {self.max_context}")
        period: Any = self.season
        if not (period in ("auto", None) or (isinstance(period, Real) and 0 < float(period) < math.inf)):
            raise ValueError(f"season must be a finite period above 0, 'auto' or None, got {self.season!r}")
        x, dates = inputs_of(X)
        if x.shape[1] > 1 and self.season not in ("auto", None):
            raise ValueError(f"a season needs one input, got {x.shape[1]}; leave season={self.season} out")
        outputs = np.asarray(y, dtype=np.float64)
        if outputs.ndim == 2 and outputs.shape[1] == 1:
            outputs = outputs[:, 0]
        if outputs.shape != (len(x),):
            raise ValueError(
                f"y must hold one output per point, ({len(x)},), got {outputs.shape}; fit one curve per output"
            )
        if np.isinf(outputs).any():
            raise ValueError("y has infinite values; leave those points out, or pass NaN for missing ones")
        known = ~np.isnan(outputs)
        if known.sum() < 2:
            raise ValueError(f"a curve needs at least 2 points with a known output, got {known.sum()}")
        self.X_, self.y_, self.dates_ = x[known], outputs[known], dates
        self.n_features_in_ = x.shape[1]
        usual = CALENDAR if any(dates) else ()
        with one_thread():  # it reads a hundred points or so, however many there are
            found = fit_curve(*self._points(), self.season, self.process, self._ask, usual)
        self.view_, self.process_, self.share_ = found.view, found.process, found.share
        return self

    def predict_dist(self, X: Any) -> GaussianPredictive:
        """The predictive distribution in the user's units: a mixture of Gaussians, [1, components, 1, points, 1].

        It has means, variances, quantiles, log-densities, CRPS and samples; see `dsvnp.predictive`.
        """
        targets = self._targets(X)
        with threads_for(min(len(self.X_), self.max_context) + len(targets)):
            (found,) = self._ask([self.view_], *self._points(), targets)
            if self.process_ is None:
                return found
            other = predict_process(self.process_, *self._points(), targets, self.max_context)
            return mixed(found, *other, self.share_)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean at inputs, [points]; with `return_std` also the spread of observations there.

        The spread is half the width of the central 68 % interval, which is σ of a Gaussian. The root of the variance,
        `predict_dist(X).stddev`, may be several times as large: the network never excludes a rare outlier.
        """
        predictive = self.predict_dist(X)
        mean = predictive.mean[0, :, 0].numpy()
        if not return_std:
            return mean
        low, high = predictive.quantile(list(WITHIN_SIGMA))[:, 0, :, 0].numpy()
        return mean, np.maximum(high - low, 0) / 2  # quantiles are found to some digits

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Floats:
        """Quantiles of observations, [points, quantiles]."""
        values: Floats = self.predict_dist(X).quantile(list(quantiles))[:, 0, :, 0].T.numpy()
        return values

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Lower and upper ends of the central interval that should hold that share of observations."""
        if not 0 < coverage < 1:
            raise ValueError(
                f"coverage must lie strictly between 0 and 1, got {coverage}; 0.9 is the 90 % interval"
            )
        low, high = self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2]).T
        return low, high

    def log_prob(self, X: Any, y: Any) -> Floats:
        """Log-density of outputs at inputs, each by itself, [points]."""
        found = self.predict_dist(X)
        outputs = torch.as_tensor(np.asarray(y, dtype=np.float64).ravel())
        if len(outputs) != found.shape[3]:
            raise ValueError(f"y must hold one output per input of X, {found.shape[3]}, got {len(outputs)}")
        values: Floats = found.log_prob(outputs[None, :, None])[0].numpy()
        return values

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Floats:
        """Observations at each input by itself, [points, samples]; for whole functions see `sample_functions`."""
        drawn = self.predict_dist(X).sample(n_samples, _generator(random_state))
        values: Floats = drawn[:, 0, :, 0].T.numpy()
        return values

    def sample_functions(
        self, X: Any, n_samples: int = 1, noise: bool = False, block: int | None = None, random_state: Any = 0
    ) -> Floats:
        """Whole functions, [points, samples], each coherent over all inputs.

        A curve with more than `max_context` points is sampled from those nearest to the inputs.

        Args:
            X: inputs.
            n_samples: number of functions.
            noise: whether to draw observations instead of the functions beneath them.
            block: None draws all inputs at once, joined by the network's copula. A number draws by autoregression: so
                many inputs at once, independently of each other and given those before them. It reads the points again
                for each block: ten functions at 200 inputs take 23 s in place of 0.03 s (`results/pretrained`).
            random_state: an integer gives the same functions each time.
        """
        targets = self._targets(X)
        x, y = self._points()
        near = (outside(x, targets) / x.std(0).clamp(min=1e-300)).norm(dim=-1).argsort()[: self.max_context]
        generator = _generator(random_state, self.device_)
        chosen = torch.rand(n_samples, generator=generator, device=self.device_).cpu().numpy() < self.share_
        values = np.empty((len(targets), n_samples))
        if not chosen.all():
            number = int((~chosen).sum())
            with threads_for(number * len(near)):  # the network reads the points once per function and block
                values[:, ~chosen] = self._functions(
                    x[near], y[near], targets, number, noise, block, generator
                )
        if self.process_ is not None and chosen.any():
            rng = np.random.default_rng(generator.initial_seed())
            known, outputs, asked = (part.numpy() for part in (x[near], y[near], targets))
            number = int(chosen.sum())
            values[:, chosen] = self.process_.sample(known, outputs, asked, number, noise, rng)
        return values

    def plot(self, ax: Any = None, X: Any = None, coverage: float = 0.9, n_functions: int = 0) -> Any:
        """Draw points, mean and interval of a curve with one input; return the axes.

        Args:
            ax: axes of matplotlib; None makes a figure.
            X: inputs to draw at; None is 300 inputs that reach a tenth of the span beyond the points on either side.
            coverage: of the interval.
            n_functions: functions to draw as well.
        """
        from dsvnp.tabular.curve_plot import plot_curve

        return plot_curve(self, ax, X, coverage, n_functions)

    def to_onnx(self, path: Path | str, required: Collection[str] = ()) -> Path:
        """Write one ONNX file that predicts this curve without this package; fit it with `process=False`.

        Args:
            path: file to write.
            required: inputs that shall have no default, see `dsvnp.export.to_onnx`; the points are defaults.
        """
        from dsvnp.export import to_onnx

        return to_onnx(self, path, required=required)

    def network_and_points(self) -> tuple[NeuralProcess, Tensor, Tensor, CurveView]:
        """The network, inputs [N, D] and outputs [N] of a curve that it reads at once, and how it is shown them."""
        x, y = self._points()
        if self.process_ is not None:
            raise ValueError("a file holds the network alone; fit with process=False and export that")
        if len(x) > self.max_context:
            raise ValueError(
                f"a file predicts from at most max_context={self.max_context} points, got {len(x)}; fit fewer of them"
            )
        return self._model(), x, y, self.view_

    # --- inside ---

    @property
    def device_(self) -> torch.device:
        """Where predictions are computed."""
        return pick_device(self.device)

    def _model(self) -> NeuralProcess:
        return _network(str(SHIPPED if self.weights is None else self.weights), self.device_)

    def _ask(
        self, views: Sequence[CurveView], x: Tensor, y: Tensor, targets: Tensor
    ) -> list[GaussianPredictive]:
        return predict_views(self._model(), x, y, targets, self.max_context, views)

    def _functions(
        self,
        x: Tensor,
        y: Tensor,
        given: Tensor,
        number: int,
        noise: bool,
        block: int | None,
        generator: torch.Generator,
    ) -> Floats:
        """Functions of the network at inputs [T, D] from points x [N, D], y [N], [T, number]."""
        rest = y - self.view_.baseline(x)[:, 0]
        scaled = scaled_task(self.view_.inputs(x), rest, self.view_.inputs(given), self.device_)
        by_blocks: dict[str, Any] = {} if block is None else {"autoregressive": True, "block": block}
        drawn: Tensor = self._model().sample_functions(
            scaled.task, number, noise=noise, generator=generator, **by_blocks
        )
        functions = scaled.mean + scaled.std * drawn[:, 0, :, 0].double().cpu()  # [number, T]
        values: Floats = (functions + self.view_.baseline(given)[:, 0]).T.numpy()
        return values

    def _points(self) -> tuple[Tensor, Tensor]:
        check_is_fitted(self, "X_")
        return torch.from_numpy(self.X_), torch.from_numpy(self.y_)

    def _targets(self, X: Any) -> Tensor:
        check_is_fitted(self)
        x, dates = inputs_of(X)
        if x.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {x.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        if dates != self.dates_:
            kinds = ["dates" if any(flags) else "numbers" for flags in (dates, self.dates_)]
            raise ValueError(f"X holds {kinds[0]} where the fit had {kinds[1]}; pass the same kind")
        return torch.from_numpy(x)


def inputs_of(X: Any) -> tuple[Floats, tuple[bool, ...]]:
    """Inputs as numbers, [points, inputs], and which of them were dates, which become days since 1970."""
    if hasattr(X, "columns"):  # a frame: its columns may be of different kinds
        columns = [np.asarray(X[name]) for name in X.columns]
    else:
        array = np.asarray(X)
        if array.ndim not in (1, 2):
            raise ValueError(f"X must be [points] or [points, inputs], got {array.ndim} axes {array.shape}")
        columns = [array] if array.ndim == 1 else list(array.T)
    if not 1 <= len(columns) <= DIMENSIONS:
        raise ValueError(
            f"a curve has one to {DIMENSIONS} inputs, got {len(columns)}; for tables use NPRegressor"
        )
    read = [_numbers(column) for column in columns]
    x = np.stack([values for values, _ in read], axis=1)
    if not len(x):
        raise ValueError("X has no point; pass at least one")
    if not np.isfinite(x).all():
        raise ValueError("X has missing or infinite values; leave those points out")
    return x, tuple(is_date for _, is_date in read)


def _numbers(column: NDArray[Any]) -> tuple[Floats, bool]:
    """A column as float64, and whether it held dates."""
    if column.dtype == object and len(column) and hasattr(column[0], "year"):
        column = column.astype("datetime64[ns]")
    if column.dtype.kind != "M":
        return column.astype(np.float64), False
    days = column.astype("datetime64[ns]").astype(np.int64) / NANOSECONDS_PER_DAY
    return np.where(np.isnat(column), np.nan, days), True


@lru_cache(maxsize=4)
def _network(folder: str, device: torch.device) -> NeuralProcess:
    """Load the network once for all estimators."""
    return load_pretrained(NAME, folder).to(device)


def _generator(random_state: Any, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of torch from what scikit-learn takes as a random state."""
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    return torch.Generator(device).manual_seed(seed)
