"""The toy experiment: σ measured where it says, a GP next to the models, and the figure."""

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dsvnp.paper.experiment import Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.runner import run
from dsvnp.paper.settings import make_experiment
from dsvnp.paper.toy import experiment as toy
from dsvnp.paper.toy import figures, gp
from dsvnp.paper.toy.data import draw_observations
from dsvnp.paper.toy.experiment import ToyExperiment
from dsvnp.paper.toy.figures import limits_of
from dsvnp.paper.toy.gp import fit_toy_gp
from dsvnp.plotting.figures import FunctionPanel
from dsvnp.plotting.style import look_of
from dsvnp.predictive import GaussianPredictive
from dsvnp.training import Schedule

MODELS = ["cnp", "np", "attnnp", "dsvnp"]


def place(out: Path) -> Workplace:
    return Workplace(out, torch.device("cpu"), Console(file=io.StringIO(), width=200))


def observations(seed: int = 0):
    return draw_observations(torch.Generator().manual_seed(seed))


def predictive_of(x: torch.Tensor, sigma) -> GaussianPredictive:
    inputs = toy._inputs(x).reshape(1, 1, 1, -1, 1)
    return GaussianPredictive(torch.zeros_like(inputs), sigma(inputs))


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    out = tmp_path_factory.mktemp("toy")
    where = place(out)
    run(make_experiment(ToyExperiment, "smoke"), where)
    return out, json.loads((out / "results.json").read_text(encoding="utf-8")), where


def test_smoke_gives_all_rows(smoke):
    _, written, _ = smoke
    splits = {("sigma", split, "raw") for split in ("outside", "gap", "observed")}
    splits |= {("order-holds", "all", "share")}
    expected = {(model, *rest) for model in [*MODELS, "gp"] for rest in splits}
    assert {(r["model"], r["metric"], r["split"], r["unit"]) for r in written["rows"]} == expected
    assert all(len(r["seeds"]) == 2 and r["dataset"] == "toy" for r in written["rows"])


def test_the_order_follows_from_the_sigmas(smoke):
    _, written, _ = smoke
    values = {(r["model"], r["split"]): r["seeds"] for r in written["rows"]}
    for model in [*MODELS, "gp"]:
        sigmas = zip(*(values[model, split] for split in ("outside", "gap", "observed")), strict=True)
        assert values[model, "all"] == [float(a > b > c) for a, b, c in sigmas]


def test_smoke_draws_the_models_and_the_gp(smoke, monkeypatch):
    out, _, _ = smoke
    assert (out / "functions.svg").stat().st_size > 1000
    drawn = []
    monkeypatch.setattr(
        figures, "functions_figure", lambda rows, path, *rest, **named: drawn.append(rows) or path
    )
    run(make_experiment(ToyExperiment, "smoke"), place(out))
    ((_, panels),) = drawn[0]
    assert list(panels) == [look_of(name) for name in (*MODELS, "gp")]
    x, y = observations(0)
    for panel in panels.values():  # seed 0, all of its observations as context
        torch.testing.assert_close(panel.x_context, x.squeeze(-1), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(panel.y_context, y.squeeze(-1), rtol=1e-4, atol=1e-5)
        assert (panel.x.min(), panel.x.max()) == (-0.5, 1.5)


def test_seeds_have_observations_of_their_own_the_same_for_all_models(tmp_path, monkeypatch):
    seen = {}

    def watch(self, label, make, source, seeds, settings, where, validation=None):
        seen[label.model] = [each.x for each in source]
        raise KeyboardInterrupt

    monkeypatch.setattr(ToyExperiment, "train_replicas", watch)
    for model in ("cnp", "np"):
        with pytest.raises(KeyboardInterrupt):
            ToyExperiment().run_unit(Label(model), [0, 3], place(tmp_path))
    assert torch.equal(seen["cnp"][1], seen["np"][1])
    assert torch.equal(seen["cnp"][1], observations(3)[0])
    assert not torch.equal(seen["cnp"][0], seen["cnp"][1])


def test_sigma_is_averaged_where_it_says():
    x, _ = observations()
    means = toy._mean_sigmas(predictive_of(x, lambda at: 1 + at.square()), x)
    assert means["outside"] == pytest.approx(1 + (1 / 24 + 19 / 24), abs=1e-3)  # ∫ x² over both halves
    assert means["gap"] == pytest.approx(1 + (0.8**3 - 0.6**3) / 3 / 0.2, abs=1e-3)
    assert means["observed"] == pytest.approx(float(1 + x.square().mean()), abs=1e-5)


@pytest.mark.parametrize(
    ("sigmas", "holds"),
    [((3, 2, 1), 1.0), ((2, 3, 1), 0.0), ((3, 1, 2), 0.0), ((2, 2, 1), 0.0), ((1, 2, 3), 0.0)],
)
def test_the_order_is_strict(sigmas, holds):
    named = dict(zip(("outside", "gap", "observed"), map(float, sigmas), strict=True))
    assert toy._measurements([named])[-1].values == (holds,)


def test_beta_local_and_steps_reach_the_training():
    made = make_experiment(ToyExperiment, "paper", **{"recipe.beta_local": 3.0, "recipe.learning_rate": 0.25})
    settings = made.recipe.settings(77)
    assert (settings.objective.beta_local, settings.num_steps, settings.learning_rate) == (3.0, 77, 0.25)
    assert settings.schedule == Schedule("cosine", 4)


# --- the exact GP ---


def test_the_gp_interpolates_and_knows_where_it_does_not_know():
    x, y = observations()
    predictive = fit_toy_gp(x, y, toy._inputs(x), 200)
    assert predictive.loc.shape == (1, 1, 1, len(toy._inputs(x)), 1)
    assert float((predictive.mean[0, -20:] - y).abs().max()) < 0.1
    sigma = toy._mean_sigmas(predictive, x)
    assert sigma["outside"] > 0.5 > sigma["gap"] > sigma["observed"]
    assert sigma["observed"] < 0.1


def test_the_gps_likelihood_has_grown():
    x, y = observations()
    at_observed = [fit_toy_gp(x, y, toy._inputs(x), steps) for steps in (0, 200)]
    start, end = (
        GaussianPredictive(p.loc[..., -20:, :], p.scale[..., -20:, :]).log_prob(y[None]) for p in at_observed
    )
    assert float(end.mean()) > float(start.mean()) + 1


def test_without_gpytorch_the_gp_is_left_out_and_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(gp, "find_spec", lambda name: None)
    where = place(tmp_path)
    made = make_experiment(ToyExperiment, "smoke", models=("cnp", "np"), num_steps=2, num_seeds=1)
    run(made, where)
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert {r["model"] for r in written["rows"]} == {"cnp", "np"}
    said = [line for line in where.console.file.getvalue().splitlines() if "GPyTorch" in line]
    assert said == ["The exact GP is left out: GPyTorch is not installed (pip install 'dsvnp[gp]')."]
    monkeypatch.undo()
    run(made, place(tmp_path))  # installed later, it is added
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert {r["model"] for r in written["rows"]} == {"cnp", "np", "gp"}


def test_with_gpytorch_nothing_is_said(smoke):
    assert "left out" not in smoke[2].console.file.getvalue()


# --- the figure ---


def panel(mean: float, sigma: float) -> FunctionPanel:
    x = toy.GRID
    truth = toy.toy_function(x)
    flat = torch.full_like(x, mean)
    return FunctionPanel(x, truth, x[:1], truth[:1], flat, torch.full_like(x, sigma), flat[None])


def test_limits_hold_the_truth_and_the_bands_up_to_a_point():
    truth = toy.toy_function(toy.GRID)
    room = float(truth.max() - truth.min())
    low, high = limits_of({"a": panel(0.0, 0.9), "b": panel(0.0, 0.1)})
    assert (low, high) == pytest.approx(
        (min(-2.7, float(truth.min())) - 0.1, max(2.7, float(truth.max())) + 0.1)
    )
    low, high = limits_of({"a": panel(0.0, 100.0)})  # a band that explodes does not flatten the truth
    assert (low, high) == pytest.approx(
        (float(truth.min()) - room / 2 - 0.1, float(truth.max()) + room / 2 + 0.1)
    )
    low, high = limits_of({"a": panel(0.0, 0.01)})  # nor does a narrow one cut it off
    assert low < float(truth.min())
    assert high > float(truth.max())
