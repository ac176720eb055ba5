"""TablePrior: a generator decides all, targets leak into nothing, and a batch is pure."""

import pytest
import torch

from dsvnp.sources.priors import TablePrior, TableSettings
from dsvnp.task import Task

CPU = torch.device("cpu")
SETTINGS = TableSettings(batch_size=16, num_rows=48, max_columns=8, refresh_every=4)


def make_pool(settings: TableSettings = SETTINGS, seed: int = 0) -> dict[str, torch.Tensor]:
    return TablePrior(settings).pool(torch.Generator().manual_seed(seed), CPU)


def make_batch(pool, settings: TableSettings = SETTINGS, step: int = 0, seed: int = 0) -> Task:
    uniforms = {"context": torch.rand(settings.batch_size, generator=torch.Generator().manual_seed(seed))}
    return TablePrior(settings).batch(pool, uniforms, torch.tensor(step))


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name].nan_to_num(1e9), b[name].nan_to_num(1e9)) for name in a)


def test_the_generator_decides_and_the_global_one_is_left_alone():
    before = torch.get_rng_state()
    assert same(make_pool(seed=3), make_pool(seed=3))
    assert not same(make_pool(seed=3), make_pool(seed=4))
    assert torch.equal(torch.get_rng_state(), before)


def test_shapes_values_and_masks():
    pool = make_pool()
    for step in range(4):
        task = make_batch(pool, step=step, seed=step)
        task.check()
        assert task.x_target.shape == (16, 48, 16)
        assert task.y_target.shape == (16, 48, 2)
        assert task.y_target.isfinite().all()
        sizes = task.mask_context.sum(1)
        assert sizes.min() >= 5
        assert sizes.max() <= 42
        values, codes = task.x_target.chunk(2, dim=-1)
        assert set(codes.unique().tolist()) <= {-1.0, 0.0, 1.0}
        assert (values[codes != 0] == 0).all()
        assert values.abs().max() < 20


def test_each_table_is_used_once():
    pool = make_pool()
    rows = torch.arange(64).float()
    pool["y"] = rows[:, None].expand(64, 48).contiguous()
    pool["is_class"] = torch.zeros(64, dtype=torch.bool)
    pool["x"][..., 0] = torch.linspace(0, 1, 48) + rows[:, None]
    seen = [make_batch(pool, step=step).x_target for step in range(4)]
    assert len({tensor[0, 0, 1:].sum().item() for tensor in seen}) == 4
    assert torch.equal(make_batch(pool, step=4).x_target, seen[0])


def test_half_of_the_tables_have_classes_in_every_chunk():
    pool = make_pool()
    assert pool["is_class"].float().mean() == 0.5
    labels = pool["y"][pool["is_class"]]
    assert torch.equal(labels, labels.round())
    assert labels.min() >= 0
    assert labels.max() <= 9


def test_labels_are_numbered_by_the_context_and_others_are_masked():
    pool = make_pool(TableSettings(batch_size=64, num_rows=48, max_columns=4, classes=1.0, refresh_every=1))
    settings = TableSettings(
        batch_size=64, num_rows=48, max_columns=4, max_context=6, classes=1.0, refresh_every=1
    )
    task = make_batch(pool, settings)
    assert (task.y_target[..., 1] == 1).all()
    for row in range(64):
        known = task.y_target[row, task.mask_context[row], 0].unique()
        assert known.tolist() == list(range(len(known)))
        asked = task.y_target[row, task.mask_target[row], 0].unique()
        assert set(asked.tolist()) <= set(known.tolist())
    assert not task.mask_target.all()  # some classes are not in so small a context


def test_numbers_are_standardised_by_the_context():
    task = make_batch(
        make_pool(settings := TableSettings(16, 48, max_columns=4, classes=0.0, refresh_every=4)), settings
    )
    assert task.y_target.shape == (16, 48, 1)
    for row in range(16):
        y = task.y_target[row, task.mask_context[row], 0]
        assert abs(float(y.mean())) < 1e-4
        assert abs(float(y.std(correction=0)) - 1) < 1e-3 or float(y.std()) == 0


def test_targets_do_not_leak():
    pool = make_pool()
    task = make_batch(pool)
    outside = ~task.mask_context
    changed = dict(pool)
    changed["y"] = pool["y"].clone()
    first = changed["y"][:16]
    first[outside & ~pool["is_class"][:16, None]] += 5.0
    again = make_batch(changed)
    assert torch.equal(again.x_target, task.x_target)
    inside = task.mask_context
    assert torch.equal(again.y_target[inside], task.y_target[inside])
    numbers = outside & ~pool["is_class"][:16, None]
    assert not torch.equal(again.y_target[numbers], task.y_target[numbers])
    changed["y"] = pool["y"]
    changed["x"] = pool["x"].clone()
    changed["x"][:16][outside] = 0.123
    assert torch.equal(make_batch(changed).x_target[inside], task.x_target[inside])


def test_unused_columns_carry_no_information():
    pool = make_pool()
    task = make_batch(pool)
    junk = dict(pool)
    junk["x"] = torch.where(pool["used"].unsqueeze(1), pool["x"], 77.0)
    assert torch.equal(make_batch(junk).x_target, task.x_target)
    codes = task.x_target[..., 8:]
    assert torch.equal((codes == -1).all(1), ~pool["used"][:16])
    assert (pool["x"].mT[~pool["used"]] == 0).all()


def test_numbers_of_columns_cover_their_range():
    settings = TableSettings(batch_size=400, num_rows=12, min_columns=2, max_columns=6, refresh_every=1)
    number = make_pool(settings)["used"].sum(1)
    assert set(number.tolist()) == {2, 3, 4, 5, 6}
    assert (number <= 4).float().mean() > 0.5


def test_most_tables_vary_and_none_is_all_nan():
    pool = make_pool(TableSettings(batch_size=500, num_rows=64, max_columns=6, refresh_every=1))
    spread = pool["y"].std(1)
    assert (spread > 0.1).float().mean() > 0.97
    first = pool["x"][..., 0]
    assert not first.isnan().all(1).any()


def test_a_batch_compiles_whole_and_maps_over_replicas():
    source = TablePrior(SETTINGS)
    pools = [make_pool(seed=seed) for seed in (0, 1)]
    stacked = {name: torch.stack([pool[name] for pool in pools]) for name in pools[0]}
    uniforms = torch.rand(2, 16, generator=torch.Generator().manual_seed(0))

    def batch(pool, uniform, step):
        return source.batch(pool, {"context": uniform}, step).tensors()

    mapped = torch.vmap(batch, in_dims=(0, 0, None))
    found = torch.compile(mapped, backend="eager", fullgraph=True, dynamic=False)(
        stacked, uniforms, torch.tensor(1)
    )
    for replica, pool in enumerate(pools):
        expected = batch(pool, uniforms[replica], torch.tensor(1))
        for name, value in expected.items():
            assert torch.allclose(found[name][replica].double(), value.double(), atol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_context": 0},
        {"max_context": 48, "num_rows": 48},
        {"min_columns": 5, "max_columns": 4},
        {"max_classes": 1},
        {"classes": 1.5},
        {"batch_size": 0},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        TableSettings(**wrong)
