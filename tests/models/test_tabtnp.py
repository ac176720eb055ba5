"""TabTNP against a loop over cells and rows, and what it promises about columns."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dsvnp import Architecture, Task, Transformer, make_model
from dsvnp.models.tabtnp import FREQUENCIES, NUM_CODES

SMALL = Transformer(width=8, num_layers=2, num_heads=2, feedforward=12)
ARCH = Architecture(6, 1, decoder=(7,), cells=SMALL, transformer=Transformer(10, 2, 2, 14), coded_x=True)


def made(arch: Architecture = ARCH, seed: int = 0):
    torch.manual_seed(seed)
    return make_model("tabtnp", arch).double()


def table(columns: int = 3, rows: int = 7, known: int = 4, seed: int = 1) -> Task:
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(2, rows, columns, generator=g, dtype=torch.float64)
    code = torch.zeros_like(values)
    code[0, 2, 0] = 1.0  # missing
    values[0, 2, 0] = 0.0
    y = torch.randn(2, rows, 1, generator=g, dtype=torch.float64)
    in_context = (torch.arange(rows) < known).expand(2, -1).clone()
    in_context[1, 1] = False
    return Task.from_points(torch.cat([values, code], -1), y, in_context)


# --- by a loop ---


def attention(layer, queries: Tensor, others: Tensor) -> Tensor:
    """One layer for a single token [W] that attends to others [N, W], head by head."""
    width, heads = len(queries), layer.num_heads
    size = width // heads
    w_q, w_k, w_v = layer.project.weight.split(width)
    b_q, b_k, b_v = layer.project.bias.split(width)
    q = w_q @ layer.norm_attention(queries) + b_q
    found = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        keys = [(w_k @ layer.norm_attention(o) + b_k)[part] for o in others]
        values = [(w_v @ layer.norm_attention(o) + b_v)[part] for o in others]
        scores = torch.stack([q[part] @ k / math.sqrt(size) for k in keys]) if keys else torch.zeros(0)
        weights = (scores - scores.max()).exp() if keys else scores
        total = sum((w * v for w, v in zip(weights, values, strict=True)), torch.zeros(size, dtype=q.dtype))
        found.append(total / weights.sum() if keys else total)
    h = queries + layer.mix(torch.cat(found))
    return h + layer.contract(F.gelu(layer.expand(layer.norm_forward(h))))


def by_loop(model, x: Tensor, y: Tensor, known: list[int]) -> list[Tensor]:
    """Raw outputs of each row of one table with all columns in use."""
    cells, rows, columns = model.cells, x.shape[0], x.shape[1] // 2
    grid = []
    for i in range(rows):
        line = []
        for j in range(columns):
            value, missing = x[i, j], float(x[i, columns + j] == 1)
            angles = [value * math.pi / 4 * 2**k for k in range(FREQUENCIES)]
            features = torch.stack(
                [value, value.new_tensor(missing), *map(torch.sin, angles), *map(torch.cos, angles)]
            )
            line.append(cells.value(features) + cells.name.weight @ cells.codes[j])
        line.append(cells.output(y[i]) if i in known else cells.unknown)
        grid.append(line)
    for row, column in zip(cells.in_row, cells.in_column, strict=True):
        grid = [[attention(row, token, line) for token in line] for line in grid]
        grid = [
            [attention(column, grid[i][j], [grid[k][j] for k in known]) for j in range(columns + 1)]
            for i in range(rows)
        ]
    h = []
    for i, line in enumerate(grid):
        token = cells.pool(line[-1], torch.stack(line[:-1]).mean(0))
        h.append(token + model.output(y[i]) if i in known else token)
    for layer in model.trunk.layers:
        h = [attention(layer, token, [h[k] for k in known]) for token in h]
    return [model.decoder(model.trunk.norm(token)) for token in h]


@torch.no_grad()
def test_the_whole_network_is_what_a_loop_over_cells_gives():
    model, task = made(), table()
    log_likelihood = model.draws(task, {}).log_likelihood[0, 0]
    for b in range(2):
        known = task.in_context[b].nonzero().flatten().tolist()
        raw = by_loop(model, task.x_target[b], task.y_target[b], known)
        for i in set(range(7)) - set(known):
            expected = model.likelihood.log_prob(raw[i], task.y_target[b, i])
            assert log_likelihood[b, i].item() == pytest.approx(expected.item(), abs=1e-10)


@torch.no_grad()
def test_prediction_is_what_training_scores():
    model, task = made(), table()
    trained = model.draws(task, {}).log_likelihood[0, 0]
    assert torch.allclose(
        model.predict(task).log_prob(task.y_target)[~task.in_context], trained[~task.in_context]
    )


# --- columns ---


@torch.no_grad()
def test_unused_columns_change_nothing_whatever_they_hold():
    model, task = made(), table()
    values, code = task.x_target.chunk(2, -1)
    rest = torch.randn(2, 7, 2, dtype=torch.float64)
    wider = torch.cat([values, rest, code, torch.full_like(rest, -1.0)], -1)
    other = Task.from_points(wider, task.y_target, task.in_context)
    assert torch.allclose(model.predict(task).mean, model.predict(other).mean)


@torch.no_grad()
def test_a_missing_value_is_read_as_missing_and_not_as_its_number():
    model, task = made(), table()
    values, code = task.x_target.chunk(2, -1)
    seen = Task.from_points(torch.cat([values, torch.zeros_like(code)], -1), task.y_target, task.in_context)
    assert not torch.allclose(model.predict(task).mean[0], model.predict(seen).mean[0])
    assert torch.allclose(
        model.predict(task).mean[1], model.predict(seen).mean[1]
    )  # nothing is missing there


@torch.no_grad()
def test_columns_in_another_order_with_their_codes_give_the_same():
    model, task = made(), table()
    order = torch.tensor([2, 0, 1])
    values, code = task.x_target.chunk(2, -1)
    moved = Task.from_points(
        torch.cat([values[..., order], code[..., order]], -1), task.y_target, task.in_context
    )
    first = model.predict(task).mean
    assert not torch.allclose(model.predict(moved).mean, first)  # codes tell columns apart
    model.cells.codes[:3] = model.cells.codes[order]
    assert torch.allclose(model.predict(moved).mean, first)


@pytest.mark.parametrize("columns", [1, 2, NUM_CODES])
def test_any_number_of_columns_is_taken(columns):
    task = table(max(columns, 1))
    assert made().predict(task).mean.isfinite().all()


@pytest.mark.parametrize("features", [5, 2 * NUM_CODES + 2])
def test_codes_that_are_missing_and_too_many_columns_are_refused(features):
    x = torch.zeros(1, 3, features, dtype=torch.float64)
    task = Task.from_points(x, x[..., :1], torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match=f"x has {features} features"):
        made().predict(task)


def test_an_embedding_and_codes_exclude_each_other():
    with pytest.raises(ValueError, match="use one of the two"):
        make_model("tabtnp", Architecture(6, 1, embed_x="mlp", coded_x=True))
