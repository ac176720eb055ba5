"""Whole functions at once from a transformer that was trained to predict single targets.

By itself it draws functions by autoregression, one pass per point. `train_copula` trains a second head on tasks: it
makes a copula of the tokens, which joins the targets of a task (`dsvnp.likelihoods.coherent`). What the network knew,
the distribution of each target, stays as it is. Maximised from the start, the density of all targets together
costs single targets some of theirs (docs/decisions/0014).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from dsvnp.models.architecture import make_likelihood
from dsvnp.models.tnp import TNP
from dsvnp.networks import MLP
from dsvnp.sources.base import TaskSource

COHERENT = {
    "gaussian": "coherent",
    "mixture": "coherent-mixture",
}  # the likelihood of single targets, and of all


@dataclass(frozen=True)
class CopulaSettings:
    """How the second head is made and trained."""

    rank: int = 48  # dimensions of η
    hidden: int = 256  # units of the head
    num_steps: int = 10_000  # steps
    learning_rate: float = 2e-3  # of Adam, falling to 0 as a cosine
    clip_norm: float = 1.0  # largest norm of a gradient
    seed: int = 0  # of the head and of the tasks


def train_copula(
    model: TNP,
    source: TaskSource,
    settings: CopulaSettings,
    report: Callable[[int, float], None] = lambda step, gain: None,
) -> TNP:
    """Train the second head; return the network with both.

    Args:
        model: a network with a Gaussian likelihood, or a mixture with one output; its weights are not changed.
        source: where tasks come from, each once.
        settings: how the head is made and trained.
        report: is called with each step and what the copula adds to the log-likelihood there, per target.
    """
    device = next(model.parameters()).device
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        size = model.arch.dim_y * (1 + settings.rank)
        head = MLP([model.arch.transformer.width], [settings.hidden], size).to(device)
    whole = joined(model, head, settings.rank)
    optimizer = torch.optim.Adam(head.parameters(), settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.num_steps)
    generator = torch.Generator(device).manual_seed(settings.seed)
    static = {name: value.to(device) for name, value in source.static().items()}
    for step in range(settings.num_steps):
        if step % source.refresh_every == 0:
            tensors = {**static, **source.pool(generator, device)}
        uniforms = {
            name: torch.rand(shape, generator=generator, device=device)
            for name, shape in source.uniform_shapes().items()
        }
        task = source.batch(tensors, uniforms, torch.tensor(step, device=device))
        y, _ = task.all_points()
        counted = model.counted(task)
        with torch.no_grad():
            _, tokens, _ = model.backbone.points(task, False)
            known = model.decoder(tokens)
            alone = torch.where(counted, model.likelihood.log_prob(known, y), 0.0).sum()
        raw = whole.turn_rows(torch.cat([known, head(tokens)], -1), task.x_target)
        gain = (whole.likelihood.score(raw, y, counted).sum() - alone) / counted.sum().clamp(min=1)
        optimizer.zero_grad()
        (-gain).backward()
        nn.utils.clip_grad_norm_(head.parameters(), settings.clip_norm)
        optimizer.step()
        schedule.step()
        report(step + 1, float(gain.detach()))
    return joined(model, head, settings.rank)


def joined(model: TNP, head: MLP, rank: int) -> TNP:
    """The network with a coherent likelihood: its decoder is the old one and a head [W] → D (1 + R) side by side.

    Units of one do not reach the outputs of the other: those weights are 0.
    """
    if model.arch.likelihood not in COHERENT or len(model.arch.decoder) != 1:
        raise ValueError(
            f"a copula needs a network with the likelihood {' or '.join(COHERENT)} and a decoder of one hidden layer, "
            f"got {model.arch.likelihood!r} and {model.arch.decoder}"
        )
    decoder = (model.arch.decoder[0] + len(head.first.bias),)
    likelihood = COHERENT[model.arch.likelihood]
    arch = replace(model.arch, likelihood=likelihood, dim_functions=rank, decoder=decoder)
    return model.with_head(arch, _beside(model.decoder, head))


def single(model: TNP) -> TNP:
    """The network without its copula, as it was before `train_copula`; one that has none is returned as it is."""
    if not model.likelihood.coherent:
        return model
    likelihood = next(name for name, coherent in COHERENT.items() if coherent == model.arch.likelihood)
    plain = replace(model.arch, likelihood=likelihood)
    size = make_likelihood(plain).dim_raw  # the outputs of the old decoder come first, and so do its units
    weights = model.decoder.state_dict()
    units = int(weights["rest.0.weight"][:size].any(0).nonzero().max()) + 1
    cut = {name: weights[name][:units] for name in ("first.weights.0", "first.bias")}
    cut |= {
        "rest.0.weight": weights["rest.0.weight"][:size, :units],
        "rest.0.bias": weights["rest.0.bias"][:size],
    }
    return model.with_head(replace(plain, decoder=(units,)), cut)


def _beside(one: MLP, other: MLP) -> dict[str, Tensor]:
    """Weights of two networks of one hidden layer as one, whose outputs are those of both."""
    parts = [dict(each.state_dict()) for each in (one, other)]
    joint = {
        name: torch.cat([part[name] for part in parts])
        for name in ("first.weights.0", "first.bias", "rest.0.bias")
    }
    joint["rest.0.weight"] = torch.block_diag(*(part["rest.0.weight"] for part in parts))
    return joint
