"""Kernels of the prior over curves as scikit-learn has them, their exact answers, and fits by maximum likelihood.

The prior (`dsvnp.sources.priors.spectra`) multiplies an RBF, Matérn or rational quadratic envelope by nothing, by a
periodic kernel or by a cosine, both along a direction, and adds up to three such products; a trend is a linear kernel.
Its changepoints, its shapes and what it does to functions afterwards have no kernel here.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

Floats = NDArray[np.float64]
# where a search looks, on inputs in [−1, 1]
LENGTHS, FREQUENCIES, WIDTHS = (1e-2, 1e1), (math.pi, 40 * math.pi), (0.1, 10.0)
STARTS = 4


class Wave(kernels.StationaryKernelMixin, kernels.NormalizedKernelMixin, kernels.Kernel):  # type: ignore[misc]
    """cos(ω·d), or the periodic kernel exp((cos(ω·d) − 1) / w²) along ω if it has a width w."""

    def __init__(self, frequency: Any, width: float | None = None) -> None:
        self.frequency = frequency
        self.width = width

    @property
    def hyperparameter_frequency(self) -> kernels.Hyperparameter:
        return kernels.Hyperparameter("frequency", "numeric", FREQUENCIES, np.size(self.frequency))

    @property
    def hyperparameter_width(self) -> kernels.Hyperparameter:
        return kernels.Hyperparameter("width", "numeric", "fixed" if self.width is None else WIDTHS)

    def __call__(self, x: Floats, other: Floats | None = None, eval_gradient: bool = False) -> Any:
        parts = (x[:, None] - (x if other is None else other)) * self.frequency  # [N, M, D]
        angle = parts.sum(-1)
        value, slope, last = np.cos(angle), np.ones_like(angle), []
        if self.width is not None:
            away = (1 - value) / self.width**2
            value = np.exp(-away)
            slope, last = value / self.width**2, [2 * away * value]
        if not eval_gradient:
            return value
        turned = -np.sin(angle) * slope
        return value, np.stack([*(turned * part for part in np.moveaxis(parts, -1, 0)), *last], -1)


class Values(NamedTuple):
    """Hyper-parameters of a kernel; `length` is the envelope's where there is one."""

    length: Floats  # per input, [D]
    frequency: Floats  # radians per unit of each input, [D]


def kernel_of(name: str, values: Values) -> kernels.Kernel:
    """A kernel of unit variance, a trend apart."""
    length, frequency = values

    def rbf(times: float = 1.0) -> kernels.Kernel:
        return kernels.RBF(times * length, LENGTHS)

    def matern(nu: float, times: float = 1.0) -> kernels.Kernel:
        return kernels.Matern(times * length, LENGTHS, nu)

    def periodic() -> kernels.Kernel:
        return Wave(frequency, 1.0)

    def rational() -> kernels.Kernel:  # scikit-learn has it with one length for all inputs
        return kernels.RationalQuadratic(float(length[0]), 1.0, LENGTHS, WIDTHS)

    def mean(*parts: kernels.Kernel) -> kernels.Kernel:
        return sum((1 / len(parts) * part for part in parts[1:]), 1 / len(parts) * parts[0])

    made: dict[str, Callable[[], kernels.Kernel]] = {
        "rbf": rbf,
        "matern12": lambda: matern(0.5),
        "matern32": lambda: matern(1.5),
        "matern52": lambda: matern(2.5),
        "rational": rational,
        "periodic": periodic,
        "periodic × rbf": lambda: periodic() * rbf(3),
        "periodic × matern32": lambda: periodic() * matern(1.5, 3),
        "cosine × rbf": lambda: Wave(frequency) * rbf(3),
        "cosine × matern32": lambda: Wave(frequency) * matern(1.5, 3),
        "rbf + periodic": lambda: mean(rbf(), periodic()),
        "rbf + matern32": lambda: mean(rbf(3), matern(1.5)),
        "rbf + matern12 + periodic": lambda: mean(rbf(3), matern(0.5), periodic()),
        "rbf + linear": lambda: rbf() + 1.0 * kernels.DotProduct(1e-3, "fixed"),
    }
    return made[name]()


ONE_INPUT = (
    "rbf",
    "matern12",
    "matern32",
    "matern52",
    "rational",
    "periodic",
    "periodic × rbf",
    "periodic × matern32",
    "cosine × rbf",
    "cosine × matern32",
    "rbf + periodic",
    "rbf + matern32",
    "rbf + matern12 + periodic",
    "rbf + linear",
)
SEVERAL_INPUTS = (
    "rbf",
    "matern12",
    "matern32",
    "matern52",
    "rational",
    "periodic × rbf",
    "cosine × rbf",
    "rbf + matern32",
)
KERNELS = {1: ONE_INPUT, 2: SEVERAL_INPUTS, 3: SEVERAL_INPUTS}  # by number of inputs


def draw_values(rng: np.random.Generator, dims: int) -> Values:
    """Draw hyper-parameters; of several inputs as the prior draws them, all directions in the positive quadrant."""
    low, high = {1: (0.1, 1.0), 2: (0.1, 2.5), 3: (0.25, 2.5)}[dims]
    length = np.exp(rng.uniform(math.log(low), math.log(high)) + 0.4 * (dims > 1) * rng.normal(size=dims))
    period = math.exp(rng.uniform(math.log(0.15), 0.0)) * dims**0.5
    direction = np.abs(rng.normal(size=dims))
    return Values(length, 2 * math.pi / period * direction / np.linalg.norm(direction))


def posterior(kernel: kernels.Kernel, x: Floats, y: Floats, x_target: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of observations under a process with known hyper-parameters, [T] each."""
    factor = cho_factor(kernel(x) + 1e-10 * np.eye(len(x)), lower=True)
    cross = kernel(x_target, x)
    variance = kernel.diag(x_target) - (cross * cho_solve(factor, cross.T).T).sum(1)
    return cross @ cho_solve(factor, y), np.sqrt(np.maximum(variance, 1e-10))


def fitted(name: str, x: Floats, y: Floats, x_target: Floats) -> tuple[Floats, Floats]:
    """The same with hyper-parameters of maximum likelihood, from four starts; the kind of kernel is known."""
    dims = x.shape[1]
    start = Values(np.full(dims, 0.3), np.full(dims, 2 * math.pi / 0.4 / dims))
    scaled = kernels.ConstantKernel(1.0, (1e-3, 1e3)) * kernel_of(name, start)
    noisy = scaled + kernels.WhiteKernel(0.01, (1e-5, 1e1))
    process = GaussianProcessRegressor(
        noisy, n_restarts_optimizer=STARTS - 1, normalize_y=True, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # searches that end at a bound
        mean, std = process.fit(x, y).predict(x_target, return_std=True)
    return mean, std
