"""Logistic regression with a quadratic penalty, as scikit-learn's `LogisticRegression` fits it, without its checks.

    minimise  −(1/N) Σ ln p(y_i | x_i) + ‖W‖² / (2 C N),   p = softmax(W x + b), of two classes sigmoid(w x + b)

A panel fits dozens of them to small tables, where scikit-learn takes most of its time to check what it is given. The
search is the same, L-BFGS from zero to the same tolerance, and so is where it ends, up to rounding.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

Floats = NDArray[np.float64]

MOST_STEPS, TOLERANCE = 200, 1e-4


def fit_logistic(x: Floats, y: NDArray[np.intp], strength: float) -> tuple[Floats, Floats]:
    """Coefficients [C, D] and intercepts [C] of rows [N, D] with labels 0 … C − 1 [N]; C is 1 for two of them."""
    number = int(y.max()) + 1
    classes = 1 if number == 2 else number
    inputs = np.concatenate([x, np.ones((len(x), 1))], 1)  # the last coefficient is the intercept
    truth = y[:, None] == (np.arange(1, 2) if classes == 1 else np.arange(number))  # [N, C]
    penalty = np.full((classes, inputs.shape[1]), 1 / (strength * len(x)))
    penalty[:, -1] = 0.0

    def value(flat: Floats) -> tuple[float, Floats]:
        weight = flat.reshape(penalty.shape)
        logits = inputs @ weight.T  # [N, C]
        losses, chances = _binary(logits, truth) if classes == 1 else _multinomial(logits, truth)
        shrunk = penalty * weight
        gradient = (chances - truth).T @ inputs / len(x) + shrunk
        return float(losses.mean() + 0.5 * (shrunk * weight).sum()), gradient.ravel()

    options: Any = {"maxiter": MOST_STEPS, "maxls": 50, "gtol": TOLERANCE, "ftol": 64 * np.finfo(float).eps}
    found = minimize(value, np.zeros(penalty.size), jac=True, method="L-BFGS-B", options=options)
    weight = found.x.reshape(penalty.shape)
    return weight[:, :-1], weight[:, -1]


def _binary(logits: Floats, truth: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """−ln p of each row [N, 1], and the probability of the second class."""
    return np.logaddexp(0.0, np.where(truth, -logits, logits)), expit(logits)


def _multinomial(logits: Floats, truth: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """−ln p of each row [N], and the probabilities of all classes [N, C]."""
    logits = logits - logits.max(1, keepdims=True)
    weights = np.exp(logits)
    total = weights.sum(1, keepdims=True)
    return np.log(total[:, 0]) - logits[truth], weights / total
