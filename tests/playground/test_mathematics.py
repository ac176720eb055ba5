"""The page's Gaussian processes, mechanics and sums, against scikit-learn, SciPy and the library."""

import json
from itertools import chain

import numpy as np
import pytest
import torch
from node import HERE, needs_node, run_node
from scipy import special, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, Matern

from dsvnp.paper.cartpole.physics import CartPole, rk4_step
from dsvnp.predictive import GaussianPredictive
from studies.playground_tasks import changes
from studies.playground_training import domains

pytestmark = needs_node
KERNELS = {
    "rbf": RBF(0.5),
    "matern52": Matern(0.5, nu=2.5),
    # scikit-learn's periodic kernel is exp(−2 sin²(π d / p) / ℓ²) as well
    "periodic": ExpSineSquared(0.5, 1.2),
}
PROCESS = {"kernel": "rbf", "length": 0.5, "scale": 0.8, "period": 1.2, "noise": 0.1}
POINTS = [(-1.2, 0.3), (-0.4, 1.1), (0.3, -0.2), (1.5, 0.6)]
PLACES = np.linspace(-2.5, 2.5, 41)
CART = domains()["cartpole"]
GRID = np.linspace(0.2, 1.6, 57)


def given():
    random = np.random.default_rng(0)
    mixture = {"K": 3, "S": 2, "T": 4, "D": 2}
    for name in ("mean", "scale"):
        mixture[name] = random.uniform(0.2, 1.5, 48).tolist()
    states = random.normal(0, 1, (5, 4))
    return {
        "gp": {
            "points": [{"x": x, "y": y} for x, y in POINTS],
            "places": PLACES.tolist(),
            "process": PROCESS,
            "kernels": list(KERNELS),
            "count": 4000,
        },
        "domain": domains()["curves"],
        "cart": CART,
        "tails": [[3.0, 4], [12.0, 4], [18.0, 5], [9.0, 12]],
        "mixture": mixture,
        "erf": np.linspace(-7, 7, 1001).tolist(),
        "half": [0, 1, 0x3C00, 0xBC01, 0x7BFF, 0x8400, 0x7C00, 0xFC00, 0x7C01],
        "states": [
            {"state": s.tolist(), "force": 3.0 * i - 5, "mass": 0.3 + 0.2 * i} for i, s in enumerate(states)
        ],
        "masses": [0.25, 0.7, 1.5],
        "transitions": [
            {"state": [0, *s[1:].tolist()], "force": 4.0, "measured": random.normal(0.3, 0.2, 2).tolist()}
            for s in 0.3 * states
        ],
        "grid": GRID.tolist(),
    }


@pytest.fixture(scope="module")
def asked():
    return given()


@pytest.fixture(scope="module")
def found(asked, tmp_path_factory):
    path = tmp_path_factory.mktemp("checks") / "given.json"
    path.write_text(json.dumps(asked))
    return run_node(HERE / "checks.mjs", str(path))


def posterior(kernel, scale=0.8, noise=0.1):
    """Mean and covariance of f by scikit-learn."""
    x, y = np.array(POINTS).T
    process = GaussianProcessRegressor(scale**2 * kernel, alpha=noise**2, optimizer=None)
    return process.fit(x[:, None], y).predict(PLACES[:, None], return_cov=True)


@pytest.mark.parametrize("name", KERNELS)
def test_exact_answers_are_scikit_learns(found, name):
    got = found["exact"][list(KERNELS).index(name)]
    mean, covariance = posterior(KERNELS[name])
    np.testing.assert_allclose(got["mean"], mean, atol=1e-6)
    np.testing.assert_allclose(got["epistemic"], np.diag(covariance), atol=1e-6)
    np.testing.assert_allclose(got["aleatoric"], 0.01)


def test_functions_have_the_moments_of_the_posterior_and_of_the_prior(found):
    mean, covariance = posterior(KERNELS["rbf"])
    drawn = np.reshape(found["functions"], (4000, -1))
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.06)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.06)
    prior = np.reshape(found["prior"], (4000, -1))
    np.testing.assert_allclose(np.cov(prior.T), 0.64 * KERNELS["rbf"](PLACES[:, None]), atol=0.06)


def test_the_average_weighs_kernels_by_their_evidence(found):
    x, y = np.array(POINTS).T
    logs, means, variances, noises = [], [], [], []
    for one in found["processes"]:
        kinds = {
            "rbf": RBF(one["length"]),
            "matern52": Matern(one["length"], nu=2.5),
            "periodic": ExpSineSquared(one["length"], one["period"]),
        }
        kernel = one["scale"] ** 2 * kinds[one["kernel"]]
        alpha = one["noise"] ** 2
        process = GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None).fit(x[:, None], y)
        mean, std = process.predict(PLACES[:, None], return_std=True)
        logs.append(process.log_marginal_likelihood_value_ + np.log(one["prior"]))
        means.append(mean), variances.append(std**2), noises.append(alpha)
    weights = special.softmax(logs)[:, None]
    mean = (weights * means).sum(0)
    got = found["averaged"]
    np.testing.assert_allclose(got["mean"], mean, atol=2e-3)  # the page leaves the least probable ones out
    np.testing.assert_allclose(
        got["epistemic"], (weights * (variances + np.square(means))).sum(0) - mean**2, atol=2e-3
    )
    np.testing.assert_allclose(got["aleatoric"], (weights[:, 0] * noises).sum(), atol=2e-4)
    assert sum(one["prior"] for one in found["processes"]) == pytest.approx(1)


def test_tails_of_chi_square(found, asked):
    expected = [stats.chi2.sf(value, n) for value, n in asked["tails"]]
    np.testing.assert_allclose(found["tails"], expected, rtol=0.1)


def test_moments_are_the_librarys(found, asked):
    mixture = asked["mixture"]
    loc, scale = (torch.tensor(mixture[k]).double().reshape(3, 2, 1, 4, 2) for k in ("mean", "scale"))
    predictive = GaussianPredictive(loc, scale)
    for name in ("mean", "epistemic", "aleatoric"):
        np.testing.assert_allclose(found["moments"][name], getattr(predictive, name).flatten(), atol=1e-6)


def test_special_functions_and_half_precision(found, asked):
    np.testing.assert_allclose(found["erf"], special.erf(asked["erf"]), atol=1e-12)
    expected = np.array(asked["half"], dtype=np.uint16).view(np.float16).astype(float)
    np.testing.assert_array_equal(
        [float(text.replace("Infinity", "inf")) for text in found["half"]], expected
    )


def test_normal_numbers_are_normal_and_stay_so_while_they_turn(found):
    for name in ("normals", "turned"):
        assert stats.kstest(found[name], "norm").pvalue > 0.01
    together = np.corrcoef(found["normals"], found["turned"])[0, 1]
    assert together == pytest.approx(np.cos(0.7), abs=0.03)


def test_the_cart_moves_as_in_the_library(found, asked):
    for got, one in zip(found["steps"], asked["states"], strict=True):
        state = torch.tensor(one["state"], dtype=torch.float64)
        expected = rk4_step(
            CartPole(torch.tensor(one["mass"], dtype=torch.float64), 0.1), state, one["force"]
        )
        np.testing.assert_allclose(got, expected, atol=1e-12)
    np.testing.assert_allclose(found["masses"], asked["masses"], atol=1e-6)


def test_the_posterior_of_the_mass(found, asked):
    units = torch.tensor(CART["units"], dtype=torch.float64)
    inputs = (
        torch.tensor([[*t["state"][1:], t["force"]] for t in asked["transitions"]], dtype=torch.float64)
        / units
    )
    measured = torch.tensor([t["measured"] for t in asked["transitions"]], dtype=torch.float64)
    logs = [
        stats.norm.logpdf(measured, changes(inputs, torch.tensor(mass)), CART["sensor"]).sum()
        for mass in GRID
    ]
    density = special.softmax(logs) / (GRID[1] - GRID[0])
    np.testing.assert_allclose(found["posterior"], density, atol=1e-6)


def test_anchors_cover_the_interval_and_blocks_lie_between_earlier_ones(found):
    blocks = found["anchors"]
    assert sorted(chain(*blocks)) == np.linspace(-2, 2, 17).tolist()
    for i, block in enumerate(blocks[5:], start=5):
        earlier = np.sort([*chain(*blocks[:i])])
        gaps = np.searchsorted(earlier, block)
        assert len(set(gaps)) == len(block)  # no two of a block within one gap
