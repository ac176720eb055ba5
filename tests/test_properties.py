"""Properties that hold for every shape, mask and scale: hypothesis looks for one that breaks them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from dsvnp.models import MODELS, Architecture, NeuralProcess, Transformer, make_model  # noqa: E402
from dsvnp.sources.base import Standardizer  # noqa: E402
from dsvnp.sources.priors.scaling import output_scale, standardise  # noqa: E402
from dsvnp.task import Task  # noqa: E402

QUICK = settings(max_examples=25, deadline=None, derandomize=True, database=None)
# TabTNP reads channels of its own, see tests/models/test_tabtnp.py
NAMES = [*sorted(set(MODELS) - {"tabtnp"}), "attnnp-block"]
SCALES = st.integers(-30, 30).map(lambda power: 10.0**power)


@cache
def model_of(name: str) -> NeuralProcess:
    transformer = Transformer(width=8, num_layers=1, num_heads=2, feedforward=8, embedder=(8,))
    arch = Architecture(2, 2, encoder=(8,), dim_lat=4, decoder=(8,), dropout=0.5, transformer=transformer)
    if name == "attnnp-block":
        name, arch = "attnnp", replace(arch, attention="block", num_heads=2, self_attention=1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make_model(name, arch).double().eval()


@st.composite
def tasks(draw) -> Task:
    """A batch of any size with any masks, down to no context and one target, or to no task at all."""
    b, c = draw(st.integers(0, 3)), draw(st.integers(0, 4))
    t = draw(st.integers(1 if b else 0, 5))
    g = torch.Generator().manual_seed(draw(st.integers(0, 1000)))

    def some(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    def mask(points):
        flags = draw(st.lists(st.booleans(), min_size=b * points, max_size=b * points))
        return torch.tensor(flags, dtype=torch.bool).reshape(b, points)

    asked = mask(t)
    asked[:, :1] = True  # a task without a target is refused
    return Task.from_sets(some(b, c, 2), some(b, c, 2), some(b, t, 2), some(b, t, 2), mask(c), asked)


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(task=tasks(), num_global=st.integers(1, 3), num_local=st.integers(1, 2))
def test_predictions_have_the_targets_shape_and_are_finite(name, task, num_global, num_local):
    prediction = model_of(name).predict(task, num_global, num_local)
    assert prediction.mean.shape == (task.num_tasks, task.num_targets, 2)
    assert prediction.mean.isfinite().all()
    assert (prediction.variance > 0).all()


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(task=tasks())
def test_the_objective_is_finite_and_empty_slots_count_for_nothing(name, task):
    model = model_of(name)
    noise = model.draw_noise(task.joined())
    bound = model.objective(task, noise=noise)
    garbage = torch.where(task.mask_target.unsqueeze(-1), task.y_target, 7.0)
    other = model.objective(Task(**{**task.tensors(), "y_target": garbage}), noise=noise)
    for part in ("log_likelihood", "kl_local", "kl_global"):
        value = getattr(bound, part)
        assert value.isfinite().all()
        torch.testing.assert_close(value.sum(), getattr(other, part).sum(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(task=tasks(), chunk=st.integers(1, 4))
def test_predicting_in_chunks_changes_nothing(name, task, chunk):
    model = model_of(name)
    noise = model.draw_noise(task, 2, shared=True)
    whole = model.predict(task, noise=noise).mean
    torch.testing.assert_close(
        model.predict(task, noise=noise, chunk=chunk).mean, whole, rtol=1e-9, atol=1e-12
    )


# --- scales ---


@settings(QUICK, max_examples=100)
@given(
    rows=st.integers(1, 6),
    scales=st.lists(SCALES, min_size=1, max_size=3),
    shift=st.sampled_from([0.0, 1.0, -1e3]),
    constant=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_standardizer_gives_back_what_it_was_given(rows, scales, shift, constant, seed):
    g = torch.Generator().manual_seed(seed)
    x = (torch.randn(rows, len(scales), generator=g, dtype=torch.float64) + shift) * torch.tensor(
        scales
    ).double()
    if constant:
        x[:, 0] = x[0, 0]
    scaler = Standardizer.fit(x)
    scaled = scaler.transform(x)
    assert scaled.isfinite().all()
    # A column that varies has unit variance; one that does not has no scale.
    spread = x.std(0, correction=0)
    varies = spread > 1e-9 * x.abs().amax(0)
    torch.testing.assert_close(scaled.std(0, correction=0)[varies], torch.ones(int(varies.sum())).double())
    back = scaler.inverse(scaled)
    torch.testing.assert_close(
        back / x.abs().amax(0).clamp(min=1e-300), x / x.abs().amax(0).clamp(min=1e-300)
    )


@settings(QUICK, max_examples=100)
@given(scale=SCALES, points=st.integers(1, 6), seed=st.integers(0, 1000), context=st.integers(0, 6))
def test_scaling_by_the_context_is_finite_and_does_not_depend_on_the_unit(scale, points, seed, context):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(2, points, 3, generator=g, dtype=torch.float64)
    used, mask = torch.ones(2, 3, dtype=torch.bool), torch.ones(2, points, dtype=torch.bool)
    inside = (torch.arange(points) < context).expand(2, -1)
    plain, other = (standardise(values, used, inside, mask) for values in (x, x * scale))
    assert other.isfinite().all()
    if scale > 1e-25:  # what varies by less than 1e-30 counts as constant
        torch.testing.assert_close(other, plain, rtol=1e-6, atol=1e-6)
    mean, std = output_scale(x[..., 0] * scale, inside)
    assert mean.isfinite().all()
    assert (std > 0).all()
