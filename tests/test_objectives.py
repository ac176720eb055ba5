"""Objectives, held against Eq. 15, 18 and 19 written as loops."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, asdict

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from dsvnp.gaussian import DiagonalGaussian
from dsvnp.objectives import (
    KINDS,
    Bound,
    Draws,
    Objective,
    Weights,
    annealing,
    importance_weighted,
    weighted_loss,
)

K, S, B, T, Z = 3, 2, 4, 5, 2
COUNTED = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 0, 0, 1], [0, 1, 1, 1, 1]], dtype=torch.bool)


def gaussian(*shape: int) -> DiagonalGaussian:
    return DiagonalGaussian(
        torch.randn(*shape, dtype=torch.float64), 0.3 + torch.rand(*shape, dtype=torch.float64)
    )


@pytest.fixture
def draws():
    """Draws of both latents, with points that do not count."""
    torch.manual_seed(0)
    q_global, q_local = gaussian(B, Z), gaussian(K, B, T, Z)
    return Draws(
        log_likelihood=torch.randn(K, S, B, T, dtype=torch.float64),
        counted=COUNTED,
        q_global=q_global,
        p_global=gaussian(B, Z),
        z_global=q_global.sample(torch.randn(K, B, Z, dtype=torch.float64)),
        q_local=q_local,
        p_local=gaussian(K, B, T, Z),
        z_local=q_local.unsqueeze(1).sample(torch.randn(K, S, B, T, Z, dtype=torch.float64)),
    )


def at(distribution: DiagonalGaussian, *index: int) -> Independent:
    return Independent(Normal(distribution.mean[index], distribution.scale[index]), 1)


def equation_19(draws: Draws, b: int, t: int, beta_local: float) -> float:
    """The terms of a point: its likelihood and its local KL."""
    total = 0.0
    for k in range(K):
        likelihood = sum(draws.log_likelihood[k, s, b, t].item() for s in range(S)) / S
        divergence = kl_divergence(at(draws.q_local, k, b, t), at(draws.p_local, k, b, t)).item()
        total += (likelihood - beta_local * divergence) / K
    return total


def kl_global(draws: Draws, b: int) -> float:
    return kl_divergence(at(draws.q_global, b), at(draws.p_global, b)).item()


# --- the bound ---


def test_the_terms_of_a_bound_are_sums_over_the_points_that_count(draws):
    bound = Bound.of(draws)
    for b in range(B):
        points = [t for t in range(T) if COUNTED[b, t]]
        both = sum(equation_19(draws, b, t, 1.0) for t in points)
        likelihood = sum(equation_19(draws, b, t, 0.0) for t in points)
        assert bound.log_likelihood[b].item() == pytest.approx(likelihood)
        assert bound.kl_local[b].item() == pytest.approx(likelihood - both)
        assert bound.kl_global[b].item() == pytest.approx(kl_global(draws, b))
        assert bound.num_points[b] == len(points)
        assert bound.elbo()[b].item() == pytest.approx(both - kl_global(draws, b))


def test_points_that_do_not_count_may_hold_anything(draws):
    spoilt = torch.where(COUNTED, draws.log_likelihood, torch.nan)
    q = DiagonalGaussian(torch.where(COUNTED[..., None], draws.q_local.mean, torch.nan), draws.q_local.scale)
    clean, dirty = Bound.of(draws), Bound.of(draws._replace(log_likelihood=spoilt, q_local=q))
    assert all(torch.equal(a, b) for a, b in zip(clean, dirty, strict=True))
    torch.testing.assert_close(
        importance_weighted(draws._replace(log_likelihood=spoilt)), importance_weighted(draws)
    )


def test_without_latents_the_divergences_are_zero(draws):
    bound = Bound.of(Draws(draws.log_likelihood, COUNTED))
    assert torch.equal(bound.kl_local, torch.zeros(B, dtype=torch.float64))
    assert torch.equal(bound.kl_global, torch.zeros(B, dtype=torch.float64))
    torch.testing.assert_close(bound.elbo(), bound.log_likelihood)


def test_reports_are_averages_over_the_points_of_a_batch(draws):
    bound = Bound.of(draws)
    report = bound.per_point()
    assert set(report) == {"log_likelihood", "kl_local", "kl_global"}
    for term, value in report.items():
        torch.testing.assert_close(value, getattr(bound, term).sum() / COUNTED.sum())


def test_a_batch_without_points_reports_zero_and_costs_its_global_divergence_only(draws):
    bound = Bound.of(draws._replace(counted=torch.zeros_like(COUNTED)))
    assert bound.per_point()["log_likelihood"] == 0
    assert weighted_loss(bound, Weights(1.0, 0.0)) == 0


def test_a_batch_of_one_point_is_divided_by_one(draws):
    counted = torch.zeros_like(COUNTED)
    counted[2, 4] = True
    bound = Bound.of(draws._replace(counted=counted))
    torch.testing.assert_close(bound.per_point()["log_likelihood"], draws.log_likelihood[..., 2, 4].mean())
    torch.testing.assert_close(weighted_loss(bound, Weights()), -bound.elbo().sum())


@pytest.mark.parametrize("missing", ["q", "p", "z"])
def test_a_latent_that_is_not_whole_has_neither_divergence_nor_ratio(draws, missing):
    """Draws from a prior have no posterior next to them: nothing is to be weighed."""
    torch.testing.assert_close(
        importance_weighted(draws._replace(**{f"{missing}_local": None, f"{missing}_global": None})),
        importance_weighted(Draws(draws.log_likelihood, COUNTED)),
    )
    if missing != "z":
        for level in ("local", "global"):
            bound = Bound.of(draws._replace(**{f"{missing}_{level}": None}))
            assert (getattr(bound, f"kl_{level}") == 0).all()


# --- the loss ---


def test_the_loss_is_equation_19_per_point(draws):
    loss = weighted_loss(Bound.of(draws), Weights(beta_local=5.0, beta_global=0.7))
    points = [(b, t) for b in range(B) for t in range(T) if COUNTED[b, t]]
    total = sum(equation_19(draws, b, t, 5.0) for b, t in points)
    total -= 0.7 * sum(kl_global(draws, b) for b in range(B))  # once per task
    assert loss.item() == pytest.approx(-total / len(points))


def test_an_undivided_global_divergence_counts_once_for_each_point(draws):
    loss = weighted_loss(Bound.of(draws), Weights(5.0, 0.7), divide_global=False)
    points = [(b, t) for b in range(B) for t in range(T) if COUNTED[b, t]]
    local = sum(equation_19(draws, b, t, 5.0) for b, t in points) / len(points)
    assert loss.item() == pytest.approx(-local + 0.7 * sum(kl_global(draws, b) for b in range(B)) / B)


def test_the_weights_are_one_unless_told(draws):
    bound = Bound.of(draws)
    torch.testing.assert_close(weighted_loss(bound, Weights()), -bound.elbo().sum() / bound.num_points.sum())


@pytest.mark.parametrize("divide_global", [True, False])
def test_the_parts_of_a_batch_add_up_to_its_loss(draws, divide_global):
    bound, weights = Bound.of(draws), Weights(5.0, 0.7)
    parts = [Bound(*(term[cut] for term in bound)) for cut in (slice(0, 1), slice(1, B))]
    total = {"num_points": bound.num_points.sum(), "num_tasks": B, "divide_global": divide_global}
    together = sum(weighted_loss(part, weights, **total) for part in parts)
    torch.testing.assert_close(together, weighted_loss(bound, weights, divide_global=divide_global))


# --- importance weighting ---


def test_the_importance_weighted_estimate_is_the_log_of_a_mean_of_ratios(draws):
    for b in range(B):
        total = 0.0
        for k in range(K):
            z = draws.z_global[k, b]
            ratio = (at(draws.p_global, b).log_prob(z) - at(draws.q_global, b).log_prob(z)).exp().item()
            for t in range(T):
                if COUNTED[b, t]:
                    prior, posterior = at(draws.p_local, k, b, t), at(draws.q_local, k, b, t)
                    inner = 0.0
                    for s in range(S):
                        z = draws.z_local[k, s, b, t]
                        log_ratio = prior.log_prob(z) - posterior.log_prob(z)
                        inner += (draws.log_likelihood[k, s, b, t] + log_ratio).exp().item() / S
                    ratio *= inner
            total += ratio / K
        assert importance_weighted(draws)[b].item() == pytest.approx(math.log(total))


def test_without_latents_the_estimate_is_the_likelihood(draws):
    one = Draws(draws.log_likelihood[:1, :1], COUNTED)
    torch.testing.assert_close(importance_weighted(one), Bound.of(one).log_likelihood)


# --- weights that change with the step ---


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("none", [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [0, 0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1]),
        ("cyclic", [0, 0.5, 1, 1, 0, 0.5, 1, 1, 0, 0.5]),  # a period of 4, ramping for its first half
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_annealing(kind, expected, dtype):
    ramp = [annealing(kind, 4, torch.tensor(step, dtype=dtype)).item() for step in range(10)]
    assert ramp == expected


def test_weights_are_annealed():
    objective = Objective(anneal="linear", anneal_steps=10)
    base = Weights(torch.tensor(1000.0), torch.tensor(2.0))
    local, glob = objective.weights(base, torch.tensor(5.0), torch.zeros(2))
    assert (local.item(), glob.item()) == (500.0, 1.0)


def test_the_local_weight_may_hold_while_the_global_one_rises():
    objective = Objective(anneal="linear", anneal_steps=10, anneal_local=False)
    weights = objective.weights(Weights(3.0, 5.0), torch.tensor(2), torch.zeros(2))
    assert float(weights.beta_local) == 3.0
    assert float(weights.beta_global) == pytest.approx(1.0)


def test_a_constrained_term_is_weighed_by_its_multiplier_and_not_annealed():
    multipliers = torch.tensor([2.0, 3.0]).log()
    settings = {"anneal": "linear", "anneal_steps": 10}
    base, step = Weights(7.0, 8.0), torch.tensor(5.0)
    local, glob = Objective(epsilon_local=1.0, **settings).weights(base, step, multipliers)
    assert (local.item(), glob.item()) == pytest.approx((2.0, 4.0))
    local, glob = Objective(epsilon_global=1.0, **settings).weights(base, step, multipliers)
    assert (local.item(), glob.item()) == pytest.approx((3.5, 3.0))


def test_an_objective_says_whether_it_is_constrained():
    assert not Objective().constrained
    assert Objective(epsilon_local=1.0).constrained
    assert Objective(epsilon_global=1.0).constrained


def test_a_multiplier_rises_while_its_divergence_is_above_the_bound_and_falls_while_below():
    objective = Objective(epsilon_local=1.0, epsilon_global=2.0, multiplier_rate=0.1)
    moved = objective.ascend(torch.tensor([0.5, 0.5]), torch.tensor(1.5), torch.tensor(1.0))
    torch.testing.assert_close(moved, torch.tensor([0.55, 0.45]))  # half an ε above, half an ε below


def test_a_multiplier_without_a_bound_stays():
    start, kl = torch.tensor([0.5, 0.5]), torch.tensor(9.0)
    moved = Objective(epsilon_local=1.0).ascend(start, kl, kl)
    assert moved[0] > 0.5
    assert moved[1] == 0.5
    moved = Objective(epsilon_global=1.0).ascend(start, kl, kl)
    assert moved[0] == 0.5
    assert moved[1] > 0.5


def test_a_huge_divergence_moves_a_multiplier_by_one_step_and_never_without_end():
    objective = Objective(epsilon_local=1.0, epsilon_global=1.0, multiplier_rate=0.1)
    moved = objective.ascend(torch.zeros(2), torch.tensor(1e6), torch.tensor(0.0))
    torch.testing.assert_close(moved, torch.tensor([0.1, -0.1]))
    far = objective.ascend(torch.tensor([12.0, -12.0]), torch.tensor(9.0), torch.tensor(0.0))
    assert far.tolist() == [12.0, -12.0]


@pytest.mark.parametrize("level", ["local", "global"])
def test_dual_ascent_ends_where_the_divergence_meets_its_bound(level):
    """Maximise −(3 − z)² over q(z) = N(m, s²) with KL[q ‖ N(0, 1)] = ε; without the bound it would be far more."""
    epsilon = 0.5
    objective = Objective(multiplier_rate=0.05, **{f"epsilon_{level}": epsilon})
    parameters = torch.zeros(2, dtype=torch.float64, requires_grad=True)  # m and ln s
    optimizer, log_multipliers = torch.optim.Adam([parameters], lr=0.05), torch.zeros(2, dtype=torch.float64)
    prior = DiagonalGaussian(torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    for step in range(400):
        mean, scale = parameters[0], parameters[1].exp()
        q = DiagonalGaussian(mean.view(1, 1), scale.view(1, 1))
        likelihood = -((3 - mean) ** 2 + scale**2).view(1, 1, 1, 1)
        counted = torch.ones(1, 1, dtype=torch.bool)
        both = {"q_local": q.unsqueeze(0).unsqueeze(0), "p_local": prior.unsqueeze(0).unsqueeze(0)}
        bound = Bound.of(
            Draws(likelihood, counted, **(both if level == "local" else {"q_global": q, "p_global": prior}))
        )
        weights = objective.weights(Weights(), torch.tensor(step), log_multipliers)
        optimizer.zero_grad()
        weighted_loss(bound, weights).backward()
        optimizer.step()
        log_multipliers = objective.ascend(
            log_multipliers, bound.kl_local.detach()[0], bound.kl_global.detach()[0]
        )
    reached = bound.kl_local if level == "local" else bound.kl_global
    assert reached.item() == pytest.approx(epsilon, rel=0.05)


# --- what is refused ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta_local": -1.0}, "beta_local must not be negative, got -1.0"),
        ({"beta_global": -0.5}, "beta_global must not be negative, got -0.5"),
        ({"beta_local": math.nan}, "beta_local must not be negative, got nan"),
        ({"epsilon_local": 0.0}, "epsilon_local must be positive, got 0.0; leave it out for no constraint"),
        (
            {"epsilon_global": -1.0},
            "epsilon_global must be positive, got -1.0; leave it out for no constraint",
        ),
        ({"divide_by": "none"}, "divide_by must be 'scored' or 'all', got 'none'"),
        ({"anneal": "cosine"}, "anneal must be 'none', 'linear' or 'cyclic', got 'cosine'"),
        ({"anneal": "linear"}, "annealing needs anneal_steps of at least 1, got 0"),
        ({"anneal": "cyclic", "anneal_steps": -3}, "annealing needs anneal_steps of at least 1, got -3"),
        ({"num_global": 0}, "num_global must be at least 1, got 0; raise it"),
        ({"num_local": 0}, "num_local must be at least 1, got 0; raise it"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Objective(**settings)


def test_settings_at_the_edge_are_allowed():
    edge = Objective(beta_local=0.0, beta_global=0.0, anneal="linear", anneal_steps=1, epsilon_local=1e-9)
    assert edge.constrained
    for mix in (0.0, 1.0):
        assert Objective(kind="gsnn", mix=mix, multiplier_rate=0.0, late_steps=0, free_bits=0.0).mix == mix
    for num_global, num_local in ((1, 2), (2, 1), (2, 2)):
        assert Objective(kind="iw", num_global=num_global, num_local=num_local).num_local == num_local


@pytest.mark.parametrize("rate", [-0.1, math.inf, math.nan])
def test_a_rate_of_multipliers_out_of_range_is_refused(rate):
    with pytest.raises(ValueError, match="multiplier_rate must be finite and not negative"):
        Objective(multiplier_rate=rate)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_takes_the_settings_that_it_has_a_term_for(kind):
    """A setting alone; NPML has weights of the local ratios if it proposes z_*, and none otherwise."""
    several = {"kind": kind, "num_global": 2, "num_local": 2}
    Objective(**several)
    only_bounds = (
        {"free_bits": 0.1},
        {"epsilon_local": 1.0},
        {"epsilon_global": 1.0},
        {"divide_global": False},
    )
    local = {"beta_local": 2.0}, {"anneal": "linear", "anneal_steps": 3}, {"late_steps": 1}
    taken = {"elbo": 3, "gsnn": 3, "iw": 2, "npml": 1, "si": 0}[kind]
    cases = [(each, taken == 3) for each in only_bounds] + [(each, taken >= 1) for each in local]
    cases += [({"beta_global": 2.0}, taken >= 2)]
    if kind == "npml":
        cases += [({**each, "propose_local": False}, False) for each in local]
    for settings, is_taken in cases:
        if is_taken:
            Objective(**several, **settings)
        else:
            with pytest.raises(ValueError, match=f"'{kind}' has no term for"):
                Objective(**several, **settings)


def test_each_kind_says_which_draws_it_needs():
    made = {kind: Objective(kind=kind, num_local=2) for kind in KINDS}
    assert {kind: (each.uses_posterior, each.uses_prior) for kind, each in made.items()} == {
        "elbo": (True, False),
        "iw": (True, False),
        "npml": (False, True),
        "gsnn": (True, True),
        "si": (True, False),
    }


def test_the_defaults_are_the_papers_and_stay():
    objective = Objective()
    assert asdict(objective) == {
        "beta_local": 1.0,
        "beta_global": 1.0,
        "anneal": "none",
        "anneal_steps": 0,
        "anneal_local": True,
        "epsilon_local": None,
        "epsilon_global": None,
        "multiplier_rate": 0.01,
        "divide_global": True,
        "divide_by": "scored",
        "num_global": 1,
        "num_local": 1,
        "kind": "elbo",
        "mix": 0.5,
        "free_bits": 0.0,
        "propose_local": True,
        "late_local": 100.0,
        "late_steps": 0,
        "common_steps": 0,
    }
    with pytest.raises(FrozenInstanceError):
        objective.beta_local = 2.0
