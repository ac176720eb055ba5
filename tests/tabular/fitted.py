"""Small estimators fitted once for all tests, and the tables they were fitted to."""

import functools

import numpy as np

from dsvnp import NPClassifier, NPRegressor

QUICK = {
    "model": "dsvnp",
    "n_replicas": 2,
    "max_steps": 60,
    "width": 32,
    "n_draws": 4,
    "random_state": 0,
    "device": "cpu",
}


def table(rows=160, outputs=2, seed=0):
    """A smooth function of three inputs in units of its own, with noise of 0.2 of its deviation."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    f = np.stack([np.sin(X[:, 0]) + X[:, 1], X[:, 1] * X[:, 2]], 1)[:, :outputs]
    return X, 1000 * f + 200 * rng.normal(size=f.shape) + 5000


def labels(rows=150, seed=0):
    """Three clusters with names."""
    rng = np.random.default_rng(seed)
    which = rng.integers(3, size=rows)
    return rng.normal(size=(rows, 2)) + 4 * np.stack([np.cos(2 * which), np.sin(2 * which)], 1), np.array(
        ["ash", "elm", "oak"]
    )[which]


def sines(tasks=24, seed=0, rows=12):
    """Many small tables: sines of one frequency with amplitudes of their own."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(tasks):
        x = rng.uniform(-2, 2, size=(rows, 1))
        out.append((x, rng.uniform(1, 5) * np.sin(2 * x[:, 0])))
    return out


def offset_sines(tasks=24, seed=0, rows=12):
    """The same, each with an offset that is much larger, and with a scale."""
    rng = np.random.default_rng(seed + 1)
    return [(x, 10 ** rng.normal() * (y + 100 * rng.normal())) for x, y in sines(tasks, seed, rows)]


@functools.cache
def regressor(outputs=2):
    X, Y = table(outputs=outputs)
    return NPRegressor(**QUICK).fit(X, Y if outputs > 1 else Y[:, 0])


@functools.cache
def classifier():
    return NPClassifier(**QUICK).fit(*labels())
