"""GP tasks of the field: kernels against scikit-learn, covariances of draws, sizes and masks, one generator for all."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, Matern
from torch import Tensor

from dsvnp.sources import gp
from dsvnp.sources.gp import KERNELS, GPPrior, GPTasks, Hyperparameters, gp_tasks, split_sizes, student_t

CPU = torch.device("cpu")
SKLEARN = {
    "rbf": RBF(0.3),
    "matern52": Matern(0.3, nu=2.5),
    "periodic": ExpSineSquared(0.3, periodicity=0.4),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def hyper(count: int = 1, dim: int = 1) -> Hyperparameters:
    """ℓ = 0.3, s = 0.7, p = 0.4 for all functions."""
    return Hyperparameters(
        *(torch.full((count, dim), value, dtype=torch.float64) for value in (0.3, 0.7, 0.4))
    )


def inputs() -> Tensor:
    return torch.tensor([-2.0, -1.9, -0.3, 0.0, 0.45, 1.8], dtype=torch.float64)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_scikit_learns(name):
    x = inputs()
    ours = GPPrior(name).covariance(x[None], x[None], Hyperparameters(*(h[:, 0] for h in hyper())))[0]
    assert np.allclose(ours, 0.49 * SKLEARN[name](x.numpy()[:, None]), atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_draws_have_the_kernels_covariance(name):
    prior, count = GPPrior(name), 20_000
    x = inputs()[None, :, None].expand(count, -1, -1)
    f = prior.functions(x, hyper(count), generator())
    y = prior.observe(f, generator(1))
    expected = torch.as_tensor(0.49 * SKLEARN[name](inputs().numpy()[:, None]))
    assert (f[..., 0].T @ f[..., 0] / count - expected).abs().max() < 5 * 0.7 / math.sqrt(count)
    noise = (y - f)[..., 0]
    assert (noise.T @ noise / count - 0.02**2 * torch.eye(6)).abs().max() < 10 * 0.02**2 / math.sqrt(count)


def test_outputs_are_independent_and_have_their_own_hyperparameters():
    count = 20_000
    fields = hyper(count, 2)
    fields.scale[:, 1] = 0.2
    f = GPPrior().functions(torch.zeros(count, 1, 1), fields, generator())[:, 0]
    assert torch.allclose(f.T @ f / count, torch.diag(torch.tensor([0.49, 0.04]).double()), atol=0.02)


def test_a_function_does_not_depend_on_how_many_are_factorised_at_once(monkeypatch):
    x = torch.rand(7, 5, 1, generator=generator())
    fields = GPPrior().hyperparameters((7, 2), generator())
    whole = GPPrior().functions(x, fields, generator())
    monkeypatch.setattr(gp, "CHUNK", 3)
    assert torch.allclose(GPPrior().functions(x, fields, generator()), whole, rtol=0, atol=1e-12)
    assert whole.shape == (7, 5, 2)


def test_long_smooth_functions_can_be_factorised():
    prior = GPPrior(length=(0.6, 0.6))
    x = torch.linspace(-0.5, 0.5, 50).expand(64, -1)[..., None]
    f = prior.functions(x, prior.hyperparameters((64, 1), generator()), generator())
    assert f.isfinite().all()
    assert f.diff(dim=1).abs().max() < 0.2  # smooth: the jitter does not show


def test_hyperparameters_fill_their_ranges():
    fields = GPPrior().hyperparameters((5000, 1), generator())
    for field, (low, high) in zip(fields, [(0.1, 0.6), (0.1, 1.0), (0.1, 0.5)], strict=True):
        assert stats.kstest(field.flatten().numpy(), "uniform", (low, high - low)).pvalue > 1e-3


def test_heavy_tails_are_students():
    drawn = student_t(torch.empty(20_000, dtype=torch.float64), 2.1, generator())
    assert stats.kstest(drawn.numpy(), stats.t(2.1).cdf).pvalue > 1e-3


def test_contamination_has_a_random_amplitude_on_every_point():
    f = torch.zeros(20_000, dtype=torch.float64)
    drawn = GPPrior(noise=0.0, contamination=0.15).observe(f, generator())
    rng = np.random.default_rng(0)
    expected = 0.15 * rng.random(20_000) * rng.standard_t(2.1, 20_000)
    assert stats.ks_2samp(drawn.numpy(), expected).pvalue > 1e-3


# --- as a source ---


def test_sizes_are_the_fields():
    uniform = torch.rand(2, 200_000, generator=generator())
    context, targets = split_sizes(uniform[0], uniform[1], 50)
    assert set(context.tolist()) == set(range(3, 47))
    for size in (3, 20, 46):
        assert set(targets[context == size].tolist()) == set(range(3, 50 - size))
    largest = split_sizes(torch.tensor(1 - 2**-24), torch.tensor(1 - 2**-24), 50)
    assert [int(size) for size in largest] == [46, 3]


def test_a_batch_shares_its_sizes_and_a_pool_is_used_once():
    source = GPTasks(batch_size=4, num_points=20, refresh_every=3)
    pool = source.pool(generator(), CPU)
    uniforms = {
        name: torch.rand(shape, generator=generator(9)) for name, shape in source.uniform_shapes().items()
    }
    tasks = [source.batch(pool, uniforms, torch.tensor(step)) for step in range(3)]
    context, targets = (int(size) for size in split_sizes(uniforms["context"], uniforms["targets"], 20))
    for task in tasks:
        assert task.mask_context.sum(1).tolist() == [context] * 4
        assert task.mask_target.sum(1).tolist() == [context + targets] * 4
        assert (task.mask_target & ~task.in_context).sum(1).tolist() == [targets] * 4
        task.check()
    assert torch.equal(torch.cat([task.y_target for task in tasks]), pool["y"])
    assert pool["x"].shape == pool["y"].shape == (12, 20, 1)
    assert pool["y"].dtype == torch.float32
    assert torch.equal(pool["y"], source.pool(generator(), CPU)["y"])
    assert source.static() == {}


def test_batches_can_be_drawn_for_replicas_at_once():
    source = GPTasks(batch_size=2, num_points=9, refresh_every=2)
    pools = [source.pool(generator(seed), CPU) for seed in (1, 2)]
    stacked = {name: torch.stack([pool[name] for pool in pools]) for name in pools[0]}
    uniforms = {"context": torch.tensor([[0.1], [0.9]]), "targets": torch.tensor([[0.9], [0.1]])}

    def fields(pool, uniform):
        return source.batch(pool, uniform, torch.tensor(1)).tensors()

    together = torch.vmap(fields)(stacked, uniforms)
    for row, pool in enumerate(pools):
        alone = fields(pool, {name: value[row] for name, value in uniforms.items()})
        assert all(torch.equal(together[name][row], alone[name]) for name in alone)


def test_tasks_to_test_on_share_sizes_by_groups():
    batches = gp_tasks(GPPrior("periodic"), 40, generator(), batch_size=16, share=8, num_points=30)
    assert [known.task.num_tasks for known in batches] == [16, 16, 8]
    assert [known.hyper.length.shape for known in batches] == [(16, 1), (16, 1), (8, 1)]
    sizes = torch.cat([known.task.mask_context.sum(1) for known in batches]).reshape(5, 8)
    assert (sizes == sizes[:, :1]).all()
    assert sizes[:, 0].unique().numel() > 1
    again = gp_tasks(GPPrior("periodic"), 40, generator(), batch_size=16, share=8, num_points=30)
    assert torch.equal(batches[2].task.y_target, again[2].task.y_target)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GPPrior("cosine"), "unknown kernel 'cosine'"),
        (lambda: GPPrior(length=(0.0, 1.0)), "length must be a range of positive numbers, got 0.0 to 1.0"),
        (lambda: GPPrior(noise=-0.1), "must not be negative, got -0.1 and 0.0"),
        (lambda: GPTasks(num_points=6), "num_points must be at least 7"),
        (lambda: GPTasks(refresh_every=0), "at least 1, got 50 and 16, 0"),
        (lambda: gp_tasks(GPPrior(), 20, generator()), "multiples of share, 16, got 20 and 16"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
