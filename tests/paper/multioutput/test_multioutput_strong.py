"""The strong recipe: what it chooses is chosen on training rows, and what it says is a mixture with a right spread."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import norm

from dsvnp.models import make_model
from dsvnp.paper.datasets.catalogue import DataTable
from dsvnp.paper.experiment import Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.multioutput import strong as multioutput_strong
from dsvnp.paper.multioutput.experiment import MultiOutputExperiment
from dsvnp.paper.multioutput.folds import RowPortions, Rows, Split, make_split
from dsvnp.paper.multioutput.search import SIZES, choose_contexts, leave_one_out
from dsvnp.paper.multioutput.strong import (
    NearMember,
    Strong,
    damp_additions,
    make_members,
    measure_ensemble,
    stretch_to_cover,
    stretched,
    train_and_measure_strong,
)
from dsvnp.paper.settings import make_experiment
from dsvnp.predictive import GaussianPredictive
from dsvnp.task import Task


def noisy_split(num_train: int) -> Split:
    """A split of which the training rows alone matter here."""
    rows = noisy_rows(num_train)
    index, ones = torch.arange(2), torch.ones(2)
    return Split(rows, rows.take(index), rows.take(index), index, index, ones, ones)


def noisy_rows(num_rows: int = 200) -> Rows:
    """One input that matters among six that do not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 7))
    y = np.stack([np.sin(2 * x[:, 3]), np.cos(2 * x[:, 3])], 1) + 0.05 * rng.normal(size=(num_rows, 2))
    return Rows(torch.from_numpy(x).float(), torch.from_numpy(y).float())


def test_leave_one_out_does_not_see_the_row_itself():
    rows, asked = noisy_rows(30), torch.tensor([4, 9])
    before = leave_one_out(rows, asked, torch.ones(7), 5)
    changed = Rows(rows.x, rows.y.clone())
    changed.y[asked] += 100
    alone = leave_one_out(changed, asked[:1], torch.ones(7), 5)
    distance = (rows.x - rows.x[4]).norm(dim=1)
    order = distance.argsort()[1:6]
    weights = torch.exp(-2 * (distance[order] / distance[order].mean()) ** 2)
    by_hand = (weights[:, None] * rows.y[order]).sum(0) / weights.sum()
    torch.testing.assert_close(before[0], by_hand)
    if 9 not in order:
        torch.testing.assert_close(alone[0], by_hand)


def test_selection_finds_the_input_that_matters():
    rows = noisy_rows()
    search = Strong(members=2, metrics=2, rounds=8).search()
    chosen = choose_contexts(rows, search, seed=0)
    assert chosen.metrics.shape == (4, 7)
    assert (chosen.metrics.argmax(1) == 3).all()
    assert chosen.metrics.square().mean(1).tolist() == pytest.approx([1.0] * 4, rel=1e-5)
    asked = torch.arange(200)

    def error(metric: torch.Tensor) -> float:
        return float((leave_one_out(rows, asked, metric, chosen.num_context) - rows.y).square().mean())

    assert max(error(metric) for metric in chosen.metrics) < 0.6 * error(torch.ones(7))
    again = choose_contexts(rows, search, seed=0)
    assert torch.equal(again.metrics, chosen.metrics)


@pytest.mark.parametrize(("as_good", "size"), [(0.0, None), (1e9, 24)])
def test_of_sizes_that_are_as_good_the_largest_is_taken(as_good, size):
    rows, ones = noisy_rows(), torch.ones(7)
    search = Strong(members=1, metrics=1, rounds=0, spreads=(0.0,), as_good=as_good).search()
    chosen = choose_contexts(rows, search, seed=0)
    assert torch.equal(chosen.metrics, ones[None])  # without a spread there is one metric only
    errors = {k: (leave_one_out(rows, torch.arange(200), ones, k) - rows.y).square().mean() for k in SIZES}
    assert chosen.num_context == (size or min(errors, key=errors.__getitem__))


def test_metrics_are_tried_with_each_spread():
    search = Strong(members=1, metrics=50, rounds=0, spreads=(0.01, 3.0)).search()
    found = choose_contexts(noisy_rows(), search, seed=0).metrics.log()
    wide = found.std(1) > 0.5
    assert 0 < wide.sum() < 50
    assert (found[~wide].std(1) < 0.05).all()


def test_depth_is_that_of_the_embedding_and_the_decoder():
    arch = Strong(width=8, depth=3).architecture(4, 2)
    assert (arch.embed_x_hidden, arch.encoder, arch.decoder) == ((8, 8, 8), (8,), (8, 8, 8))


def test_what_training_sees_of_the_latents_can_be_set():
    strong = Strong(posterior="context", train_global=5, train_local=4, beta_local=2.0, beta_global=3.0)
    assert strong.architecture(4, 2).posterior == "context"
    objective = strong.settings_of(10, "float32").objective
    assert (objective.num_local, objective.num_global) == (4, 5)
    assert (objective.beta_local, objective.beta_global) == (2.0, 3.0)


def test_spreads_must_be_some():
    with pytest.raises(ValueError, match="spreads must hold at least one number, got none"):
        Strong(spreads=())


def test_contexts_are_chosen_anew_only_where_a_setting_is_about_them(monkeypatch):
    searches = []
    real = multioutput_strong.choose_contexts
    monkeypatch.setattr(
        multioutput_strong, "choose_contexts", lambda *asked: (searches.append(asked), real(*asked))[1]
    )
    split, strong = noisy_split(60), Strong(members=2, metrics=1, rounds=0, spreads=[1.0])
    for others in ({}, {"learning_rate": 1.0, "width": 8, "recentre": False, "latent_hidden": [8]}):
        make_members(split, replace(strong, **others), 0)
    assert len(searches) == 1
    for number, change in enumerate(
        ({"flatten": False}, {"spreads": [2.0]}, {"as_good": 0.1}, {"rounds": 1})
    ):
        make_members(split, replace(strong, **change), 0)
        assert len(searches) == number + 2
    make_members(split, strong, 1)
    make_members(noisy_split(60), strong, 0)
    assert len(searches) == 7


@pytest.mark.parametrize("flatten", [True, False])
def test_inputs_are_flattened_where_that_is_set(monkeypatch, flatten):
    seen = []
    real_select, real_among = multioutput_strong.choose_contexts, NearMember.among

    def choose_contexts(rows, *others):
        seen.append(rows)
        return real_select(rows, *others)

    def among(self, rows, targets, itself=True):
        seen.extend([rows, targets])
        return real_among(self, rows, targets, itself)

    def predict_rows(self, net, targets, *others):
        return GaussianPredictive(targets.centre[None, None].transpose(2, 3), torch.ones(2))

    monkeypatch.setattr(multioutput_strong, "choose_contexts", choose_contexts)
    monkeypatch.setattr(NearMember, "among", among)
    monkeypatch.setattr(NearMember, "predict", predict_rows)
    split, strong = noisy_split(60), Strong(members=1, metrics=1, rounds=0, flatten=flatten)
    measure_ensemble([(None, *make_members(split, strong, seed=1))], split, strong)
    expected = np.arcsinh(split.train.x.numpy()) if flatten else split.train.x.numpy()
    assert len(seen) == 1 + 2 * 4  # metrics; damping, stretch, test, train: each of rows among rows
    for rows in seen:
        distance = np.abs(rows.x.numpy()[:, None] - expected[None]).max(-1)
        assert distance.min(1).max() < 1e-6


def test_layers_behind_the_mean_reach_the_networks():
    strong = Strong(width=8, dim_lat=4, latent_hidden=[6])
    few, more = (make_model("np", s.architecture(8, 2)) for s in (replace(strong, latent_hidden=()), strong))
    sizes = [sum(p.numel() for p in net.z_global.head.parameters()) for net in (few, more)]
    assert sizes == [4 * 8 + 8, (4 * 6 + 6) + (6 * 8 + 8)]


def test_members_hold_out_different_rows_and_have_metrics_of_their_own():
    members = make_members(noisy_split(60), Strong(members=3, metrics=2, rounds=0), seed=1)
    held_out = [set(map(tuple, member.held_out.x.tolist())) for member in members]
    assert [len(part) for part in held_out] == [12, 12, 12]  # of five parts
    assert len(set.union(*held_out)) == 36
    for member, part in zip(members, held_out, strict=True):
        assert not part & set(map(tuple, member.train.x.tolist()))
        assert len(member.train.x) == 48
        assert member.metrics.shape == (2, 7)
    assert len(torch.cat([member.metrics for member in members]).unique(dim=0)) == 6


def test_a_member_that_says_nothing_predicts_the_mean_of_its_neighbours_in_each_metric():
    rows = noisy_rows(60)
    (member,) = make_members(noisy_split(60), Strong(members=1, metrics=3, rounds=0), seed=1)
    net, without = (make_model("np", Strong(width=8, dim_lat=4).architecture(dim_x, 2)) for dim_x in (10, 8))
    for parameter in (*net.decoder.parameters(), *without.decoder.parameters()):
        parameter.data.zero_()
    targets = member.among(rows, Rows(rows.x[:5], rows.y[:5]))
    predictive = member.predict(net, targets, 4)
    assert predictive.shape == (12, 1, 1, 5, 2)
    centres = targets.centre.reshape(3, 5, 2)
    torch.testing.assert_close(predictive.loc[:, 0, 0].reshape(3, 4, 5, 2)[:, 0], centres)
    torch.testing.assert_close(predictive.mean[0], centres.mean(0))
    (apart,) = make_members(noisy_split(60), Strong(members=1, metrics=3, rounds=0, recentre=False), seed=1)
    assert not apart.predict(without, apart.among(rows, Rows(rows.x[:5], rows.y[:5])), 4).mean.any()
    net.decoder.rest[-1].bias.data[:2] = torch.tensor([1.0, -2.0])  # now it adds something
    added = member.predict(net, targets, 4, torch.tensor([0.5, 0.25])).mean[0] - centres.mean(0)
    torch.testing.assert_close(added, torch.tensor([0.5, -0.5]).expand(5, 2))


def test_damping_is_the_least_squares_of_what_networks_add(monkeypatch):
    members = make_members(noisy_split(60), Strong(members=2, metrics=2, rounds=0), seed=1)
    believed = torch.tensor([0.4, 3.0])

    def predict_rows(self, net, targets, num_global, damping=1.0):
        centre = targets.centre.reshape(2, -1, 2)
        added = (
            self.held_out.y - centre.mean(0)
        ) / believed  # of which 40 %, or more than all, would be right
        return GaussianPredictive((centre + added)[:, None, None], torch.ones(2))

    monkeypatch.setattr(NearMember, "predict", predict_rows)
    damping = damp_additions([(None, member) for member in members], 4)
    assert damping.tolist() == pytest.approx([0.4, 1.0], rel=1e-4)


def test_the_spread_is_stretched_until_intervals_cover():
    generator = torch.Generator().manual_seed(0)
    y = 3 * torch.randn(1, 4000, 2, generator=generator)
    task = Task.from_sets(y, y, y, y)
    predictive = GaussianPredictive(torch.zeros(2, 1, 1, 4000, 2), torch.full((2,), 1.5))
    factor = stretch_to_cover(predictive, task)
    assert factor == pytest.approx(2, rel=0.05)
    apart = GaussianPredictive(torch.tensor([-1.0, 1.0]).reshape(2, 1, 1, 1, 1), torch.tensor([0.5]))
    wide = stretched(apart, 3.0)
    assert wide.mean.item() == pytest.approx(0)
    assert wide.variance.item() == pytest.approx(9 * apart.variance.item())
    assert wide.loc.flatten().tolist() == [-3.0, 3.0]
    assert norm.cdf(1.0) == pytest.approx(
        float(stretched(predictive, 2.0).cdf(torch.tensor([[[3.0]]]))[0, 0, 0])
    )


@pytest.mark.parametrize(
    ("name", "change"), [("cnp", {}), ("dsvnp", {}), ("cnp", {"flatten": False, "recentre": False})]
)
def test_it_learns_what_neighbours_get_wrong(tmp_path, name, change):
    """A slope: the mean of neighbours is off wherever these lie on one side, and they do near the edges."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(240, 4))
    y = x @ rng.normal(size=(4, 2)) + 0.02 * rng.normal(size=(240, 2))
    split = make_split(DataTable("made", x, y, (), (), ""), 0, RowPortions(0.2, 5), torch.device("cpu"))
    strong = Strong(
        members=1, metrics=2, rounds=0, epochs=60, learning_rate=1e-2, batch_size=32, width=16, dim_lat=8
    )
    place = Workplace(tmp_path, torch.device("cpu"), Console(file=io.StringIO()))
    experiment = make_experiment(MultiOutputExperiment, "smoke")
    changed = replace(strong, **change)
    (measured,) = train_and_measure_strong(
        experiment, changed, Label(name, "strong", "made"), [split], [0], place
    )
    flat = Rows(split.train.x.asinh(), split.train.y)
    (member,) = make_members(split, strong, 0)
    centre = member.among(flat, Rows(split.test.x.asinh(), split.test.y)).centre.reshape(2, -1, 2).mean(0)
    neighbours = float((centre - split.test.y).square().mean())
    assert measured.scores["mse", "test", "standard"] < 0.75 * neighbours
    assert 0.75 < measured.scores["coverage-90", "test", "share"] < 0.99
