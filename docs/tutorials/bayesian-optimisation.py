# %% [markdown]
# # Bayesian optimisation
#
# **Each trial costs a day. We have tuned nineteen similar machines before. Must the twentieth start from nothing?**
#
# Bayesian optimisation chooses the next trial by a model of the function. A Gaussian process starts from nothing for
# each machine. A neural process that has seen the others knows what such functions look like, and needs fewer trials.
# Here the yield of a machine depends on one setting between 0 and 1: a peak whose place, width and height differ, on
# a slope.

# %%
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import torch

from dsvnp import Architecture, Task, Transformer, make_model
from dsvnp.sources.base import TaskSource, first_points, take_batch
from dsvnp.training import Adam, Fleet, Schedule, Settings, train

torch.set_num_threads(1)


def machines(count, generator):
    """Place, width, height and slope of machines, [count, 1, 1] each."""
    place, width, height, slope = torch.rand(4, count, 1, 1, generator=generator)
    return 0.1 + 0.8 * place, 0.05 + 0.1 * width, 0.5 + height, 2 * slope - 1


def yield_of(x, place, width, height, slope):
    return height * torch.exp(-0.5 * ((x - place) / width) ** 2) + 0.4 * slope * x


class Machines(TaskSource):
    """Trials of machines at random settings; each machine of a pool is used once."""

    def __init__(self, batch_size=16, num_points=32, refresh_every=200):
        self.batch_size, self.num_points, self.refresh_every = batch_size, num_points, refresh_every

    def static(self):
        return {}

    def pool(self, generator, device):
        count = self.batch_size * self.refresh_every
        x = torch.rand(count, self.num_points, 1, generator=generator)
        return {"x": 2 * x - 1, "y": yield_of(x, *machines(count, generator))}

    def uniform_shapes(self):
        return {"context": (self.batch_size,)}

    def batch(self, tensors, uniforms, step):
        x, y = (take_batch(tensors[name], step, self.batch_size) for name in ("x", "y"))
        return Task.from_points(x, y, first_points(uniforms["context"], 1, 12, x))


small = Transformer(width=32, num_layers=3, num_heads=4, feedforward=64, embedder=(32, 32))
arch = Architecture(dim_x=1, dim_y=1, transformer=small, decoder=(32,), sigma_floor=0.005)
settings = Settings(
    num_steps=4000,
    learning_rate=2e-3,
    optimizer=Adam(clip_norm=1.0),
    schedule=Schedule("cosine", warmup=100),
)
fleet = Fleet(partial(make_model, "tnp", arch), Machines(), seeds=[0], settings=settings)
train(fleet)
network = fleet.replica(0).double()

# %% [markdown]
# ## One machine, trial by trial
#
# `NeuralProcessModel` is a model of BoTorch whose context are the trials; nothing is fitted between them. Expected
# improvement weighs how good a setting may be against how little is known of it.

# %%
from botorch.acquisition.logei import qLogExpectedImprovement

grid = torch.linspace(0, 1, 201, dtype=torch.float64).reshape(-1, 1)

from dsvnp.botorch import NeuralProcessModel


def neural_process(x, y):
    return NeuralProcessModel(network, 2 * x - 1, y, noise=0.0)


new = [part[0].double() for part in machines(1, torch.Generator().manual_seed(7))]
x = torch.tensor([[0.2], [0.8]], dtype=torch.float64)
figure, axes = plt.subplots(1, 4, figsize=(12, 2.8), sharey=True, layout="constrained")
for ax in axes:
    y = yield_of(x, *new)
    model = neural_process(x, y)
    with torch.no_grad():
        posterior = model.posterior(2 * grid - 1)
        mean, spread = posterior.mean[:, 0], posterior.variance[:, 0].sqrt()
        gain = qLogExpectedImprovement(model, best_f=y.max())((2 * grid - 1)[:, None])
    ax.fill_between(grid[:, 0], mean - 2 * spread, mean + 2 * spread, alpha=0.2, linewidth=0)
    ax.plot(grid, mean)
    ax.plot(grid, yield_of(grid, *new), "k--", linewidth=1)
    ax.plot(x, y, "ko", markersize=4)
    ax.axvline(float(grid[gain.argmax()]), color="C3", linewidth=1)
    ax.set(title=f"{len(x)} trials", xlabel="setting")
    x = torch.cat([x, grid[gain.argmax()][None]])
axes[0].set_ylabel("yield")

# %% [markdown]
# The dashed line is the truth, the red line the next trial.
#
# ## Against a Gaussian process
#
# Fifteen new machines, the same two first trials. *Regret* is the best possible yield less the best found.

# %%
import warnings

from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood


def gaussian_process(x, y):
    model = SingleTaskGP(2 * x - 1, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def regrets(make, parameters, trials=8):
    """The regret after each trial."""
    x = torch.tensor([[0.2], [0.8]], dtype=torch.float64)
    best = yield_of(grid, *parameters).max()
    found = []
    while len(x) <= trials:
        y = yield_of(x, *parameters)
        found.append(float(best - y.max()))
        gain = qLogExpectedImprovement(make(x, y), best_f=y.max())
        with torch.no_grad():
            x = torch.cat([x, grid[gain((2 * grid - 1)[:, None]).argmax()][None]])
    return found


tested = machines(15, torch.Generator().manual_seed(6))
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for name, make in (("neural process", neural_process), ("Gaussian process", gaussian_process)):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a Gaussian process of two points is hard to fit
        all_regrets = np.array([regrets(make, [part[i].double() for part in tested]) for i in range(15)])
    ax.plot(range(2, 9), np.median(all_regrets, 0), "o-", label=name)
    ax.fill_between(range(2, 9), *np.quantile(all_regrets, [0.25, 0.75], 0), alpha=0.2, linewidth=0)
    print(f"{name:>16}: median regret after 4 trials {np.median(all_regrets[:, 2]):.3f}")
ax.set(xlabel="trials", ylabel="regret")
ax.legend(frameon=False)

# %% [markdown]
# The neural process has learned that there is one peak, and how wide peaks are. It needs one or two trials where the
# Gaussian process needs five; after seven trials the Gaussian process has caught up, as this small network stays a
# little unsure of the exact top. For functions of another kind what it has learned would mislead: where no related
# functions are known, use a pretrained network or a Gaussian process.
# [A benchmark](../bayesian-optimisation.md#benchmark) compares them.
