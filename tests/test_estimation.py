"""Estimates of log-likelihoods against closed forms, with a decoder so narrow that draws from the prior miss.

y_t = a z_t + b z_G + σ ε in several outputs, z_G and z_t standard normal: p(y_T) is a multivariate Gaussian.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, Normal

from dsvnp import Architecture, NeuralProcess, Task, log_likelihood, make_model
from dsvnp.gaussian import DiagonalGaussian
from dsvnp.metrics import joint_nll, point_nll
from dsvnp.objectives import Draws

A = torch.tensor([1.0, -0.8, 0.6], dtype=torch.float64)
B = torch.tensor([0.5, 0.7, -0.4], dtype=torch.float64)
OUTPUTS = len(A)


class LinearGaussian(NeuralProcess):
    """Both latents linear; posteriors are exact, with scales that are widened by a factor."""

    name = "linear"
    summary = "linear and Gaussian in both latents"
    widened = 1.0
    a, b = A, B

    def _build(self, embedding):
        self.scale = nn.Parameter(torch.ones(()))

    @property
    def precision(self):
        return 1 / self.arch.sigma_floor**2

    def noise_shapes(self, num_tasks, num_targets, num_global, num_local, shared):
        return {
            "global": (num_global, num_tasks, 1),
            "local": (num_global, num_local, num_tasks, num_targets, 1),
        }

    def posterior_global(self, y):
        within = torch.linalg.inv(torch.outer(self.a, self.a) + torch.eye(OUTPUTS).double() / self.precision)
        variance = 1 / (1 + y.shape[1] * self.b @ within @ self.b)
        mean = variance * (y.sum(1) @ within @ self.b)  # [B]
        return DiagonalGaussian(mean[:, None], self.widened * variance.sqrt().expand(len(mean), 1))

    def local_latent(self, summary, x_target, y_target):
        residual = torch.where(torch.isnan(y_target), 0.0, y_target) - self.b * summary  # [K, B, T, D]
        variance = 1 / (1 + self.precision * self.a @ self.a)
        mean = (variance * self.precision * residual @ self.a).unsqueeze(-1)
        q = DiagonalGaussian(mean, self.widened * variance.sqrt().expand_as(mean))
        return q, DiagonalGaussian(torch.zeros_like(mean), torch.ones_like(mean))

    def draws(self, task, noise):
        y, _ = task.all_points()
        q = self.posterior_global(y)
        p = DiagonalGaussian(torch.zeros_like(q.mean), torch.ones_like(q.mean))
        z = q.unsqueeze(0).sample(noise.get("global"))
        q_local, p_local = self.local_latent(z[:, :, None], task.x_target, y)
        z_local = q_local.unsqueeze(1).sample(noise.get("local"))
        raw = self._raw(z[:, None, :, None], z_local)
        return Draws(self.likelihood.log_prob(raw, y), self.counted(task), q, p, z, q_local, p_local, z_local)

    def summarise(self, task, noise):
        return noise["global"][:, :, None]  # [K, B, 1, 1]

    def decode(self, summary, x_target, noise):
        return self._raw(summary[:, None], noise["local"])

    def _raw(self, z_global, z_local):
        mean = self.scale * (self.b * z_global + self.a * z_local)
        return torch.cat([mean, torch.full_like(mean, -40.0)], dim=-1)  # σ at its floor


def narrow_model(sigma: float = 0.02, widened: float = 1.0) -> LinearGaussian:
    model = LinearGaussian(Architecture(1, OUTPUTS, sigma_floor=sigma)).double()
    model.widened = widened
    return model


def narrow_tasks(model, num_tasks: int = 20, num_targets: int = 6, seed: int = 0) -> Task:
    """Tasks drawn from the model itself, without a context."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64)

    z_global, z_local = normal(num_tasks, 1, 1), normal(num_tasks, num_targets, 1)
    noise = model.arch.sigma_floor * normal(num_tasks, num_targets, OUTPUTS)
    empty = torch.zeros(num_tasks, 0, 1).double()
    x = torch.zeros(num_tasks, num_targets, 1).double()
    return Task.from_sets(empty, empty.expand(-1, -1, OUTPUTS), x, A * z_local + B * z_global + noise)


def exact(model, y, together: bool):
    """ln p of each point [B, T], or of each task's points together [B]."""
    own = torch.outer(A, A) + model.arch.sigma_floor**2 * torch.eye(OUTPUTS).double()
    if not together:
        return MultivariateNormal(torch.zeros(OUTPUTS).double(), own + torch.outer(B, B)).log_prob(y)
    targets = y.shape[1]
    ones = torch.ones(targets, targets).double()
    covariance = torch.kron(torch.eye(targets).double(), own) + torch.kron(ones, torch.outer(B, B))
    return MultivariateNormal(torch.zeros(len(covariance)).double(), covariance).log_prob(y.flatten(1))


# --- a narrow decoder: the prior misses, importance sampling does not ---


@pytest.mark.parametrize("widened", [1.0, 1.3])
def test_per_point_estimates_reach_the_closed_form_where_the_prior_does_not(widened):
    model = narrow_model(widened=widened)
    task = narrow_tasks(model)
    known = exact(model, task.y_target, together=False).flatten()
    prior = log_likelihood(model, task, method="prior", max_draws=1024)
    assert not prior.still
    assert prior.mean < known.mean() - 0.5
    estimate = log_likelihood(model, task)
    assert estimate.method == "importance"
    assert estimate.still
    assert estimate.mean == pytest.approx(known.mean().item(), abs=0.01)
    assert (estimate.values - known).abs().max() < 0.3
    assert estimate.bound < known.mean() + 0.05


@pytest.mark.parametrize("widened", [1.0, 1.3])
def test_per_task_estimates_reach_the_closed_form_where_the_prior_does_not(widened):
    model = narrow_model(widened=widened)
    task = narrow_tasks(model)
    known = exact(model, task.y_target, together=True) / task.num_targets
    prior = log_likelihood(model, task, "task", method="prior", max_draws=1024)
    assert prior.mean < known.mean() - 2
    estimate = log_likelihood(model, task, "task")
    assert estimate.method == "importance"
    assert estimate.still
    assert estimate.mean == pytest.approx(known.mean().item(), abs=0.01)
    assert (estimate.values - known).abs().max() < 0.1
    assert prior.mean < estimate.bound < known.mean() + 0.02


def test_per_output_estimates_reach_the_closed_form():
    model = narrow_model(sigma=0.3)
    task = narrow_tasks(model)
    known = Normal(0, (A**2 + B**2 + 0.3**2).sqrt()).log_prob(task.y_target).flatten()
    estimate = log_likelihood(model, task, "output", tolerance=0.005)
    assert estimate.mean == pytest.approx(known.mean().item(), abs=0.01)
    assert (estimate.values - known).abs().max() < 0.5
    assert estimate.bound < known.mean()


def test_a_posterior_that_is_too_narrow_does_not_mislead():
    """Its weights p/q alone have no finite variance; the share of the prior in the proposal bounds them."""
    model = narrow_model(sigma=0.4, widened=0.3)
    task = narrow_tasks(model, num_tasks=60)
    known = exact(model, task.y_target, together=False).mean().item()
    estimate = log_likelihood(model, task, method="importance", tolerance=0.005)
    assert estimate.mean == pytest.approx(known, abs=0.015)
    assert estimate.low_ess == 0


def test_the_standard_error_is_about_the_spread_over_seeds():
    model = narrow_model(sigma=0.3)
    task = narrow_tasks(model)
    runs = [log_likelihood(model, task, "task", method="importance", seed=seed) for seed in range(12)]
    spread = torch.tensor([run.mean for run in runs]).std().item()
    assert 0.4 * spread < runs[0].stderr < 2.5 * spread


# --- draws, sums and what counts ---


def some_task(num_tasks: int = 3, num_points: int = 8, num_context: int = 3, dim_y: int = 2) -> Task:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(num_tasks, num_points, 1, generator=g, dtype=torch.float64)
    y = torch.randn(num_tasks, num_points, dim_y, generator=g, dtype=torch.float64)
    flags = torch.arange(num_points).expand(num_tasks, -1) < num_context
    return Task.from_points(x, y, flags)


def small_model(name: str, likelihood: str = "gaussian", **options) -> NeuralProcess:
    torch.manual_seed(0)
    sizes = {"encoder": (16,), "dim_lat": 4, "decoder": (16,), "dropout": 0.3} | options
    return make_model(name, Architecture(1, 2, likelihood, **sizes)).double()


@pytest.mark.parametrize("name", ["nn", "cnp"])
@pytest.mark.parametrize("points", ["J", "P"])
def test_a_model_without_latents_is_exact_with_one_draw(name, points):
    model, task = small_model(name), some_task()
    estimate = log_likelihood(model, task, points=points)
    assert (estimate.method, estimate.draws, estimate.still, estimate.stderr) == ("exact", 1, True, 0)
    torch.testing.assert_close(estimate.values, -point_nll(model.predict(task), task, points))
    assert estimate.bound == estimate.mean
    joint = log_likelihood(model, task, "task", points=points)
    counted = task.num_targets if points == "J" else task.num_targets - 3
    torch.testing.assert_close(joint.values, -joint_nll(model.predict(task), task, points) / counted)


@pytest.mark.parametrize("name", ["np", "attnnp", "dsvnp", "mc-dropout"])
@pytest.mark.parametrize("likelihood", ["gaussian", "squared-error"])
def test_the_prior_estimate_is_that_of_a_prediction_with_as_many_draws(name, likelihood):
    """Squared error has a training term that is no density: the predictive's counts."""
    model, task = small_model(name, likelihood), some_task()
    predictive = model.predict(task, 4000, generator=torch.Generator().manual_seed(3))
    estimate = log_likelihood(model, task, method="prior", tolerance=1e-3)
    torch.testing.assert_close(estimate.values, -point_nll(predictive, task), atol=0.2, rtol=0)
    assert estimate.mean == pytest.approx(-point_nll(predictive, task).mean().item(), abs=0.01)


@pytest.mark.parametrize("name", ["np", "dsvnp"])
@pytest.mark.parametrize("per", ["point", "task"])
def test_prior_and_importance_agree(name, per):
    model, task = small_model(name), some_task()
    prior, importance = (
        log_likelihood(model, task, per, method=method, tolerance=2e-3) for method in ("prior", "importance")
    )
    torch.testing.assert_close(prior.values, importance.values, atol=0.1, rtol=0)
    assert prior.mean == pytest.approx(importance.mean, abs=0.015)
    assert prior.bound <= prior.mean + 0.01


def test_a_classifier_s_labels():
    model = make_model("dsvnp", Architecture(1, 3, "categorical", dim_lat=4, encoder=(8,), decoder=(8,)))
    task = some_task(dim_y=1).to(dtype=torch.float32)
    labels = torch.randint(3, task.y_target.shape, generator=torch.Generator().manual_seed(0))
    task = replace(task, y_context=labels, y_target=labels)
    predictive = model.predict(task, 4000, generator=torch.Generator().manual_seed(3))
    for per in ("point", "output"):
        estimate = log_likelihood(model, task, per)
        torch.testing.assert_close(estimate.values, -point_nll(predictive, task), atol=0.05, rtol=0)


def test_missing_outputs_and_empty_slots_do_not_count():
    model, task = small_model("dsvnp"), some_task()
    y = task.y_target.clone()
    y[0, 4, 0] = y[1, 5] = math.nan
    mask = task.mask_target.clone()
    mask[2, -2:] = False
    holes = replace(task, y_target=y, mask_target=mask)
    assert len(log_likelihood(model, holes).values) == 3 * 5 - 1 - 2
    assert len(log_likelihood(model, holes, "output").values) == 2 * (3 * 5 - 1 - 2) - 1
    for method in ("prior", "importance"):
        whole = log_likelihood(model, holes, "task", method=method, tolerance=2e-3)
        rest = Task.from_points(task.x_target[2:, :6], task.y_target[2:, :6], task.in_context[2:, :6])
        alone = log_likelihood(model, rest, "task", method=method, tolerance=2e-3)
        assert torch.isfinite(whole.values).all()
        assert whole.values[2].item() == pytest.approx(alone.mean, abs=0.03)


@pytest.mark.parametrize("method", ["prior", "importance"])
@pytest.mark.parametrize("per", ["point", "task"])
def test_chunks_change_nothing_but_the_draws(method, per):
    model, task = small_model("dsvnp"), some_task()
    whole = log_likelihood(model, task, per, method=method, tolerance=2e-3)
    cut = log_likelihood(model, task, per, method=method, max_draws=512, chunk=150)  # 3 × 8 targets, 6 draws
    assert cut.mean == pytest.approx(whole.mean, abs=3 * (cut.stderr + whole.stderr))
    assert cut.stderr < 0.05


def test_several_batches_are_judged_by_the_mean_of_all_their_values():
    model = small_model("dsvnp")
    tasks = [some_task(num_tasks=2, num_context=1), some_task(num_tasks=3, num_points=5)]
    estimate = log_likelihood(model, iter(tasks))
    assert len(estimate.values) == 2 * 7 + 3 * 2
    assert estimate.mean == pytest.approx(estimate.values.mean().item())
    assert len(estimate.changes) == 2
    assert max(map(abs, estimate.changes)) < 0.01
    assert [level.draws for level in estimate.history][:3] == [32, 64, 128]


def test_a_seed_gives_the_same_result_again_and_leaves_the_global_one_alone():
    model, task = small_model("dsvnp"), some_task()
    before = torch.get_rng_state()
    first, again, other = (log_likelihood(model, task, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.values, again.values)
    assert not torch.equal(first.values, other.values)
    assert torch.equal(before, torch.get_rng_state())


def test_a_task_whose_draws_suffice_gets_no_more(monkeypatch):
    model, asked = narrow_model(sigma=0.9), []
    task = narrow_tasks(model)
    y_target = 0.3 * task.y_target
    y_target[0] = torch.tensor([6.0, -5.0, 4.0])  # which few draws from the prior explain
    task = replace(task, y_target=y_target)
    decode = model.decode

    def counting(summary, x_target, noise):
        asked.append(len(x_target))
        return decode(summary, x_target, noise)

    monkeypatch.setattr(model, "decode", counting)
    found = log_likelihood(model, task, method="prior", max_draws=4096, tolerance=0.01)
    assert found.draws >= 1024
    assert asked[0] == task.num_tasks
    assert asked[-1] == 1
    known = exact(model, y_target, together=False)
    assert (found.values.reshape(known.shape) - known)[1:].abs().max() < 0.25  # a few hundred draws
    assert (found.values.reshape(known.shape) - known)[1:].mean().abs() < 0.02


def test_the_limit_is_kept_and_said():
    model = narrow_model()
    estimate = log_likelihood(model, narrow_tasks(model), "task", method="prior", max_draws=200)
    assert estimate.draws == 128
    assert not estimate.still


def test_a_network_that_trains_goes_on_training():
    model = small_model("dsvnp").train()
    log_likelihood(model, some_task())
    assert model.training


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"per": "marginal"}, "per must be 'point', 'task' or 'output', got 'marginal'"),
        ({"method": "posterior"}, "method must be 'auto', 'prior' or 'importance', got 'posterior'"),
        ({"points": "all"}, "points must be 'J'"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"max_draws": 8}, "max_draws must be at least 32, got 8"),
        ({"chunk": 0}, "chunk must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        log_likelihood(small_model("np"), some_task(), **options)


def test_tasks_without_outputs_or_points_are_refused():
    task = some_task()
    with pytest.raises(ValueError, match="no y_target"):
        log_likelihood(small_model("np"), replace(task, y_target=None))
    with pytest.raises(ValueError, match="no target counts; pass tasks with such points"):
        log_likelihood(small_model("np"), replace(task, in_context=task.mask_target))
    with pytest.raises(ValueError, match="no target counts; pass tasks with such points"):
        log_likelihood(small_model("np"), [])
    with pytest.raises(ValueError, match="'np' has no posterior to draw from for an estimate per output"):
        log_likelihood(small_model("np"), task, "output", method="importance")
    with pytest.raises(ValueError, match="'mc-dropout' has no posterior"):
        log_likelihood(small_model("mc-dropout"), task, method="importance")


# --- memory ---

MEASURE = """
import sys, torch
from dsvnp import Architecture, Task, make_model
from dsvnp.streaming import RunningBatch

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024

torch.set_num_threads(1)
model = make_model("dsvnp", Architecture(1, 1, encoder=(16,), dim_lat=16, decoder=(16,)))
per, prior_share = sys.argv[1], float(sys.argv[2])

@torch.no_grad()
def measure(num_targets):
    x, context = torch.zeros(1, num_targets, 1), torch.zeros(1, 4, 1)
    batch = RunningBatch(model, Task.from_sets(context, context, x, x), per, "P", 2**14)
    parts = batch.one_target_each() if per == "point" and prior_share < 1 else [batch]
    for part in parts:
        part.restart(prior_share, torch.Generator().manual_seed(0))
        part.add(8, 1)
    assert sum(len(part.values()) for part in parts) == (1 if per == "task" else num_targets)

measure(20_000)
before = peak()
measure(200_000)
print(peak() - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads the peak of resident memory from /proc"
)
@pytest.mark.parametrize(("per", "prior_share"), [("point", 1.0), ("point", 0.25), ("task", 0.25)])
def test_many_targets_need_memory_for_a_few_numbers_each(per, prior_share):
    command = [sys.executable, "-c", MEASURE, per, str(prior_share)]
    # Freed blocks go back to the system: pieces of the heap that malloc keeps, up to 40 MiB by chance, do not count.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert float(run.stdout) < 20  # MiB; eight draws of one hidden layer would take 98
