"""The course of training: all seeds of a model, and only what a model has."""

import math

from dsvnp.paper import training_figure as module
from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.training_figure import training_figure


def unit(model: str, seeds: tuple[int, ...], likelihood: float | None, local: float) -> UnitResult:
    terms = {"log_likelihood": likelihood, "kl_local": local, "kl_global": 0.0}
    training = {name: [[value] * len(seeds), [value] * len(seeds)] for name, value in terms.items()}
    return UnitResult(model, seeds, (), {"training": {"step": [1, 2], **training}})


def test_all_seeds_are_drawn_and_a_divergence_that_is_not_there_is_not(tmp_path, monkeypatch):
    drawn = {}

    def catch(panels, path, **options):
        drawn.update({title: (axis, lines) for title, _, axis, lines in panels}, options=options)
        return path

    monkeypatch.setattr(module, "lines_figure", catch)
    units = [unit("dsvnp", (0, 1), -2.0, 0.5), unit("dsvnp", (2,), None, 0.25), unit("nn", (0,), -1.0, 0.0)]
    assert training_figure(units, tmp_path / "training.svg", "nats/image") == tmp_path / "training.svg"
    axis, likelihood = drawn["log-likelihood"]
    assert axis == "nats/image"
    assert list(likelihood) == ["dsvnp", "nn"]
    assert likelihood["nn"].x == [1, 2]
    assert drawn["KL_L"][1]["dsvnp"].y == [[0.5, 0.5], [0.5, 0.5], [0.25, 0.25]]
    assert list(drawn["KL_L"][1]) == ["dsvnp"]
    assert "KL_G" not in drawn
    assert drawn["options"] == {"log_y": [False, True]}


def test_a_seed_that_stopped_leaves_a_gap(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(module, "lines_figure", lambda panels, path, **_: drawn.extend(panels))
    run = unit("nn", (0,), -2.0, 0.0)
    run.extras["training"]["log_likelihood"][1] = [None]
    training_figure([run], tmp_path / "training.svg")
    (first, second) = drawn[0][3]["nn"].y[0]
    assert first == -2.0
    assert math.isnan(second)


def test_the_likelihood_of_classes_may_be_drawn_as_a_loss(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(module, "lines_figure", lambda panels, path, **opt: drawn.update(opt, panels=panels))
    training_figure([unit("dsvnp", (0,), -2.0, 0.5)], tmp_path / "training.svg", loss=True)
    assert [title for title, *_ in drawn["panels"]] == ["cross-entropy", "KL_L"]
    assert drawn["panels"][0][3]["dsvnp"].y == [[2.0, 2.0]]
    assert drawn["panels"][1][3]["dsvnp"].y == [[0.5, 0.5]]
    assert drawn["log_y"] == [True, True]
