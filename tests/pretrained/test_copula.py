"""A copula for a network that is there: its predictions stay, and its targets are joined."""

from dataclasses import replace

import pytest
import torch

from dsvnp import Architecture, Transformer
from dsvnp.models.tnp import TNP
from dsvnp.networks import MLP
from dsvnp.pretrained import Card, save_pretrained
from dsvnp.pretrained.copula import CopulaSettings, joined, single, train_copula
from dsvnp.pretrained.training import _begun
from dsvnp.sources.priors.curves import CurvePrior, CurveSettings
from dsvnp.task import Task

STACK = Transformer(16, 1, 2, 16, (8,), equivariant=True, rotary=20.0)


def network(**changes) -> TNP:
    torch.manual_seed(0)
    settings = {"likelihood": "mixture", "num_components": 3, "sigma_form": "exp", "background": 1e-3}
    arch = Architecture(
        6, 1, **{**settings, "decoder": (8,), "coded_x": True, "transformer": STACK, **changes}
    )
    return TNP(arch).eval()


def some_task(count: int = 4) -> Task:
    source = CurvePrior(CurveSettings(count, 24, refresh_every=1, dimensions=(1, 0, 0)))
    generator = torch.Generator().manual_seed(5)
    pool = source.pool(generator, torch.device("cpu"))
    return source.batch(pool, {"context": torch.rand(count, generator=generator)}, torch.tensor(0))


def test_a_joined_network_predicts_each_target_as_before():
    model, task = network(), some_task()
    head = MLP([16], [5], 1 + 4)
    whole = joined(model, head, 4)
    one, other = whole.predict(task, 1), model.predict(task, 1)
    for name in ("loc", "scale", "log_weights"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name))
    assert whole.arch.decoder == (8 + 5,)
    assert not whole.training
    h = model.backbone.points(task, False)[1]
    share = torch.sigmoid(head(h)[..., 0])
    _, _, ties, _ = whole.likelihood.predictive(
        *whole.likelihood.components(whole.turn_rows(whole.decoder(h), task.x_target)[None, None])
    ).arrays()
    torch.testing.assert_close(ties.square().sum(-1)[0, 0], share, atol=1e-4, rtol=1e-4)


def test_training_changes_the_copula_alone_and_makes_functions_likelier():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gains: list[float] = []
    source = CurvePrior(CurveSettings(8, 24, refresh_every=2, dimensions=(1, 0, 0)))
    settings = CopulaSettings(rank=8, hidden=16, num_steps=60, learning_rate=1e-2, seed=3)
    whole = train_copula(model, source, settings, lambda step, gain: gains.append(gain))
    assert len(gains) == 60
    assert sum(gains[-20:]) / 20 > sum(gains[:5]) / 5 + 0.05
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    task = some_task(16)
    y, _ = task.all_points()
    counted = model.counted(task)
    p = whole.predict(task, 1)
    alone = torch.where(counted, model.predict(task, 1).log_prob(y), 0.0).sum()
    assert (p.log_prob_joint(y, counted).sum() - alone) / counted.sum() > 0.05
    again = train_copula(model, source, settings)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in whole.state_dict().items())


def test_a_gaussian_network_is_joined_as_well():
    model, task = network(likelihood="gaussian", sigma_floor=0.1), some_task()
    whole = joined(model, MLP([16], [5], 1 + 4), 4)
    one, other = whole.predict(task, 1), model.predict(task, 1)
    torch.testing.assert_close(one.mean, other.mean)
    torch.testing.assert_close(one.variance, other.variance)
    assert (one.epistemic > 0).all()
    assert (one.noise >= 0.1).all()


@pytest.mark.parametrize("likelihood", ["gaussian", "mixture"])
def test_a_network_without_its_copula_is_the_one_before(likelihood):
    model = network(likelihood=likelihood)
    back = single(joined(model, MLP([16], [5], 1 + 4), 4))
    assert back.arch == replace(model.arch, dim_functions=4)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in back.state_dict().items())
    assert single(model) is model


def test_pretraining_goes_on_without_the_copula(tmp_path):
    whole = joined(network(), MLP([16], [5], 1 + 4), 4)
    save_pretrained(whole, Card("curves"), tmp_path)
    begun = _begun("curves", tmp_path)
    assert (begun.arch.likelihood, begun.arch.decoder) == ("mixture", (8,))


@pytest.mark.parametrize("changes", [{"likelihood": "low-rank"}, {"decoder": (8, 8)}])
def test_a_network_without_such_a_head_is_refused(changes):
    with pytest.raises(
        ValueError, match="the likelihood gaussian or mixture and a decoder of one hidden layer, got"
    ):
        joined(network(**changes), MLP([16], [5], 5), 4)
