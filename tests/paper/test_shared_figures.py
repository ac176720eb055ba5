"""Lines of a model hold all its seeds; the course of training shows only what a model has."""

import math

from dsvnp.paper import figures as module
from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.figures import lines_of, training_figure
from dsvnp.paper.label import Label
from dsvnp.plotting.style import look_of

DSVNP, NN = look_of("dsvnp"), look_of("nn")


def unit(model: str, seeds: tuple[int, ...], likelihood: float | None, local: float) -> UnitResult:
    terms = {"log_likelihood": likelihood, "kl_local": local, "kl_global": 0.0}
    training = {name: [[value] * len(seeds), [value] * len(seeds)] for name, value in terms.items()}
    return UnitResult(Label(model), seeds, (), {"training": {"step": [1, 2], **training}})


def test_all_seeds_are_drawn_and_a_divergence_that_is_not_there_is_not(tmp_path, monkeypatch):
    drawn = {}

    def catch(plots, path, bands):
        drawn.update({plot.title: plot for plot in plots})
        return path

    monkeypatch.setattr(module, "lines_figure", catch)
    units = [unit("dsvnp", (0, 1), -2.0, 0.5), unit("dsvnp", (2,), None, 0.25), unit("nn", (0,), -1.0, 0.0)]
    assert training_figure(units, tmp_path / "training.svg", "nats/image") == tmp_path / "training.svg"
    assert drawn["log-likelihood"].y_name == "nats/image"
    assert list(drawn["log-likelihood"].lines) == [DSVNP, NN]
    assert drawn["log-likelihood"].lines[NN].x == [1, 2]
    assert drawn["KL_L"].lines[DSVNP].y == [[0.5, 0.5], [0.5, 0.5], [0.25, 0.25]]
    assert list(drawn["KL_L"].lines) == [DSVNP]
    assert {title: plot.log for title, plot in drawn.items()} == {"log-likelihood": "", "KL_L": "y"}


def test_a_seed_that_stopped_leaves_a_gap(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(module, "lines_figure", lambda plots, path, bands: drawn.extend(plots))
    run = unit("nn", (0,), -2.0, 0.0)
    run.extras["training"]["log_likelihood"][1] = [None]
    training_figure([run], tmp_path / "training.svg")
    (first, second) = drawn[0].lines[NN].y[0]
    assert first == -2.0
    assert math.isnan(second)


def test_the_likelihood_of_classes_may_be_drawn_as_a_loss(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(module, "lines_figure", lambda plots, path, bands: drawn.extend(plots))
    training_figure([unit("dsvnp", (0,), -2.0, 0.5)], tmp_path / "training.svg", loss=True)
    assert [(plot.title, plot.log) for plot in drawn] == [("cross-entropy", "y"), ("KL_L", "y")]
    assert [plot.lines[DSVNP].y for plot in drawn] == [[[2.0, 2.0]], [[0.5, 0.5]]]


def test_lines_hold_all_seeds_and_nan_where_a_file_holds_null():
    def made(seeds, values):
        return UnitResult(Label("np"), seeds, (), {"sizes": [1, 10], "mse": values})

    units = [made((0, 1), [[1.0, 2.0], [3.0, None]]), made((2,), [[5.0, 6.0]])]
    lines = lines_of(units, lambda extras: extras["sizes"], lambda extras: extras["mse"])
    ((look, line),) = lines.items()
    assert (look.text, line.x) == ("NP", [1, 10])
    assert line.y[0] == [1.0, 2.0]
    assert math.isnan(line.y[1][1])
    assert line.y[2] == [5.0, 6.0]
