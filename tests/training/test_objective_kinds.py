"""Every kind of objective in a fleet: replicas equal single runs, a single run equals a plain loop, and it learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from plain_loop import train_like
from small_fleet import ARCH, curves, distance, make_fleet, rows_of, run_steps
from torch import Tensor

from dsvnp.losses import training_loss
from dsvnp.models import make_model
from dsvnp.objectives import KINDS, Draws, Objective, Weights
from dsvnp.paper.ambiguity.problems import PROBLEMS
from dsvnp.training import Settings

SEEDS = (3, 4)
LOCAL = replace(
    ARCH, dim_local=2, local_start="silent", local_detach=True, local_posterior="ladder", local_hidden=(6, 5)
)


def of_kind(kind: str, **changes: object) -> Objective:
    return Objective(kind=kind, num_global=2, num_local=3, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fleet_equals_its_single_runs(kind):
    objective = of_kind(kind)
    fleet = run_steps(make_fleet("dsvnp", SEEDS, arch=LOCAL, objective=objective), 15)
    assert all(fleet.active)
    for row, seed in enumerate(SEEDS):
        single = run_steps(make_fleet("dsvnp", [seed], arch=LOCAL, objective=objective), 15)
        assert distance(rows_of(single, 0), rows_of(fleet, row)) < 1e-9


@pytest.mark.parametrize("name", ["np", "dsvnp"])
@pytest.mark.parametrize(
    "objective",
    [
        of_kind("iw", anneal="linear", anneal_steps=8, beta_local=0.5),
        of_kind("npml"),
        of_kind("npml", propose_local=False),
        of_kind("gsnn", mix=0.3, beta_global=2.0),
        of_kind("si"),
        of_kind("elbo", free_bits=0.05),
    ],
    ids=["iw", "npml", "npml-priors", "gsnn", "si", "free-bits"],
)
def test_a_run_equals_a_plain_loop(name, objective):
    fleet = make_fleet(name, [3], curves(refresh_every=10), objective=objective)
    torch.manual_seed(3)
    model = make_model(name, ARCH).double()

    def loss(posterior: Draws, prior: Draws, step: int) -> Tensor:
        ramp = min(1.0, step / 8) if objective.anneal == "linear" else 1.0
        weights = Weights(objective.beta_local * ramp, objective.beta_global * ramp)
        return training_loss(objective, posterior, prior, weights)[0]

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    train_like(fleet, 0, model, optimizer, 10, of_draws=loss)
    found = run_steps(fleet, 10).replica(0).state_dict()
    for key, value in model.state_dict().items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=1e-9, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns(kind):
    fleet = make_fleet("dsvnp", [0], arch=LOCAL, objective=of_kind(kind), learning_rate=3e-3)
    task = fleet.lanes[0].supply.example(torch.float64)

    def likelihood() -> float:
        model = fleet.replica(0)
        prediction = model.predict(task, 64, generator=torch.Generator().manual_seed(0))
        return prediction.log_prob(task.y_target).mean().item()

    before = likelihood()
    run_steps(fleet, 150)
    assert fleet.active == [True]
    assert likelihood() > before + 0.1


def test_weights_of_replicas_are_refused_where_there_is_no_kl():
    with pytest.raises(ValueError, match="'npml' has no KL to weigh; leave beta_local and beta_global out"):
        Settings(10, objective=of_kind("npml"), beta_local=(1.0, 2.0))


@pytest.mark.parametrize("kind", ["elbo", "npml"])
def test_outputs_that_share_a_sigma_are_scored_with_it_in_training_only(kind):
    source = PROBLEMS["shared-noise-2"].source(4, 10, (1, 6), dtype=torch.float64)
    arch = replace(ARCH, dim_y=2)
    fleet = make_fleet("dsvnp", [3], source, arch, objective=of_kind(kind, common_steps=6))
    torch.manual_seed(3)
    model = make_model("dsvnp", arch).double()
    model.likelihood.common = torch.tensor(1.0)

    def loss(posterior: Draws, prior: Draws, step: int) -> Tensor:
        model.likelihood.common = torch.tensor(
            1.0 if step < 6 else 2 / 3 if step < 7 else 1 / 3
        )  # of the next step
        return training_loss(of_kind(kind), posterior, prior, Weights())[0]

    train_like(fleet, 0, model, torch.optim.Adam(model.parameters(), lr=1e-2), 8, of_draws=loss)
    trained = run_steps(fleet, 8).replica(0)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(trained.state_dict()[key], value, rtol=0, atol=1e-9)
    assert trained.likelihood.common is None


def test_a_common_sigma_needs_a_gaussian_likelihood():
    fleet = make_fleet("cnp", arch=replace(ARCH, likelihood="mixture"), objective=Objective(common_steps=3))
    with pytest.raises(ValueError, match="common_steps needs a Gaussian likelihood, got 'mixture'"):
        fleet.step()
