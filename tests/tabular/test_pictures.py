"""`plot` of an estimator: along one input, else sorted by the prediction; compared with what is known."""

import numpy as np
import pytest
from fitted import QUICK, classifier, labels, regressor, table
from matplotlib.figure import Figure

from dsvnp import NPRegressor


def lines(ax):
    return {line.get_label(): line for line in ax.lines}


def test_one_input_is_the_axis():
    x = np.linspace(0, 1, 40)[::-1]
    fitted = NPRegressor(**{**QUICK, "max_steps": 2}).fit(x[:, None], x)
    ax = Figure().subplots()
    assert fitted.plot(x[:, None], x, ax, coverage=0.5) is ax
    np.testing.assert_allclose(lines(ax)["mean"].get_ydata(), fitted.predict(x[::-1, None]))
    np.testing.assert_array_equal(lines(ax)["observed"].get_xdata(), x)
    fitted.plot(x[:, None], ax=ax, kind="functions", n_functions=3)
    assert sum(line.get_alpha() == 0.6 for line in ax.lines) == 3


def test_rows_of_several_inputs_are_sorted_by_their_prediction():
    X, Y = table(40)
    ax = regressor().plot(X, Y, Figure().subplots(), output=1)
    assert (np.diff(regressor().predict(X)[:, 0][np.argsort(lines(ax)["observed"].get_xdata())]) >= 0).all()
    np.testing.assert_array_equal(lines(ax)["observed"].get_ydata(), Y[:, 1])


def test_what_is_known_is_compared():
    X, Y = table(40)
    assert lines(regressor().plot(X, Y, Figure().subplots(), kind="residuals"))["rows"].get_xdata().size == 80
    X, named = labels(40)
    ax = classifier().plot(X, named, Figure().subplots(), kind="calibration")
    assert 0 < lines(ax)["accuracy"].get_xdata().max() <= 1
    assert "P(elm)" in lines(classifier().plot(X, named, Figure().subplots()))
    assert "coverage" in lines(regressor().plot(ax=Figure().subplots()))
    with pytest.raises(ValueError, match="pass y"):
        regressor().plot(X, kind="residuals")
    with pytest.raises(ValueError, match="Did you mean 'residuals'"):
        regressor().plot(X, kind="residual")
