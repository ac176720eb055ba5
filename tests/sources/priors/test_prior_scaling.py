"""Scaling by the context: against a loop in NumPy, and without a look at targets."""

import numpy as np
import pytest
import torch

from dsvnp.sources.priors.scaling import context_sizes, output_scale, seen_classes, soft_clip, standardise


def example(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 40, 5, generator=generator, dtype=torch.float64) * 10 + 100
    x[0, :, 1] = torch.exp(x[0, :, 1] / 5 - 20)  # skewed
    x[torch.rand(x.shape, generator=generator) < 0.2] = torch.nan
    x[1, 3, 2] = 1e6  # an outlier in the context
    used = torch.tensor([[True] * 5, [True, True, True, False, False], [True] + [False] * 4])
    in_context = torch.arange(40) < torch.tensor([[10], [25], [5]])
    mask = torch.arange(40) < torch.tensor([[40], [38], [30]])
    return x, used, in_context, mask


def naive(x, used, in_context, mask, clip=4.0):
    """The same in a loop over columns."""
    batch, rows, columns = x.shape
    out = np.zeros((batch, rows, 2 * columns))
    for b in range(batch):
        for j in range(columns):
            column = x[b, :, j].numpy()
            if not used[b, j]:
                out[b, :, columns + j] = -1
                continue
            there = ~np.isnan(column) & mask[b].numpy()
            out[b, ~there, columns + j] = 1
            known = column[there & in_context[b].numpy()]
            low, high = known.mean() - 3 * known.std(), known.mean() + 3 * known.std()
            inner = np.clip(known, low, high)
            z = (column[there] - inner.mean()) / inner.std()
            far = np.abs(z) > clip
            z[far] = np.sign(z[far]) * (clip + np.log1p(np.abs(z[far]) - clip))
            out[b, there, j] = z
    return torch.tensor(out)


def test_against_a_loop():
    assert torch.allclose(standardise(*example()), naive(*example()), atol=1e-10)


def test_doubles_far_from_zero_are_scaled_and_rounding_is_not():
    """Seconds since 1970 vary by a millionth of their size within half an hour; so may an output."""
    seconds = torch.linspace(0, 1800, 40, dtype=torch.float64)[None, :, None].repeat(1, 1, 2)
    seconds[..., 1] = 0.1  # its mean is not 0.1, by rounding
    all_used, everywhere = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 40, dtype=torch.bool)
    near, far = (
        standardise(seconds + offset, all_used, everywhere, everywhere)[..., :2] for offset in (0.0, 1.79e9)
    )
    assert torch.allclose(near, far, atol=1e-6)
    assert near[..., 0].std() > 0.9
    assert torch.equal(near[..., 1], torch.zeros(1, 40, dtype=torch.float64))
    assert float(output_scale(seconds[..., 0] + 1.79e9, everywhere)[1]) == pytest.approx(
        float(seconds[..., 0].std(correction=0)), rel=1e-6
    )
    assert float(output_scale(seconds[..., 1], everywhere)[1]) == 1
    single = (seconds[..., 0] + 1.79e9).float()  # of these differences rounding is a good part
    assert float(output_scale(single, everywhere)[1]) == 1


def test_targets_change_nothing_but_themselves():
    x, used, in_context, mask = example()
    before = standardise(x, used, in_context, mask)
    changed = torch.where(in_context.unsqueeze(-1), x, x * 3 - 7)
    after = standardise(changed, used, in_context, mask)
    assert torch.equal(before[in_context], after[in_context])
    alone = x.clone()
    alone[:, 39] = 123.0
    assert torch.equal(standardise(alone, used, in_context, mask)[:, :39], before[:, :39])


def test_unused_columns_and_empty_slots_carry_nothing():
    x, used, in_context, mask = example()
    noise = torch.where(used.unsqueeze(1) & mask.unsqueeze(-1), x, 1e9)
    assert torch.equal(standardise(noise, used, in_context, mask), standardise(x, used, in_context, mask))


def test_units_do_not_matter():
    x, used, in_context, mask = example()
    scaled = standardise(x * 1e4 - 3e5, used, in_context, mask)
    assert torch.allclose(scaled, standardise(x, used, in_context, mask), atol=1e-8)


@pytest.mark.parametrize("value", [0.0, 5.0, 12345.678])
def test_a_column_that_is_constant_in_the_context_is_zero(value):
    x = torch.full((1, 10, 1), value)
    x[0, 7:] = 99.0
    flags = torch.arange(10).unsqueeze(0) < 7
    scaled = standardise(x, torch.ones(1, 1, dtype=torch.bool), flags, torch.ones_like(flags))
    assert (scaled == 0).all()


def test_a_column_without_a_value_in_the_context_is_finite():
    x = torch.full((1, 6, 1), torch.nan)
    x[0, 5] = 3.0
    flags = torch.arange(6).unsqueeze(0) < 4
    scaled = standardise(x, torch.ones(1, 1, dtype=torch.bool), flags, torch.ones_like(flags))
    assert scaled[0, :, 0].tolist() == [0] * 6
    assert scaled[0, :, 1].tolist() == [1] * 5 + [0]


def test_soft_clip_is_monotone_and_the_identity_inside():
    values = torch.linspace(-50, 50, 1001)
    clipped = soft_clip(values, 4.0)
    assert (clipped.diff() > 0).all()
    inside = values.abs() <= 4
    assert torch.equal(clipped[inside], values[inside])
    assert clipped.abs().max() < 8


def test_output_scale_reads_the_context_only():
    y = torch.tensor([[1.0, 3.0, 500.0], [2.0, 2.0, 9.0]])
    mean, std = output_scale(y, torch.tensor([[True, True, False]] * 2))
    assert mean.tolist() == [[2.0], [2.0]]
    assert std.tolist() == [[1.0], [1.0]]  # the second does not vary


def test_context_sizes_cover_their_range():
    sizes = context_sizes(torch.linspace(0, 1 - 1e-6, 4001), 5, 448)
    assert sizes[0] == 5
    assert sizes[-1] == 448
    assert (sizes.diff() >= 0).all()
    assert (sizes < 50).float().mean() > 0.3
    assert (sizes > 200).float().mean() > 0.2
    largest = torch.tensor([5, 7, 100])
    assert torch.equal(context_sizes(torch.full((3,), 0.999), 5, largest), largest)


def test_seen_classes_against_a_loop():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 10, (50, 12), generator=generator)
    in_context = torch.arange(12).expand(50, 12) < 6
    new, known = seen_classes(labels, in_context, 10)
    for row in range(50):
        number = {label: place for place, label in enumerate(sorted(set(labels[row, :6].tolist())))}
        assert known[row].tolist() == [label in number for label in labels[row].tolist()]
        assert new[row].tolist() == [number.get(label, 0) for label in labels[row].tolist()]
