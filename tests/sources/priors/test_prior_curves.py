"""CurvePrior: a generator decides all, contexts leave gaps and ends, and inputs that are not used say nothing."""

import pytest
import torch

from dsvnp.sources.priors import CurvePrior, CurveSettings
from dsvnp.sources.priors.curves import draw_inputs, draw_order
from dsvnp.sources.priors.randomness import Random
from dsvnp.sources.priors.shapes import SHAPES
from dsvnp.task import Task

CPU = torch.device("cpu")
SETTINGS = CurveSettings(batch_size=32, num_points=64, refresh_every=4)


def make(seed: int = 0) -> Random:
    return Random(torch.Generator().manual_seed(seed), CPU)


def make_pool(settings: CurveSettings = SETTINGS, seed: int = 0) -> dict[str, torch.Tensor]:
    return CurvePrior(settings).pool(torch.Generator().manual_seed(seed), CPU)


def make_batch(pool, settings: CurveSettings = SETTINGS, step: int = 0) -> Task:
    uniforms = {"context": torch.rand(settings.batch_size, generator=torch.Generator().manual_seed(step))}
    return CurvePrior(settings).batch(pool, uniforms, torch.tensor(step))


def test_the_generator_decides():
    first, second, other = make_pool(seed=3), make_pool(seed=3), make_pool(seed=4)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["y"], other["y"])


def test_shapes_values_and_masks():
    pool = make_pool()
    for step in range(4):
        task = make_batch(pool, step=step)
        task.check()
        assert task.x_target.shape == (32, 64, 6)
        assert task.y_target.shape == (32, 64, 1)
        assert task.y_target.isfinite().all()
        assert task.mask_context.sum(1).min() >= 3
        assert (task.mask_context.sum(1) <= pool["largest"][32 * step : 32 * step + 32]).all()
        values, codes = task.x_target.chunk(2, dim=-1)
        assert set(codes.unique().tolist()) <= {-1.0, 0.0}
        assert (values[codes != 0] == 0).all()


def test_curves_vary_and_their_dimensions_are_as_set():
    pool = make_pool(CurveSettings(batch_size=600, num_points=64, refresh_every=1))
    assert (pool["y"].std(1) > 0.3).float().mean() > 0.99
    share = torch.bincount(pool["used"].sum(1), minlength=4)[1:] / 600
    assert torch.allclose(share, torch.tensor([0.65, 0.22, 0.13]), atol=0.06)
    assert (pool["x"].mT[~pool["used"]] == 0).all()


def test_targets_do_not_leak():
    pool = make_pool()
    task = make_batch(pool)
    changed = {name: value.clone() for name, value in pool.items()}
    changed["y"][:32][~task.mask_context] += 3.0
    again, inside = make_batch(changed), task.mask_context
    assert torch.equal(again.x_target, task.x_target)
    assert torch.equal(again.y_target[inside], task.y_target[inside])
    changed["x"][:32][~inside] += 1.0
    assert torch.equal(make_batch(changed).x_target[inside], task.x_target[inside])


@pytest.mark.parametrize("pattern", ["gap", "end"])
def test_contexts_leave_a_gap_or_an_end(pattern):
    shares = (0.0, 1.0, 0.0) if pattern == "gap" else (0.0, 0.0, 1.0)
    settings = CurveSettings(batch_size=50, num_points=64, patterns=shares, refresh_every=1)
    along = make().normal(50, 64)
    order, largest = draw_order(make(1), settings, along)
    assert (order.sort(1).values == torch.arange(64)).all()
    for row in range(50):
        number = int(largest[row])
        if number == settings.largest_context:
            continue  # little was left out: the usual bound is the tighter one
        context, rest = along[row, order[row, :number]], along[row, order[row, number:]]
        between = (context > rest.min()) & (context < rest.max())
        assert not between.any()
        if pattern == "end":
            assert context.max() < rest.min()


def test_random_contexts_are_random():
    settings = CurveSettings(batch_size=400, num_points=64, patterns=(1.0, 0.0, 0.0), refresh_every=1)
    along = torch.arange(64.0).expand(400, 64)
    order, largest = draw_order(make(), settings, along)
    assert (largest == 56).all()
    assert (along.gather(1, order)[:, :8].mean() - 31.5).abs() < 1.5


def test_some_inputs_are_regular():
    x = draw_inputs(make(), 400, 50)[..., 0].sort(1).values
    step = x.diff(dim=1)
    regular = (step.std(1) / step.mean(1) < 1e-3).float().mean()
    assert 0.12 < regular < 0.35
    assert x.abs().max() < 4


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_shapes_are_finite_and_mostly_vary(shape):
    u = torch.linspace(-1, 1, 200).expand(300, 200)
    f = shape(make(), u)
    assert f.shape == (300, 200)
    assert f.isfinite().all()
    assert (f.std(1) > 1e-3).float().mean() > 0.9


def test_a_batch_compiles_whole_and_maps_over_replicas():
    source = CurvePrior(SETTINGS)
    pools = [make_pool(seed=seed) for seed in (0, 1)]
    stacked = {name: torch.stack([pool[name] for pool in pools]) for name in pools[0]}
    uniforms = torch.rand(2, 32, generator=torch.Generator().manual_seed(0))

    def batch(pool, uniform, step):
        return source.batch(pool, {"context": uniform}, step).tensors()

    mapped = torch.vmap(batch, in_dims=(0, 0, None))
    found = torch.compile(mapped, backend="eager", fullgraph=True, dynamic=False)(
        stacked, uniforms, torch.tensor(1)
    )
    for replica, pool in enumerate(pools):
        for name, value in batch(pool, uniforms[replica], torch.tensor(1)).items():
            assert torch.allclose(found[name][replica].double(), value.double(), atol=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"min_context": 0}, {"max_context": 256}, {"patterns": (0.0, 0.0, 0.0)}, {"refresh_every": 0}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        CurveSettings(**wrong)
