"""Measures of the field's table against plain loops, an exact GP by SciPy, and what must hold among them."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from dsvnp.autoregression import random_orders
from dsvnp.models import Architecture, make_model
from dsvnp.paper.experiment import EXACT
from dsvnp.paper.field.measures import chain_likelihoods, measure_field, read_marks, task_means, validation
from dsvnp.paper.field.panels import curves, gp_panels, model_panels, posterior
from dsvnp.paper.field.unseen import (
    TestSizes,
    batch_means,
    compact,
    draw_marks,
    draw_unseen,
    first,
    learner_mark,
    measure_ceiling,
    summarised,
)
from dsvnp.sources.gp import GPPrior, GPTasks
from dsvnp.sources.gp_exact import exact, integrated
from dsvnp.task import Task
from dsvnp.training import Fleet, Settings

CPU = torch.device("cpu")
SIZES = TestSizes(3, 2, 2, 2, 2, 32, num_nodes=3, num_points=10)


def net(name: str = "cnp"):
    torch.manual_seed(0)
    return make_model(name, Architecture(1, 1, encoder=(8,), dim_lat=8, decoder=(8,))).eval()


def values_of(rows, dataset, metric, split):
    (found,) = [m.values for m in rows if (m.dataset, m.metric, m.split) == (dataset, metric, split)]
    return found


def test_the_mean_of_a_batch_of_16_comes_first():
    rows = measure_field([net()], SIZES, chain=False, device=CPU)
    model, batches = net(), []
    for known in draw_unseen("matern52", 3, 10, CPU):
        log_prob = model.predict(known.task).log_prob(known.task.y_target)
        asked = known.task.mask_target & ~known.task.in_context
        for start in range(0, known.task.num_tasks, 16):
            some = slice(start, start + 16)
            assert len(set(asked[some].sum(-1).tolist())) == 1  # one size for a whole batch
            batches.append(float(log_prob[some][asked[some]].mean()))
    assert len(batches) == 3
    assert values_of(rows, "matern52", "log-likelihood", "marginal")[0] == pytest.approx(
        np.mean(batches), rel=1e-5
    )
    median = values_of(rows, "matern52", "log-likelihood-median", "marginal")[0]
    assert median == pytest.approx(np.median(batches), rel=1e-5)


def test_values_of_points_are_averaged_over_the_targets_of_their_task():
    tasks = [known.task for known in draw_unseen("rbf", 2, 10, CPU)]
    asked = torch.cat([task.mask_target & ~task.in_context for task in tasks])
    each = torch.randn(asked.shape, generator=torch.Generator().manual_seed(0))
    expected = [float(row[flags].mean()) for row, flags in zip(each, asked, strict=True)]
    assert task_means(each[asked], tasks).tolist() == pytest.approx(expected, rel=1e-5)


def test_compact_tasks_hold_the_same_points_batch_by_batch():
    known = draw_unseen("rbf", 40, 10, CPU)
    tasks = compact(known)
    assert [task.num_tasks for task in tasks] == [32 * 16, 8 * 16]
    assert max(tasks[0].mask_target.sum(-1)) <= min(tasks[1].mask_target.sum(-1))

    def points(task, b):
        asked = task.mask_target[b] if task.in_context is None else task.mask_target[b] & ~task.in_context[b]
        sides = (task.x_context, task.y_context, task.mask_context[b]), (task.x_target, task.y_target, asked)
        return tuple(tuple(v[b, mask, 0].tolist()) for x, y, mask in sides for v in (x, y))

    whole = [points(k.task, b) for k in known for b in range(k.task.num_tasks)]
    found = [points(task, b) for task in tasks for b in range(task.num_tasks)]
    assert sorted(whole) == sorted(found)
    groups = [set(whole[start : start + 16]) for start in range(0, 640, 16)]
    assert all(set(found[start : start + 16]) in groups for start in range(0, 640, 16))


def test_fewer_batches_are_the_first_of_more():
    few, many = (draw_unseen("rbf", number, 8, CPU) for number in (32, 80))
    meta = torch.device("meta")  # which has no random numbers
    assert draw_unseen("rbf", 1, 8, meta)[0].task.x_target.device == meta
    with pytest.raises(RuntimeError, match=r"(?i)meta"):
        draw_unseen("rbf", 1, 8, meta, drawn_on="device")
    assert torch.equal(few[0].task.y_target, many[0].task.y_target)
    assert [len(first(many, number)) for number in (1, 32, 33, 80)] == [1, 1, 2, 3]
    assert not torch.equal(few[0].task.x_target, draw_unseen("matern52", 32, 8, CPU)[0].task.x_target)


def test_batches_and_medians():
    per_task = torch.cat([torch.full((16,), float(value)) for value in (1, 2, 9)])
    assert batch_means(per_task).tolist() == [1, 2, 9]
    mean, median = summarised("rbf", "joint", [per_task], [EXACT])
    assert (mean.values, median.values) == ((4.0,), (2.0,))


def test_rows_tell_their_batches_and_latents_have_all_of_them_where_few_draws_settle():
    sizes = TestSizes(64, 20, 10, 1, 2, 32, num_nodes=2, num_points=8)
    expected = {"cnp": (64, 64, 32), "np": (64, 32, 32)}  # whole groups of 32
    for name, numbers in expected.items():
        rows = measure_field([net(name)] * 2, sizes, chain=False, device=CPU)
        likelihoods = [row for row in rows if row.metric.startswith("log-likelihood")]
        kinds = [(kernel, "marginal") for kernel in ("matern52", "periodic")] + [("rbf", "joint")]
        for kind, number in zip(kinds, numbers, strict=True):
            found = {row.batches for row in likelihoods if (row.dataset, row.split) == kind}
            assert found == {(number, number)}, (name, kind)
    assert {row.batches for row in measure_ceiling("integrated", sizes, 1, CPU)} == {(10,)}
    with pytest.raises(ValueError, match=r"unknown kernel 'rbv'\. Did you mean 'rbf'"):
        TestSizes(all_batches=("rbv",))


def test_a_chain_is_the_mean_over_orders_of_the_chain_rule():
    model, (task,) = net(), compact(draw_unseen("rbf", 1, 8, CPU))
    got = chain_likelihoods(model, [task], TestSizes(num_orders=3))
    orders = random_orders(task, 3, torch.Generator().manual_seed(0))  # [3, B, T]; a CNP draws nothing else
    for b in (0, 7):
        totals = []
        for order in orders[:, b]:
            x, y, total = task.x_context[b], task.y_context[b], 0.0
            for slot in order:
                target = task.x_target[b, slot][None], task.y_target[b, slot][None]
                asked = Task.from_sets(x[None], y[None], target[0][None])
                total += float(model.predict(asked).log_prob(target[1][None]))
                x, y = torch.cat([x, target[0]]), torch.cat([y, target[1]])
            totals.append(total / len(order))
        assert float(got[b]) == pytest.approx(np.mean(totals), rel=1e-4)


def test_the_ceiling_is_the_gp_that_scipy_has():
    rows = measure_ceiling("", SIZES, 2, CPU)
    joint, marginal = [], []
    for known in draw_unseen("periodic", 3, 10, CPU):
        task = known.task
        for b in range(task.num_tasks):
            length, scale, period = (float(v[b, 0]) for v in known.hyper)
            filled = task.mask_target[b].numpy()
            x, y = (v[b, :, 0].double().numpy()[filled] for v in (task.x_target, task.y_target))
            wave = np.sin(np.pi * (x[:, None] - x) / period)
            gram = scale**2 * np.exp(-2 * wave**2 / length**2) + 0.02**2 * np.eye(len(x))
            seen = task.in_context[b].numpy()[filled]
            gain = np.linalg.solve(gram[np.ix_(seen, seen)], gram[np.ix_(seen, ~seen)]).T
            mean, cov = gain @ y[seen], gram[np.ix_(~seen, ~seen)] - gain @ gram[np.ix_(seen, ~seen)]
            joint.append(multivariate_normal(mean, cov).logpdf(y[~seen]) / (~seen).sum())
            z = (y[~seen] - mean) / np.sqrt(np.diag(cov))
            marginal.append(np.mean(-0.5 * z**2 - 0.5 * np.log(2 * np.pi * np.diag(cov))))
    assert values_of(rows, "periodic", "log-likelihood", "joint") == pytest.approx(
        [np.mean(joint)] * 2, rel=1e-6
    )
    assert values_of(rows, "periodic", "log-likelihood", "marginal")[0] == pytest.approx(
        np.mean(marginal), rel=1e-6
    )


def test_a_floor_lowers_the_ceiling_and_a_learner_believes_in_rbf_whatever_it_is_tested_on():
    known = draw_unseen("periodic", 3, 10, CPU)
    exactly = [exact(k.task, k.hyper, GPPrior("periodic"), floor=0.1) for k in known]
    expected = torch.cat([each.task_means() for each in exactly]).mean()
    rows = measure_ceiling("floor", SIZES, 1, CPU)
    assert values_of(rows, "periodic", "log-likelihood", "marginal")[0] == pytest.approx(float(expected))
    assert {m.split for m in rows} == {
        "marginal"
    }  # a floor of each point's σ has no meaning for a whole task
    learner = [integrated(k.task, GPPrior("rbf"), 3) for k in draw_unseen("periodic", 2, 10, CPU)]
    expected = torch.cat([each.per_task for each in learner]).mean()
    rows = measure_ceiling("integrated", SIZES, 1, CPU)
    assert values_of(rows, "periodic", "log-likelihood", "joint")[0] == pytest.approx(float(expected))


def test_the_learners_mark_weighs_all_targets_of_the_validation_the_same():
    known = draw_marks(12, 30, CPU)
    points = [integrated(k.task, GPPrior("rbf"), 3).per_point for k in known]
    values = [v for part in points for v in part.flatten().tolist() if v == v]
    assert learner_mark(known, 3) == pytest.approx(sum(values) / len(values))
    batches = torch.cat([part.nanmean(-1) for part in points]).mean()
    assert abs(learner_mark(known, 3) - float(batches)) > 1e-3  # the mean of the table's rows is another one


def test_validation_is_the_nll_of_each_replica_on_unseen_tasks():
    arch = Architecture(1, 1, encoder=(8,), dim_lat=8, decoder=(8,))
    source = GPTasks(batch_size=2, num_points=8, refresh_every=4)
    fleet = Fleet(lambda: make_model("cnp", arch), source, (0, 1), Settings(2))
    values = validation(2, 8, (1, 1), CPU)(fleet)
    assert values.shape == (2,)
    assert values[0] != values[1]
    assert torch.equal(values, validation(2, 8, (1, 1), CPU)(fleet))


def test_marks_are_the_seconds_of_training_added_up(tmp_path):
    lines = [
        {"step": 10, "steps_per_second": 2.0, "validation": [1.0, None]},
        {"step": 15, "steps_per_second": 5.0},
        {"step": 20, "steps_per_second": 10.0, "validation": [0.5, 2.0]},
    ]
    (tmp_path / "log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    marks = read_marks(tmp_path / "log")
    assert marks == {"step": [10, 20], "seconds": [5.0, 6.5], "log_likelihood": [[-1.0, None], [-0.5, -2.0]]}


def test_panels_show_the_same_curves_for_models_and_the_gp():
    shown, exact = model_panels(net("np"), 2, CPU), gp_panels()
    assert list(shown) == list(exact) == ["RBF", "Matérn-5/2"]
    for title in shown:
        assert shown[title]["y_context"] == exact[title]["y_context"]
        assert np.shape(shown[title]["draws"]) == np.shape(exact[title]["draws"]) == (3, 120)


def test_dsvtnps_panels_show_chains(monkeypatch):
    drawn = {}
    for name in ("np", "dsvtnp"):
        made, asked = net(name), []
        plain = made.sample_functions
        monkeypatch.setattr(
            made,
            "sample_functions",
            lambda *a, plain=plain, asked=asked, **k: asked.append(k) or plain(*a, **k),
        )
        model_panels(made, 2, CPU)
        drawn[name] = {call["autoregressive"] for call in asked}
    assert drawn == {"np": {None}, "dsvtnp": {True}}


def test_the_gps_posterior_passes_through_what_it_saw():
    for curve in curves():
        mean, covariance = posterior(curve)
        nearest = (curve.grid[:, None] - curve.x).abs().argmin(0)
        assert (mean[nearest] - curve.y).abs().max() < 0.15
        assert covariance.diagonal()[nearest].sqrt().max() < 0.1
        far = (curve.grid[:, None] - curve.x).abs().amin(1).argmax()
        assert 0.05 < math.sqrt(covariance[far, far]) <= 0.81
