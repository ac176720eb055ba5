"""NLL from fixed draws is a prediction's, and from draws that suffice the library's estimate."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsvnp import Architecture, log_likelihood, make_model
from dsvnp.metrics import point_nll
from dsvnp.paper.experiment import EXACT, Drawn
from dsvnp.paper.measuring import FIXED, Likelihoods, by_task, double_draws, estimate_nll, seeded_predict
from dsvnp.sources.curves import curve_tasks


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return make_model("np", Architecture(1, 1, encoder=(8,), dim_lat=8, decoder=(8,))).eval()


def test_fixed_draws_and_draws_that_suffice(net):
    tasks = curve_tasks(5, 12, (3, 8), torch.Generator().manual_seed(0))
    predictions = [seeded_predict(net, task, (3, 1)) for task in tasks]
    fixed = estimate_nll(net, tasks, "P", FIXED, predictions)
    expected = torch.cat([point_nll(p, task, "P") for p, task in zip(predictions, tasks, strict=True)])
    assert torch.equal(fixed.values, expected)
    assert fixed.drawn == ()
    found = estimate_nll(net, tasks, "J", Likelihoods("suffice", max_draws=128), predictions)
    library = log_likelihood(net, tasks, points="J", max_draws=128)
    assert found.mean == pytest.approx(-library.mean, rel=1e-6)
    assert found.drawn == (Drawn.of(library),)
    assert found.bound == -library.bound
    assert (found.only(tasks, "J").bound, found.only(tasks, "P").bound) == (-library.bound, None)
    assert fixed.bound is None
    assert len(found.values) == 5 * 12
    with pytest.raises(ValueError, match="draws must be 'fixed' or 'suffice', got 'many'"):
        Likelihoods("many")


def test_the_larger_of_the_last_two_changes_is_kept(net):
    tasks = curve_tasks(5, 12, (3, 8), torch.Generator().manual_seed(0))
    library = log_likelihood(net, tasks, max_draws=128)
    means = [level.mean for level in library.history]
    assert len(means) == 3
    expected = max(abs(means[1] - means[0]), abs(means[2] - means[1]))
    assert Drawn.of(library).change == pytest.approx(expected)
    none = make_model("cnp", Architecture(1, 1, encoder=(8,), dim_lat=8, decoder=(8,)))
    assert Drawn.of(log_likelihood(none, tasks)) == EXACT


def test_doubling_several_means_keeps_the_largest_change():
    means = {32: (1.0, 2.0), 64: (0.9, 1.7), 128: (0.85, 1.6), 256: (0.845, 1.598)}
    how = Likelihoods("suffice", tolerance=0.2, max_draws=256)

    def estimate(draws):
        return dict(zip("ab", means[draws], strict=True))

    found, drawn = double_draws(estimate, 32, 1, how)
    assert (found, drawn) == ({"a": 0.845, "b": 1.598}, ("prior", 256, True, pytest.approx(0.1)))
    found, drawn = double_draws(estimate, 32, 2, how)
    assert (found["b"], drawn) == (1.6, ("prior", 256, False, pytest.approx(0.3)))
    assert double_draws(estimate, 256, 1, how)[1] == ("prior", 256, False, None)  # no doubling is allowed


def test_some_targets_of_each_task_are_scored(net):
    tasks = curve_tasks(5, 12, (3, 8), torch.Generator().manual_seed(0))
    predictions = [seeded_predict(net, task, (3, 1)) for task in tasks]
    how = Likelihoods("suffice", max_draws=32, every=3)
    found, scored = estimate_nll(net, tasks, "J", how, predictions), how.scored(tasks)
    library = log_likelihood(net, [task.some_targets(3) for task in tasks], points="J", max_draws=32)
    assert torch.equal(found.values, -library.values)
    assert len(found.values) == 5 * 4
    outside = torch.cat([~task.in_context[:, ::3].flatten() for task in tasks])
    assert torch.equal(found.only(scored, "P").values, found.values[outside])
    assert replace(how, draws="fixed").scored(tasks)[0] is tasks[0]  # fixed draws are those of all targets


def test_values_are_put_back_together_by_task(net):
    tasks = curve_tasks(5, 12, (3, 8), torch.Generator().manual_seed(0))
    predictions = [seeded_predict(net, task, (3, 1)) for task in tasks]
    means = by_task(estimate_nll(net, tasks, "P", FIXED, predictions).values, tasks, "P")
    losses = [-p.log_prob(t.y_target) for p, t in zip(predictions, tasks, strict=True)]
    expected = [
        loss[row][~task.in_context[row]].mean()
        for loss, task in zip(losses, tasks, strict=True)
        for row in range(len(loss))
    ]
    torch.testing.assert_close(means, torch.stack(expected))
