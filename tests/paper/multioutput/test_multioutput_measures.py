"""What is measured of a model of a table, against calculations by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm
from tiny_tables import smooth_rows

from dsvnp.estimation import log_likelihood
from dsvnp.models import MODELS, Architecture, NeuralProcess, make_model
from dsvnp.paper.datasets.catalogue import DataTable
from dsvnp.paper.experiment import Drawn
from dsvnp.paper.measuring import FIXED, Likelihoods
from dsvnp.paper.multioutput.folds import RowPortions, Split, make_split
from dsvnp.paper.multioutput.measures import (
    SIGMA_FLOOR,
    batches,
    collect,
    measure_net,
    measure_parts,
    predict_rows,
    residual_scale,
    row_nlls,
)
from dsvnp.predictive import GaussianPredictive


@pytest.fixture
def split() -> Split:
    rows = smooth_rows(61, 3, 2)
    table = DataTable("made", rows[:, :3], rows[:, 3:], (), (), "")
    return make_split(table, 0, RowPortions(0.2, 5), torch.device("cpu"))


def one_gaussian(mean: torch.Tensor, scale: torch.Tensor) -> GaussianPredictive:
    return GaussianPredictive(mean[None, None, None], scale)


def net(name: str, likelihood: str = "squared-error") -> NeuralProcess:
    arch = Architecture(
        3, 2, likelihood=likelihood, embed_x="mlp", embed_x_hidden=(8,), encoder=(), dim_lat=4, decoder=(8,)
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return make_model(name, arch)


def test_errors_nll_and_coverage_of_known_gaussians(split):
    y = split.test.y
    offset, sigma = torch.tensor([0.5, -1.0]), torch.tensor([0.4, 2.0])
    measured = measure_parts([("test", split.task(split.test), one_gaussian(y + offset, sigma))], split)
    std, span = split.std.double().numpy(), split.span.double().numpy()
    squares = offset.double().numpy() ** 2
    scores = measured.scores
    assert scores["mse", "test", "standard"] == pytest.approx(squares.mean(), rel=1e-5)
    assert scores["mse", "test", "raw"] == pytest.approx((squares * std**2).mean(), rel=1e-5)
    assert scores["mse", "test", "minmax"] == pytest.approx((squares * (std / span) ** 2).mean(), rel=1e-5)
    assert measured.by_output == pytest.approx(squares.tolist(), rel=1e-5)
    by_hand = -norm.logpdf(offset.numpy(), scale=sigma.numpy()).sum()
    assert scores["nll", "test", "nats/point"] == pytest.approx(by_hand, rel=1e-5)
    # 0.5 is 1.25 σ off, −1.0 is 0.5 σ off: both are inside the central 90 %, one of them the central 50 %.
    assert scores["coverage-90", "test", "share"] == 1.0
    assert measured.coverage[4] == 0.5


@pytest.fixture
def graded() -> Split:
    """A split whose two outputs take the values 0, 1 and 3."""
    rows = smooth_rows(61, 3, 2)
    grades = np.array([0.0, 1.0, 3.0])[np.digitize(rows[:, 3:], [-0.3, 0.3])]
    return make_split(
        DataTable("made", rows[:, :3], grades, (), (), ""), 0, RowPortions(0.2, 5), torch.device("cpu")
    )


def test_few_values_have_probabilities_of_intervals_in_place_of_densities(graded):
    mean, std = (0.3 - graded.test.y).abs(), graded.std
    y = graded.test.y.double().numpy()
    scores = measure_parts([("test", graded.task(graded.test), one_gaussian(mean, std))], graded).scores
    assert not {"nll", "nll-each"} & {name for name, _, _ in scores}
    grades = np.sort(np.unique(y[:, 0])), np.sort(np.unique(y[:, 1]))
    total = []
    for d in (0, 1):
        inner = (grades[d][1:] + grades[d][:-1]) / 2
        ends = np.concatenate([[-np.inf], inner, [np.inf]])
        place = np.searchsorted(grades[d], y[:, d])
        dist = norm(mean[:, d].double().numpy(), std[d].item())
        total.append(-np.log(dist.cdf(ends[place + 1]) - dist.cdf(ends[place])))
    assert scores["nll-interval", "test", "nats/point"] == pytest.approx(np.sum(total, 0).mean(), rel=1e-4)
    assert scores["nll-interval-each", "test", "nats/output"] == pytest.approx(np.mean(total), rel=1e-4)


def test_likelihoods_of_intervals_double_their_draws(graded):
    how = Likelihoods("suffice", tolerance=1e-9, max_draws=64)
    measured = measure_net(net("np", "gaussian"), graded, (4, 1), 10, how)
    name = ("nll-interval", "test", "nats/point")
    assert measured.drawn[name][:3] == ("prior", 64, False)
    predictive = predict_rows(net("np", "gaussian"), graded.task(graded.test), (64, 1))
    by_hand = row_nlls(predictive, graded.task(graded.test), graded.edges)["nll-interval"].mean()
    assert measured.scores[name] == pytest.approx(float(by_hand), rel=1e-5)
    assert measure_net(net("cnp", "gaussian"), graded, (4, 1), 10, how).drawn[name].method == "exact"


def test_sigma_is_the_rms_of_held_out_residuals_and_adds_to_the_spread_of_the_draws(split):
    model = net("np")
    task = split.task(split.held_out)
    mean = predict_rows(model, task, (8, 1)).mean[0]
    by_hand = ((split.held_out.y - mean) ** 2).mean(0).sqrt()
    measured = measure_net(model, split, (8, 1), 10)
    torch.testing.assert_close(model.likelihood.sigma, by_hand)
    predictive = predict_rows(model, split.task(split.test), (8, 1))
    y = split.test.y[None].double().numpy()
    parts = norm.pdf(y, predictive.loc[:, 0].double().numpy(), by_hand.double().numpy()).prod(-1)  # [K, 1, T]
    assert measured.scores["nll", "test", "nats/point"] == pytest.approx(
        -np.log(parts.mean(0)).mean(), rel=1e-4
    )


def test_a_learned_sigma_is_left_alone_and_has_no_squared_error_to_read_off(split):
    scores = measure_net(net("dsvnp", "gaussian"), split, (4, 1), 10).scores
    assert ("mse", "test", "standard") in scores
    assert not any("posterior" in part for _, part, _ in scores)


def test_likelihoods_from_draws_that_suffice(split):
    model, how = net("np", "gaussian"), Likelihoods("suffice", max_draws=64)
    measured, fixed = (measure_net(model, split, (4, 1), 10, each) for each in (how, FIXED))
    nll, mse = ("nll", "test", "nats/point"), ("mse", "test", "standard")
    found = log_likelihood(model, split.task(split.test), max_draws=64)
    assert measured.scores[nll] == pytest.approx(-found.mean, rel=1e-6)
    assert measured.drawn[nll] == Drawn.of(found)
    assert measured.scores[mse] == fixed.scores[mse]
    rows, _ = collect("made", [measured, measured])
    assert {row.metric for row in rows if row.drawn} == {"nll", "nll-each"}
    each = log_likelihood(model, split.task(split.test), "output", max_draws=64)
    assert measured.scores["nll-each", "test", "nats/output"] == pytest.approx(-each.mean, rel=1e-6)
    rows, _ = collect("made", [fixed])
    assert not any(row.drawn for row in rows)


def test_sigma_has_a_floor():
    assert residual_scale(torch.zeros(1, 4, 2), torch.zeros(1, 4, 2)).tolist() == pytest.approx(
        [SIGMA_FLOOR] * 2
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_all_parts(split, name):
    measured = measure_net(net(name), split, (4, 1), 10)
    parts = ("test", "train", "test-context", "test-own")
    expected = {("mse", part, unit) for part in parts for unit in ("standard", "raw", "minmax")}
    expected |= {("mse", f"{part}-posterior", "standard") for part in ("test", "train")}
    for part in ("test", "test-context"):
        expected |= {("nll", part, "nats/point"), ("nll-each", part, "nats/output")}
        expected.add(("coverage-90", part, "share"))
    assert measured.scores.keys() == expected
    assert all(np.isfinite(value) for value in measured.scores.values())


def test_parts_are_measured_where_they_say(split):
    model, draws = net("attnnp"), (4, 1)
    scores = measure_net(model, split, draws, 10).scores

    def error(context, targets) -> float:
        task = batches_of_one(context, targets)
        return float((predict_rows(model, task, draws).mean[0] - targets.y).square().mean())

    def batches_of_one(context, targets):
        return type(split.task(split.test)).from_sets(context.x[None], context.y[None], targets.x[None])

    rest = sorted(set(range(len(split.test.x))) - set(split.test_context.tolist()))
    context = split.train.take(split.context)
    assert scores["mse", "test", "standard"] == pytest.approx(error(context, split.test), rel=1e-5)
    assert scores["mse", "train", "standard"] == pytest.approx(error(context, split.train), rel=1e-5)
    others = split.test.take(torch.tensor(rest))
    own = split.test.take(split.test_context)
    assert scores["mse", "test-context", "standard"] == pytest.approx(error(own, others), rel=1e-5)


def test_posterior_reads_the_labels_of_its_targets(split):
    model = net("dsvnp")
    task = batches(split.test, 10, 5)
    with torch.no_grad():
        by_hand = -model.objective(task, noise={}).log_likelihood.sum() / task.mask_target.sum()
    scores = measure_net(model, split, (4, 1), 10).scores
    assert scores["mse", "test-posterior", "standard"] == pytest.approx(float(by_hand), rel=1e-5)


def test_batches_hold_rows_in_order_with_their_first_as_context(split):
    task = batches(split.test, 10, 3)
    assert task.x_target.shape == (3, 10, 3)
    assert torch.equal(task.y_target.flatten(0, 1), split.test.y[:30])
    assert task.in_context.sum(1).tolist() == [3, 3, 3]
    assert task.in_context[:, :3].all()


def test_values_stay_in_the_order_of_the_splits(split):
    measured = [
        measure_parts(
            [("test", split.task(split.test), one_gaussian(split.test.y + shift, split.std))], split
        )
        for shift in (3.0, 1.0, 2.0)
    ]
    rows, extras = collect("made", measured)
    (mse,) = [row for row in rows if (row.metric, row.unit) == ("mse", "standard")]
    assert mse.values == pytest.approx((9.0, 1.0, 4.0), rel=1e-4)
    assert [len(extras[name]) for name in ("coverage", "by_output", "levels")] == [3, 3, 9]
