"""Tables 2 and A.1: what is measured of a model of curves, and with which settings it is trained."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsvnp.estimation import log_likelihood
from dsvnp.models import Architecture, make_model
from dsvnp.objectives import Objective
from dsvnp.paper.ambiguity.recipes import RECIPES
from dsvnp.paper.curves.data import UnseenCurves
from dsvnp.paper.curves.experiment import CurveRecipe, CurvesExperiment
from dsvnp.paper.curves.measures import curve_extras, curve_panels, measure_curves
from dsvnp.paper.experiment import Drawn
from dsvnp.paper.label import Label
from dsvnp.paper.measuring import Likelihoods, seeded_predict
from dsvnp.training import Schedule

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data() -> UnseenCurves:
    return UnseenCurves.draw(num_tests=6, num_points=30, max_context=10, extra_context=20, device=CPU)


def net(name: str = "np"):
    torch.manual_seed(0)
    return make_model(name, Architecture(1, 1, encoder=(8,), dim_lat=8, decoder=(8,))).eval()


# --- what is measured ---


def test_rows_are_averages_over_points_and_medians_over_functions(data):
    model = net()
    rows = {(m.metric, m.split): m.values[0] for m in measure_curves([model], data, num_global=3)}
    (task,) = data.splits["extra-max"]
    losses = -seeded_predict(model, task, (3, 1)).log_prob(task.y_target)  # [6, 30]
    outside = [
        [float(v) for v, flag in zip(*row, strict=True) if not flag]
        for row in zip(losses, task.in_context, strict=True)
    ]
    assert [len(row) for row in outside] == [10] * 6
    assert rows["nll", "extra-J-max"] == pytest.approx(float(losses.mean()), rel=1e-5)
    assert rows["nll", "extra-P-max"] == pytest.approx(sum(map(sum, outside)) / 60, rel=1e-5)
    means = sorted(sum(row) / 10 for row in outside)
    assert rows["nll-median", "extra-P-max"] == pytest.approx(
        means[2], rel=1e-5
    )  # the lower of the two in the middle
    error = (seeded_predict(model, task, (3, 1)).mean - task.y_target).square()[~task.in_context].mean()
    assert rows["mse", "extra-P-max"] == pytest.approx(float(error), rel=1e-5)


def test_the_bound_stands_next_to_likelihoods_whose_draws_suffice(data):
    how = Likelihoods("suffice", max_draws=64)
    rows = {(m.metric, m.split): m for m in measure_curves([net(), net()], data, 3, how)}
    found = log_likelihood(net(), data.splits["inter-max"], points="J", max_draws=64)
    assert rows["bound", "inter-J-max"].values == (-found.bound,) * 2
    assert rows["nll", "inter-J-max"].drawn == (Drawn.of(found),) * 2
    assert ("bound", "inter-P-max") not in rows
    assert "bound" not in {m.metric for m in measure_curves([net()], data, 3)}


def test_splits_are_of_the_stated_ranges_and_context_sizes(data):
    sizes = {
        name: [int(n) for t in tasks for n in t.mask_context.sum(1)] for name, tasks in data.splits.items()
    }
    assert set(sizes["inter-max"]) == {10}
    assert set(sizes["extra-max"]) == {20}
    assert len(set(sizes["inter"])) > 1
    assert min(sizes["inter"]) >= 3
    inter, extra = (
        max(float(t.x_target.abs().max()) for t in data.splits[name]) for name in ("inter", "extra")
    )
    assert 1.8 < inter <= 2 < 3.6 < extra <= 4
    assert list(data.by_size) == [1, 2, 3, 5, 8]
    assert all(
        int(n) == size for size, tasks in data.by_size.items() for t in tasks for n in t.mask_context.sum(1)
    )


def test_every_net_has_a_value_and_a_net_gives_the_same_again(data):
    rows = measure_curves([net(), net("cnp"), net()], data, num_global=2)
    assert all(len(m.values) == 3 and m.values[0] == m.values[2] != m.values[1] for m in rows)


def test_figures_are_made_of_curves_by_context_and_coverage(data):
    shown = curve_extras([net(), net("cnp")], data, num_global=2)
    assert [len(curve) for curve in shown["nll_by_context"]] == [len(shown["context_sizes"])] * 2
    for curve in shown["coverage"]:
        assert curve == sorted(curve)
        assert all(0 <= share <= 1 for share in curve)
    pictures = curve_panels(net(), 2, CPU)
    assert list(pictures) == ["interpolation", "extrapolation"]
    assert pictures == curve_panels(net(), 2, CPU)


# --- settings ---


def test_the_papers_architecture_and_training():
    made = CurvesExperiment.presets()["paper"]
    assert made.paper.architecture() == Architecture(1, 1, encoder=(32, 32), dim_lat=128, decoder=(128,))
    settings = made.settings(made.paper)
    assert (settings.num_steps, settings.learning_rate) == (800_000, 5e-4)
    assert settings.schedule == Schedule("constant", 1000)
    assert settings.objective == Objective(beta_local=1000.0)
    assert (made.num_tests, made.test_points, made.max_context, made.extra_context) == (2000, 400, 50, 200)


def test_the_wider_recipe_has_settings_of_its_own():
    sizes = {"encoder": (3,), "dim_lat": 4, "latent_hidden": (2,), "decoder": (5, 6)}
    wide = CurveRecipe(
        8e-4, "cosine", 0.1, beta_local=10.0, anneal=0.5, anneal_local=False, num_steps=70, **sizes
    )
    made = CurvesExperiment(wide=wide, precision="tf32")
    assert made.paper == CurvesExperiment().paper
    assert made.wide.architecture() == Architecture(1, 1, **sizes)
    settings = made.settings(made.wide)
    assert settings.objective == Objective(10.0, anneal="linear", anneal_steps=35, anneal_local=False)
    assert (settings.num_steps, settings.learning_rate, settings.precision) == (70, 8e-4, "tf32")
    assert settings.schedule == Schedule("cosine", 7)
    assert made.labels()[-1] == Label("dsvnp", "wide")
    with pytest.raises(ValueError, match=r"unknown recipe 'wied'\. Did you mean 'wide'"):
        CurvesExperiment(recipes=("wied",)).labels()


def test_the_default_recipe_is_that_of_the_ambiguity_experiment_in_the_wider_networks():
    made = CurvesExperiment(recipes=("wide", "default"))
    assert [str(label) for label in made.labels()][-2:] == ["dsvnp-wide", "dsvnp-default"]
    wide, own = made.wide.architecture(), made.default.architecture()
    assert replace(wide, dim_local=4) == own
    theirs = RECIPES["dsvnp"].settings(made.default.num_steps).objective
    assert made.settings(made.default).objective == theirs


def test_the_equivariant_recipe_alone_reads_differences_of_inputs():
    made = CurvesExperiment(models=("tnp",), recipes=("wide", "equivariant"))
    assert made.labels() == [Label("tnp", "wide"), Label("tnp", "equivariant")]
    assert made.equivariant.architecture().transformer.equivariant
    assert not made.wide.architecture().transformer.equivariant
    assert made.equivariant.architecture().sigma_floor == made.wide.architecture().sigma_floor == 0.1
