"""Metrics against scikit-learn, against loops that say what is meant, and against exact values."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import average_precision_score, mean_squared_error, roc_auc_score, roc_curve
from torch import Tensor

from dsvnp.metrics import (
    accuracy,
    aupr,
    auroc,
    calibration_curve,
    classified,
    coverage,
    crps,
    empirical_cdf,
    energy_score,
    entropies,
    expected_calibration_error,
    fpr_at_95,
    joint_nll,
    nll,
    nll_each,
    pit,
    pit_coverage,
    point_crps,
    point_energy_score,
    point_mask,
    point_nll,
    point_nll_each,
    point_squared_error,
    reliability,
    rmse,
    squared_error,
)
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive
from dsvnp.task import Task

K, S, B, T, D, CLASSES = 3, 2, 4, 6, 2, 5
SIZES = [6, 4, 5, 1]  # filled targets of each task
CONTEXTS = [2, 0, 5, 0]  # of which in the context: some, none, all, none


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def task_of(y: Tensor) -> Task:
    """A ragged batch; what lies in unfilled slots must never matter, so callers put traps there."""
    slots = torch.arange(T)
    mask, in_context = slots < torch.tensor(SIZES)[:, None], slots < torch.tensor(CONTEXTS)[:, None]
    x = torch.zeros(B, T, 1)
    return Task(x, y, x, in_context, mask, y_target=y, in_context=in_context)


def counted(points: str) -> list[tuple[int, int]]:
    first = CONTEXTS if points == "P" else [0] * B
    return [(b, t) for b in range(B) for t in range(first[b], SIZES[b])]


def regression() -> tuple[GaussianPredictive, Task]:
    """Ragged tasks; some outputs are missing, and at (0, 3) both are."""
    y = normal(B, T, D, seed=1)
    y[0, 1, 0] = y[0, 4, 1] = y[1, 2, 0] = y[0, 3, 0] = y[0, 3, 1] = math.nan
    loc, scale = normal(K, S, B, T, D, seed=2), 0.5 + normal(K, S, B, T, D, seed=3).abs()
    for b, size in enumerate(SIZES):
        y[b, size:] = math.inf
        loc[:, :, b, size:] = math.nan
    return GaussianPredictive(loc, scale), task_of(y)


def classification() -> tuple[CategoricalPredictive, Task]:
    """Ragged tasks with a label that is no class in each unfilled slot."""
    labels = torch.randint(CLASSES, (B, T, 1), generator=torch.Generator().manual_seed(4))
    for b, size in enumerate(SIZES):
        labels[b, size:] = -1
    return CategoricalPredictive((2 * normal(K, S, B, T, CLASSES, seed=5)).log_softmax(-1)), task_of(labels)


def known_outputs(y: Tensor, b: int, t: int) -> list[int]:
    return [d for d in range(D) if not math.isnan(y[b, t, d])]


def density(predictive: GaussianPredictive, y: Tensor, b: int, t: int, k: int, s: int) -> float:
    """p(y_t | z_G^k, z_t^s) of the known outputs."""
    at = (k, s, b, t)
    return math.prod(
        norm.pdf(y[b, t, d], predictive.loc[at][d], predictive.scale[at][d]) for d in known_outputs(y, b, t)
    )


# --- which points ---


@pytest.mark.parametrize("points", ["J", "P"])
def test_mask_counts_what_the_letters_say(points: str) -> None:
    mask = point_mask(regression()[1], points)
    assert [(b, t) for b in range(B) for t in range(T) if mask[b, t]] == counted(points)


def test_default_is_P() -> None:
    predictive, task = regression()
    assert torch.equal(point_mask(task), point_mask(task, "P"))
    for metric in (nll, squared_error, rmse, point_nll, point_squared_error, pit, joint_nll):
        torch.testing.assert_close(metric(predictive, task), metric(predictive, task, "P"))
        assert not torch.equal(metric(predictive, task, "J"), metric(predictive, task, "P"))


def test_without_flags_no_target_is_in_the_context() -> None:
    task = replace(regression()[1], in_context=None)
    assert torch.equal(point_mask(task, "P"), task.mask_target)


def test_flags_in_unfilled_slots_do_not_matter() -> None:
    task = regression()[1]
    flagged = replace(task, in_context=task.in_context | ~task.mask_target)
    for points in ("J", "P"):
        assert torch.equal(point_mask(flagged, points), point_mask(task, points))


def test_unknown_letter() -> None:
    with pytest.raises(ValueError, match=r"'J'.*'P'.*got 'all'"):
        point_mask(regression()[1], "all")


# --- likelihood and error ---


@pytest.mark.parametrize("points", ["J", "P"])
def test_nll_against_loops(points: str) -> None:
    predictive, task = regression()
    expected = []
    for b, t in counted(points):
        if known_outputs(task.y_target, b, t):
            each = [density(predictive, task.y_target, b, t, k, s) for k in range(K) for s in range(S)]
            expected.append(-math.log(sum(each) / len(each)))
    assert len(expected) == len(counted(points)) - 1  # the point without any output is left out
    np.testing.assert_allclose(point_nll(predictive, task, points), expected)
    np.testing.assert_allclose(nll(predictive, task, points), np.mean(expected))
    assert nll(predictive, task, points).shape == ()


@pytest.mark.parametrize("points", ["J", "P"])
def test_joint_nll_against_loops(points: str) -> None:
    predictive, task = regression()
    expected = []
    for task_index in range(B):
        per_draw = [
            math.prod(
                sum(density(predictive, task.y_target, b, t, k, s) for s in range(S)) / S
                for b, t in counted(points)
                if b == task_index
            )
            for k in range(K)
        ]
        expected.append(-math.log(sum(per_draw) / K))
    np.testing.assert_allclose(joint_nll(predictive, task, points), expected, atol=1e-14)


@pytest.mark.parametrize("points", ["J", "P"])
def test_scores_of_each_output_against_loops(points: str) -> None:
    predictive, task = regression()
    y = task.y_target
    nlls, scores = [], []
    for b, t in counted(points):
        for d in known_outputs(y, b, t):
            parts = [
                (predictive.loc[k, s, b, t, d], predictive.scale[k, s, b, t, d])
                for k in range(K)
                for s in range(S)
            ]
            nlls.append(-math.log(np.mean([norm.pdf(y[b, t, d], loc, scale) for loc, scale in parts])))
            scores.append(predictive.crps(torch.where(torch.isfinite(y), y, 0.0))[b, t, d].item())
    np.testing.assert_allclose(point_nll_each(predictive, task, points), nlls, rtol=1e-10)
    assert nll_each(predictive, task, points).item() == pytest.approx(np.mean(nlls), rel=1e-10)
    np.testing.assert_allclose(point_crps(predictive, task, points), scores, rtol=1e-10)
    assert crps(predictive, task, points).item() == pytest.approx(np.mean(scores), rel=1e-10)


@pytest.mark.parametrize("points", ["J", "P"])
def test_energy_score_against_loops(points: str) -> None:
    predictive, task = regression()
    samples = predictive.sample(7, torch.Generator().manual_seed(3))
    scores = []
    for b, t in counted(points):
        if known := known_outputs(task.y_target, b, t):
            x = samples[:, b, t, known].numpy()
            near = np.mean([np.linalg.norm(a - task.y_target[b, t, known].numpy()) for a in x])
            apart = [np.linalg.norm(x[i] - x[j]) for i in range(7) for j in range(7) if i != j]
            scores.append(near - 0.5 * np.mean(apart))
    chosen = {"num_samples": 7, "generator": torch.Generator().manual_seed(3)}
    values = point_energy_score(predictive, task, points, **chosen)
    np.testing.assert_allclose(values, scores, rtol=1e-10)
    chosen["generator"].manual_seed(3)
    assert energy_score(predictive, task, points, **chosen).item() == pytest.approx(np.mean(scores))


def test_the_worth_of_dependence_is_the_gap_to_the_outputs_by_themselves() -> None:
    predictive, task = regression()
    whole = replace(task, y_target=torch.where(torch.isfinite(task.y_target), task.y_target, 0.0))
    one = predictive.map(lambda array: array[:1, :1])  # a single component: outputs are independent
    torch.testing.assert_close(D * nll_each(one, whole), nll(one, whole))
    classes, labelled = classification()
    torch.testing.assert_close(point_nll_each(classes, labelled), point_nll(classes, labelled))
    for metric in (crps, energy_score):
        with pytest.raises(TypeError, match="CategoricalPredictive"):
            metric(classes, labelled)


def test_nll_of_labels() -> None:
    predictive, task = classification()
    probs = predictive.log_probs.exp().mean((0, 1))
    expected = [-math.log(probs[b, t, task.y_target[b, t, 0]]) for b, t in counted("P")]
    np.testing.assert_allclose(point_nll(predictive, task, "P"), expected)
    one_draw = CategoricalPredictive(predictive.log_probs[:1, :1])
    per_task = torch.zeros(B, dtype=torch.float64).index_add(
        0, torch.tensor([b for b, _ in counted("P")]), point_nll(one_draw, task, "P")
    )
    torch.testing.assert_close(joint_nll(one_draw, task, "P"), per_task)


@pytest.mark.parametrize("points", ["J", "P"])
def test_squared_error_against_loops(points: str) -> None:
    predictive, task = regression()
    mean = predictive.loc.mean((0, 1))
    pairs = [
        (float(task.y_target[b, t, d]), float(mean[b, t, d]))
        for b, t in counted(points)
        for d in known_outputs(task.y_target, b, t)
    ]
    expected = mean_squared_error(*zip(*pairs, strict=True))
    np.testing.assert_allclose(
        point_squared_error(predictive, task, points), [(a - b) ** 2 for a, b in pairs]
    )
    np.testing.assert_allclose(squared_error(predictive, task, points), expected)
    np.testing.assert_allclose(rmse(predictive, task, points), math.sqrt(expected))


def test_exact_values() -> None:
    """One N(0, 2²) and y = 2: ln 2 + ½ ln 2π + ½, squared error 4, PIT Φ(1)."""
    zero = torch.zeros(1, 1, 1, 1, 1, dtype=torch.float64)
    predictive, x = GaussianPredictive(zero, zero + 2), zero[0, 0]
    task = Task.from_sets(x, x, x, y_target=x + 2)
    exact = math.log(2) + 0.5 * math.log(2 * math.pi) + 0.5
    assert nll(predictive, task).item() == pytest.approx(exact)
    assert joint_nll(predictive, task).item() == pytest.approx(exact)
    assert squared_error(predictive, task).item() == pytest.approx(4)
    assert rmse(predictive, task).item() == pytest.approx(2)
    assert pit(predictive, task).item() == pytest.approx(norm.cdf(1))


def test_batches_concatenate() -> None:
    predictive, task = regression()
    for values in (point_nll, point_squared_error, pit):
        parts = []
        for b in range(B):
            part = Task(**{name: value[b : b + 1] for name, value in task.tensors().items()})
            one = GaussianPredictive(predictive.loc[:, :, b : b + 1], predictive.scale[:, :, b : b + 1])
            parts.append(values(one, part, "P"))
        assert len(parts[2]) == 0  # a task all of whose points are context
        torch.testing.assert_close(torch.cat(parts), values(predictive, task, "P"))


def test_a_nan_in_a_prediction_shows() -> None:
    predictive, task = regression()
    predictive.loc[0, 0, 1, 1, 1] = math.nan
    assert nll(predictive, task).isnan()
    assert squared_error(predictive, task).isnan()
    assert coverage(predictive, task.y_target, 1.0, task.mask_target) < 1


def test_no_point_gives_nan() -> None:
    predictive, task = regression()
    everything = replace(task, in_context=task.mask_target)
    assert nll(predictive, everything, "P").isnan()
    assert rmse(predictive, everything, "P").isnan()
    assert torch.equal(joint_nll(predictive, everything, "P"), torch.zeros(B, dtype=torch.float64))


def test_refuses_what_cannot_be_scored() -> None:
    predictive, task = regression()
    with pytest.raises(ValueError, match="no y_target"):
        nll(predictive, replace(task, y_target=None))
    narrow = replace(task, y_target=task.y_target[..., :1])  # would be broadcast over the outputs
    for metric in (nll, joint_nll, squared_error, pit):
        with pytest.raises(ValueError, match=r"\(4, 6, 1\).*\(4, 6, 2\)"):
            metric(predictive, narrow)
    with pytest.raises(ValueError, match=r"\(4, 6, 1\).*\(4, 6, 2\)"):
        coverage(predictive, narrow.y_target, 0.9)
    classes, labelled = classification()
    for metric in (squared_error, rmse, pit):
        with pytest.raises(TypeError, match="CategoricalPredictive"):
            metric(classes, labelled)
    with pytest.raises(TypeError, match="CategoricalPredictive"):
        coverage(classes, labelled.y_target, 0.9)
    with pytest.raises(TypeError, match="GaussianPredictive"):
        classified(predictive, task)


# --- calibration of a regression ---


def mixture_cdf(predictive: GaussianPredictive, y: float, at: tuple[int, int, int]) -> float:
    return np.mean(
        [
            norm.cdf(y, predictive.loc[k, s][at], predictive.scale[k, s][at])
            for k in range(K)
            for s in range(S)
        ]
    )


@pytest.mark.parametrize("points", ["J", "P"])
def test_pit_against_loops(points: str) -> None:
    predictive, task = regression()
    expected = [
        mixture_cdf(predictive, float(task.y_target[b, t, d]), (b, t, d))
        for b, t in counted(points)
        for d in known_outputs(task.y_target, b, t)
    ]
    np.testing.assert_allclose(pit(predictive, task, points), expected)


def test_coverage_against_quantiles() -> None:
    """Coverage counts the outputs between the two quantiles, whatever the shape of the mixture."""
    predictive, task = regression()
    for level in (0.1, 0.5, 0.8, 0.95):
        low, high = predictive.quantile([(1 - level) / 2, (1 + level) / 2])
        inside = [
            bool(low[b, t, d] <= task.y_target[b, t, d] <= high[b, t, d])
            for b, t in counted("J")
            for d in known_outputs(task.y_target, b, t)
        ]
        got = coverage(predictive, task.y_target, level, task.mask_target)
        assert got.item() == pytest.approx(np.mean(inside))
        assert calibration_curve(predictive, task, [level], "J").empirical.item() == pytest.approx(got.item())


def test_coverage_without_mask_counts_all_known_outputs() -> None:
    predictive = GaussianPredictive(torch.zeros(1, 1, 1, 4, 1), torch.ones(()))
    y = torch.tensor([0.0, 0.5, 3.0, math.nan]).reshape(1, 4, 1)
    assert coverage(predictive, y, 0.9).item() == pytest.approx(2 / 3)
    assert coverage(predictive, y, 0.9, torch.tensor([[True, False, True, True]])).item() == 0.5


def test_calibration_curve_of_known_models() -> None:
    """The right model lies on the diagonal; with σ twice too small the curve is 2 Φ(q/2) − 1."""
    y = normal(50, 400, 1, seed=6)
    task = Task.from_sets(y[:, :1], y[:, :1], y, y_target=y)
    levels = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    right = GaussianPredictive(torch.zeros(1, 1, *y.shape, dtype=y.dtype), torch.ones((), dtype=y.dtype))
    curve = calibration_curve(right, task, levels)
    assert torch.equal(curve.nominal, levels)
    torch.testing.assert_close(curve.empirical, levels, atol=0.012, rtol=0)  # 3.4 standard deviations
    proud = calibration_curve(GaussianPredictive(right.loc, 0.5 * right.scale), task, levels).empirical
    exact = torch.from_numpy(2 * norm.cdf(0.5 * norm.ppf((1 + levels.numpy()) / 2)) - 1)
    torch.testing.assert_close(proud, exact, atol=0.012, rtol=0)


def test_calibration_curve_takes_the_points() -> None:
    predictive, task = regression()
    for points in ("J", "P"):
        curve = calibration_curve(predictive, task, [0.3, 0.6], points)
        torch.testing.assert_close(curve.empirical, pit_coverage(pit(predictive, task, points), [0.3, 0.6]))
    assert not torch.equal(
        calibration_curve(predictive, task, [0.3, 0.6], "J").empirical,
        calibration_curve(predictive, task, [0.3, 0.6], "P").empirical,
    )


def test_pit_coverage_is_of_the_centre() -> None:
    values = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0], dtype=torch.float64)
    got = pit_coverage(values, [0.0, 0.5, 0.9, 1.0])  # intervals {½}, [¼, ¾], [0.05, 0.95], [0, 1]
    torch.testing.assert_close(got, torch.tensor([1, 3, 5, 7], dtype=torch.float64) / 7)
    for level in (-0.1, 1.1, 90):
        with pytest.raises(ValueError, match="between 0 and 1"):
            pit_coverage(values, [level])


# --- classes ---


def test_classified_selects_points_and_averages_draws() -> None:
    predictive, task = classification()
    for points in ("J", "P"):
        probs, labels = classified(predictive, task, points)
        rows = counted(points)
        assert labels.tolist() == [int(task.y_target[b, t, 0]) for b, t in rows]
        mixed = predictive.log_probs.exp().mean((0, 1))
        torch.testing.assert_close(probs, torch.stack([mixed[b, t] for b, t in rows]))
    assert len(classified(predictive, task).labels) == len(counted("P"))


def many_classified(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    probs = (3 * normal(2000, CLASSES, seed=7)).softmax(-1)
    labels = torch.randint(CLASSES, (2000,), generator=torch.Generator().manual_seed(8))
    labels = torch.where(normal(2000, seed=9) > 0, labels, probs.argmax(-1))
    return probs.to(dtype), labels


@pytest.mark.parametrize("num_bins", [1, 10, 15])
def test_calibration_error_against_loops(num_bins: int) -> None:
    probs, labels = many_classified()
    error, total = 0.0, len(labels)
    diagram = reliability(probs, labels, num_bins)
    for m in range(num_bins):
        inside = [
            (float(p.max()), int(p.argmax()) == int(label))
            for p, label in zip(probs, labels, strict=True)
            if m / num_bins < float(p.max()) <= (m + 1) / num_bins
        ]
        assert diagram.num_points[m] == len(inside)
        if not inside:
            assert torch.stack([diagram.confidence[m], diagram.accuracy[m]]).isnan().all()
            continue
        confidence, right = np.mean([c for c, _ in inside]), np.mean([r for _, r in inside])
        assert diagram.confidence[m].item() == pytest.approx(confidence)
        assert diagram.accuracy[m].item() == pytest.approx(right)
        error += len(inside) / total * abs(right - confidence)
    assert expected_calibration_error(probs, labels, num_bins).item() == pytest.approx(error)


def test_fifteen_bins_by_default() -> None:
    probs, labels = many_classified()
    assert len(reliability(probs, labels).num_points) == 15
    assert torch.equal(
        expected_calibration_error(probs, labels), expected_calibration_error(probs, labels, 15)
    )
    assert not torch.equal(
        expected_calibration_error(probs, labels), expected_calibration_error(probs, labels, 10)
    )


def test_calibration_error_of_known_predictions() -> None:
    """Sure and right is 0, sure and wrong 1; 0.8 and right three times in four is 0.05."""
    sure = torch.tensor([[1.0, 0.0]]).repeat(4, 1)
    assert expected_calibration_error(sure, torch.tensor([0, 0, 0, 0])) == 0
    assert expected_calibration_error(sure, torch.tensor([1, 1, 1, 1])) == 1
    careful = torch.tensor([[0.8, 0.2]]).repeat(4, 1)
    labels = torch.tensor([0, 0, 0, 1])
    assert expected_calibration_error(careful, labels).item() == pytest.approx(0.05)
    assert accuracy(careful, labels) == 0.75
    assert reliability(careful, labels).num_points.nonzero().tolist() == [[11]]  # (11/15, 12/15] ends at 0.8


def test_bins_are_closed_above() -> None:
    probs = torch.tensor([[0.5, 0.5], [0.6, 0.4], [1.0, 0.0]], dtype=torch.float64)
    assert reliability(probs, torch.zeros(3, dtype=torch.long), 2).num_points.tolist() == [1, 2]
    rounded_up = torch.tensor([[1.0000002, 0.0]])
    assert reliability(rounded_up, torch.tensor([0]), 2).num_points.tolist() == [0, 1]


def test_single_precision_sums_do_not_drift() -> None:
    probs, labels = torch.tensor([[0.9, 0.1]]).repeat(200_000, 1), torch.zeros(200_000, dtype=torch.long)
    assert expected_calibration_error(probs, labels).item() == pytest.approx(0.1, abs=1e-7)
    assert reliability(probs, labels).confidence[13].item() == pytest.approx(0.9, abs=1e-7)


def test_accuracy_against_a_loop() -> None:
    probs, labels = many_classified(torch.float32)
    right = [int(p.argmax()) == int(label) for p, label in zip(probs, labels, strict=True)]
    assert accuracy(probs, labels).item() == pytest.approx(np.mean(right))


def test_labels_must_be_flat() -> None:
    probs, labels = many_classified()
    for metric in (accuracy, reliability, expected_calibration_error):
        with pytest.raises(ValueError, match="one label per point"):
            metric(probs, labels[:, None])  # would be broadcast to [N, N]


def test_entropies_need_no_labels() -> None:
    predictive, task = classification()
    for points in ("J", "P"):
        probs = classified(predictive, task, points).probs
        expected = [-sum(float(p) * math.log(p) for p in row) for row in probs]
        np.testing.assert_allclose(entropies(predictive, replace(task, y_target=None), points), expected)
    assert len(entropies(predictive, task)) == len(counted("P"))
    assert entropies(*regression(), "J").shape == (len(counted("J")), D)


def test_empirical_cdf_counts_what_does_not_exceed() -> None:
    values, at = torch.tensor([2.0, 0.0, 1.0, 1.0]), torch.tensor([-1.0, 0.0, 0.5, 1.0, 3.0])
    assert empirical_cdf(values, at).tolist() == [0, 0.25, 0.25, 0.75, 1]
    assert empirical_cdf(values, at.double()).tolist() == [0, 0.25, 0.25, 0.75, 1]


# --- out-of-distribution detection ---


def scores(case: str) -> tuple[Tensor, Tensor]:
    domain, ood = normal(137, seed=10), normal(60, seed=11) + 1
    if case == "ties":
        domain, ood = domain.round(), ood.round()
    elif case == "all alike":
        domain, ood = torch.zeros(20), torch.zeros(9)
    elif case == "apart":
        ood = ood + 100
    elif case == "reversed":
        ood = ood - 100
    elif case == "round number":  # 95 % of 100 is 95 exactly, but 0.95 is no binary number
        domain = normal(100, seed=12)
    elif case == "single":
        domain, ood = domain[:1], ood[:1]
    return domain, ood


CASES = ["plain", "ties", "all alike", "apart", "reversed", "round number", "single"]


def joined(domain: Tensor, ood: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([torch.zeros(len(domain)), torch.ones(len(ood))]), torch.cat([domain, ood])


@pytest.mark.parametrize("case", CASES)
def test_auroc(case: str) -> None:
    domain, ood = scores(case)
    wins = [1.0 if o > d else 0.5 if o == d else 0.0 for o in ood for d in domain]
    assert auroc(domain, ood).item() == pytest.approx(np.mean(wins))
    assert auroc(domain, ood).item() == pytest.approx(roc_auc_score(*joined(domain, ood)))


@pytest.mark.parametrize("case", CASES)
def test_aupr(case: str) -> None:
    domain, ood = scores(case)
    area, recall = 0.0, 0.0
    for threshold in sorted({*domain.tolist(), *ood.tolist()}, reverse=True):
        true, false = sum(o >= threshold for o in ood), sum(d >= threshold for d in domain)
        area += (true / len(ood) - recall) * true / (true + false)
        recall = true / len(ood)
    assert aupr(domain, ood).item() == pytest.approx(float(area))
    assert aupr(domain, ood).item() == pytest.approx(average_precision_score(*joined(domain, ood)))
    labels, values = joined(domain, ood)
    assert aupr(-ood, -domain).item() == pytest.approx(average_precision_score(1 - labels, -values))


def sklearn_fpr(positive: Tensor, score: Tensor) -> float:
    fpr, tpr, _ = roc_curve(positive, score, drop_intermediate=False)
    return float(fpr[np.argmax(tpr >= 0.95 - 1e-12)])


@pytest.mark.parametrize("case", CASES)
def test_fpr_at_95(case: str) -> None:
    domain, ood = scores(case)
    for threshold in sorted(domain.tolist()):
        if 100 * sum(d <= threshold for d in domain) >= 95 * len(domain):
            break
    expected = np.mean([bool(o <= threshold) for o in ood])
    assert fpr_at_95(domain, ood).item() == pytest.approx(expected)
    labels, values = joined(domain, ood)
    assert fpr_at_95(domain, ood).item() == pytest.approx(sklearn_fpr(1 - labels, -values))
    assert fpr_at_95(-ood, -domain).item() == pytest.approx(sklearn_fpr(labels, values))


def test_detection_at_its_ends() -> None:
    apart, reverse, alike = scores("apart"), scores("reversed"), scores("all alike")
    assert (auroc(*apart), aupr(*apart), fpr_at_95(*apart)) == (1, 1, 0)
    assert (auroc(*reverse), fpr_at_95(*reverse)) == (0, 1)
    assert (auroc(*alike), fpr_at_95(*alike)) == (0.5, 1)
    assert aupr(*alike).item() == pytest.approx(9 / 29)  # chance is the share of o.o.d. points


def test_fpr_takes_the_95th_of_100() -> None:
    domain, ood = torch.arange(1.0, 101.0), torch.tensor([94.5, 95.0, 95.5, 200.0])
    assert fpr_at_95(domain, ood) == 0.5


def test_scores_of_any_shape_and_precision() -> None:
    domain, ood = scores("plain")
    for metric in (auroc, aupr, fpr_at_95):
        expected = metric(domain.float(), ood.float())
        assert torch.equal(metric(domain.float()[None], ood.float().reshape(6, 10)), expected)


@pytest.mark.parametrize("metric", [auroc, aupr, fpr_at_95])
def test_refuses_scores_without_order(metric: Callable[[Tensor, Tensor], Tensor]) -> None:
    good = torch.tensor([0.0, 1.0])
    with pytest.raises(ValueError, match="ood holds NaN"):
        metric(good, torch.tensor([0.0, math.nan]))
    with pytest.raises(ValueError, match="domain has no score"):
        metric(torch.tensor([]), good)
