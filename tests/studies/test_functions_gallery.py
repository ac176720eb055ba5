"""The page of functions: three curves and three tasks, each with its interval and as many functions as it says."""

import warnings

import numpy as np

from studies import functions_gallery as gallery


def test_the_page_has_curves_and_tasks_with_functions(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # four steps teach nothing
        figure = gallery.gallery("fast", 4)
    assert [axes.get_title() for axes in figure.axes][3:] == [
        f"a new task, {n} readings" for n in gallery.KNOWN
    ]
    for axes in figure.axes:
        lines = [line for line in axes.lines if len(line.get_xdata()) == len(gallery.SPAN)]
        assert len(lines) == gallery.FUNCTIONS + 1 + (
            "task" in axes.get_title()
        )  # the mean, and the truth of a task
    gallery.save(figure, tmp_path / "page.svg")
    assert (tmp_path / "page.svg").stat().st_size > 10_000


def test_a_step_response_is_that_of_a_damped_oscillator():
    """y'' + 2ζω y' + ω² y = ω² K after the delay, by finite differences."""
    response = gallery.step_response(np.random.default_rng(1))
    rng = np.random.default_rng(1)
    gain, delay, frequency, damping = (rng.uniform(*ends) for ends in ((0.5, 3), (0, 4), (1, 4), (0.2, 0.9)))
    t, h = np.linspace(delay + 0.5, 10, 50), 1e-4
    left, here, right = (response(t + shift) for shift in (-h, 0, h))
    speed, bend = (right - left) / (2 * h), (right - 2 * here + left) / h**2
    np.testing.assert_allclose(
        bend + 2 * damping * frequency * speed + frequency**2 * (here - gain), 0, atol=1e-4
    )
    assert (response(np.linspace(0, delay, 5)) == 0).all()
