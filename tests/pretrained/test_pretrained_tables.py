"""A network for tables on a user's rows: units, orders of columns and classes, and tables larger than a context."""

import pytest
import torch

from dsvnp import Architecture, Transformer, make_model
from dsvnp.pretrained.tables import TableUse, contexts, predict_classes, predict_numbers

SMALL = Transformer(8, 1, 2, 8)
SIZES = {"cells": SMALL, "transformer": SMALL, "decoder": (8,), "coded_x": True}


def network(likelihood: str, dim_y: int):
    torch.manual_seed(0)
    return make_model("tabtnp", Architecture(4, dim_y, likelihood, num_components=3, **SIZES)).eval()


def table(rows: int = 30, columns: int = 3, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=g, dtype=torch.float64)
    x[2, 1] = torch.nan
    return x, x[:, 0] + 0.1 * torch.randn(rows, generator=g, dtype=torch.float64)


def test_a_prediction_follows_the_users_units():
    model, (x, y) = network("mixture", 1), table()
    plain = predict_numbers(model, x[:20], y[:20], x[20:])
    assert plain.shape == (4, 3, 1, 10, 1)
    units = torch.tensor([1e3, 1e-3, 7.0], dtype=torch.float64)
    other = predict_numbers(model, 5 + x[:20] * units, 300 + 40 * y[:20], 5 + x[20:] * units)
    torch.testing.assert_close(other.mean, 300 + 40 * plain.mean, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(other.stddev, 40 * plain.stddev, rtol=1e-4, atol=1e-2)


def test_one_order_is_the_networks_own_answer_and_more_are_a_mixture():
    model, (x, y) = network("mixture", 1), table()
    one = predict_numbers(model, x[:20], y[:20], x[20:], TableUse(num_orders=1))
    four = predict_numbers(model, x[:20], y[:20], x[20:], TableUse(num_orders=4))
    torch.testing.assert_close(four.loc[:1], one.loc)
    assert not torch.allclose(four.loc[1], four.loc[0])
    density = torch.stack(
        [four.map(lambda a, k=k: a[k : k + 1]).log_prob(y[20:][None, :, None]) for k in range(4)]
    )
    torch.testing.assert_close(
        four.log_prob(y[20:][None, :, None]), density.logsumexp(0) - torch.tensor(4.0).log()
    )


def test_classes_come_back_under_their_own_numbers():
    model, (x, _) = network("categorical", 3), table(60)
    labels = (x[:, 0] > 0).long() + (x[:, 0] > 1).long()
    known, targets, seed = (x[:50], labels[:50]), x[50:], 5
    two = predict_classes(model, *known, targets, TableUse(num_orders=2, seed=seed))
    assert two.shape == (2, 1, 1, 10, 3)
    order = torch.randperm(3, generator=torch.Generator().manual_seed(seed))
    number = torch.randperm(3, generator=torch.Generator().manual_seed(seed + 1))
    assert number.tolist() not in ([0, 1, 2], number.argsort().tolist())  # a way and its way back differ
    moved = predict_classes(
        model, known[0][:, order], number[known[1]], targets[:, order], TableUse(num_orders=1)
    )
    for label in range(3):
        torch.testing.assert_close(two.log_probs[1, ..., label], moved.log_probs[0, ..., number[label]])


def test_a_large_table_is_cut_and_every_target_is_answered_once():
    x, y = table(300, 2)
    use = TableUse(num_orders=1, max_context=40, max_parts=4)
    cuts = list(contexts(x[:200], x[200:], use))
    assert len(cuts) == 4
    assert sorted(torch.cat([rows for rows, _ in cuts]).tolist()) == list(range(100))
    assert all(len(near) == 40 for _, near in cuts)
    known, targets = x[:200].nan_to_num(0.0), x[200:].nan_to_num(0.0)
    for rows, near in cuts:  # rows that are read lie nearer to the targets than those that are not
        centre = targets[rows].mean(0)
        far = torch.ones(200, dtype=torch.bool).index_fill(0, near, False)
        assert (known[near] - centre).norm(dim=-1).mean() < (known[far] - centre).norm(dim=-1).mean()
    whole = predict_numbers(network("mixture", 1), x[:200], y[:200], x[200:], use)
    rows, near = cuts[1]
    part = predict_numbers(network("mixture", 1), x[near], y[near], x[200:][rows], use)
    torch.testing.assert_close(whole.mean[:, rows], part.mean)


def test_small_tables_are_not_cut_and_equal_rows_end_the_cutting():
    x = torch.zeros(50, 2, dtype=torch.float64)
    assert len(list(contexts(x, x[:10], TableUse(max_context=50)))) == 1
    assert len(list(contexts(x, x[:10], TableUse(max_context=10)))) == 1


@pytest.mark.parametrize("name", ["num_orders", "max_context", "max_parts"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        TableUse(**{name: 0})
