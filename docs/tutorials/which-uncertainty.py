# %% [markdown]
# # Which uncertainty is which
#
# **My model says "±1". Would more data help, or is it noise?**
#
# A prediction is uncertain for two reasons. Outputs are noisy (*aleatoric*): more points do not help. And the model
# does not know the function (*epistemic*): more points would. Here a small transformer from the
# [playground](../playground.md) sees 25 points of a new function, none of them between -0.2 and 0.9.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.gaussian_process.kernels import RBF

from dsvnp import Task
from dsvnp.playground import PAGE
from dsvnp.playground.export import load
from dsvnp.plotting import plot_calibration, plot_predictive

model = load(PAGE / "weights" / "curves-tnp.safetensors")
grid = np.linspace(-2, 2, 60)


def draw(x, rng, noise=0.1, length=0.5):
    """A function of a Gaussian process, at x and on the grid; and noisy outputs at x."""
    places = np.concatenate([x, grid])[:, None]
    root = np.linalg.cholesky(RBF(length)(places) + 1e-8 * np.eye(len(places)))
    f = root @ rng.normal(size=len(places))
    return f[: len(x)] + noise * rng.normal(size=len(x)), f[len(x) :]


def task_of(x, y, asked=grid):
    """One task of a model: context and targets as tensors [tasks, points, features]."""
    return Task.from_sets(
        *(torch.tensor(part, dtype=torch.float32).reshape(1, -1, 1) for part in (x, y, asked))
    )


def predict(x, y):
    """32 functions that the model draws point by point; they differ where it does not know the function."""
    generator = torch.Generator().manual_seed(0)
    return model.predict(task_of(x, y), num_global=32, autoregressive=True, generator=generator)


rng = np.random.default_rng(3)
x = rng.uniform(-2, 2, 100)
x = x[(x < -0.2) | (x > 0.9)][:25]
y, truth = draw(x, rng)
found = predict(x, y)
plot_predictive(found, grid, known=(x, y), truth=truth, parts=True)

# %% [markdown]
# The light band is the whole 90 % interval, the dark band its epistemic part. Next to the points they differ by
# noise; in the gap nearly everything is epistemic.
#
# ## Are the two parts right?
#
# The function came from a Gaussian process. For whoever knows its kernel, which the network does not, both parts are
# exact: the posterior standard deviation of the function, and the noise of 0.1. `epistemic` and `aleatoric` are
# variances; they add up to `variance`.

# %%
kernel = RBF(0.5)
gram = kernel(x[:, None]) + 0.1**2 * np.eye(len(x))
cross = kernel(grid[:, None], x[:, None])
exact = np.sqrt(1 - np.einsum("ij,ji->i", cross, np.linalg.solve(gram, cross.T)))

figure, ax = plt.subplots(figsize=(6.4, 2.8), layout="constrained")
ax.plot(grid, found.epistemic[0, :, 0].sqrt(), color="C0", label="epistemic")
ax.plot(grid, exact, "--", color="C0", linewidth=1, label="epistemic, exact")
ax.plot(grid, found.aleatoric[0, :, 0].sqrt(), color="C1", label="aleatoric")
ax.axhline(0.1, linestyle="--", color="C1", linewidth=1, label="aleatoric, exact")
ax.set(xlabel="x", ylabel="standard deviation", ylim=(0, None))
ax.legend(frameon=False, loc="upper left")

# %% [markdown]
# ## Does more data help?
#
# Three more points in the gap change the epistemic part alone. Twice the noise changes both: noisy points also say
# less about the function.

# %%
middle = (grid > -0.1) & (grid < 0.8)
more = np.concatenate([x, [0.1, 0.35, 0.6]])
cases = {
    "25 points": (x, y),
    "3 more in the gap": (more, draw(more, np.random.default_rng(3))[0]),
    "twice the noise": (x, draw(x, np.random.default_rng(3), noise=0.2)[0]),
}
for name, points in cases.items():
    one = predict(*points)
    in_gap, elsewhere = one.epistemic[0, middle, 0].mean().sqrt(), one.aleatoric[0, ~middle, 0].mean().sqrt()
    print(f"{name:>18}: epistemic in the gap {in_gap:.2f}, aleatoric elsewhere {elsewhere:.2f}")

# %% [markdown]
# ## Is the sum right? Calibration
#
# Intervals of every level should hold their share of new outputs. We ask about 100 functions like those of the
# training, then about 100 that change ten times faster than any of them (*out of distribution*).


# %%
def tasks(count, length, seed):
    """Functions at 60 places, in one batch; the first 20 places are the context."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (count, 60))
    y = np.stack([draw(row, rng, length=length)[0] for row in x])
    x, y = (torch.tensor(part, dtype=torch.float32)[..., None] for part in (x, y))
    return Task.from_sets(x[:, :20], y[:, :20], x[:, 20:]), y[:, 20:]


figure, ax = plt.subplots(figsize=(4, 4), layout="constrained")
for length, colour, label in ((0.5, "C0", "like the training"), (0.05, "C3", "much faster")):
    asked, outputs = tasks(100, length, seed=1)
    plot_calibration(model.predict(asked), outputs, ax, colour=colour, label=label)
ax.legend(frameon=False)

# %% [markdown]
# Out of distribution the intervals promise too much: calibration is a property of a model *and* of the functions it
# is asked about. No band in the first figure can warn of that.
#
# ## How do I notice?
#
# Ask the model about what you know. Predict one half of your points from the other half, and compare: a log-density
# far below the usual one says that this function is unlike those of the training.


# %%
def surprise(task):
    """Minus the mean log-density of half of each context, given the other half."""
    half = Task.from_sets(task.x_context[:, :10], task.y_context[:, :10], task.x_context[:, 10:])
    return -model.predict(half).log_prob(task.y_context[:, 10:]).mean(1)


usual, strange = (surprise(tasks(100, length, seed=2)[0]) for length in (0.5, 0.05))
threshold = usual.quantile(0.95)
figure, ax = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
bins = np.linspace(-2, 8, 41)
ax.hist(usual.clamp(max=8), bins, alpha=0.6, color="C0", label="like the training")
ax.hist(strange.clamp(max=8), bins, alpha=0.6, color="C3", label="much faster")
ax.axvline(float(threshold), color="black", linestyle=":", linewidth=1)
ax.set(xlabel="surprise of 10 points given 10 others, nats", ylabel="functions")
ax.legend(frameon=False)
print(f"above the threshold: {(usual > threshold).float().mean():.0%} of the usual functions,", end=" ")
print(f"{(strange > threshold).float().mean():.0%} of the fast ones")

# %% [markdown]
# The estimators for tables offer the same: `uncertainty(X)` gives the two parts, `plot(X, y, kind="calibration")` the
# picture, `log_prob(X, y)` the surprise, and `ood_score(X)` ranks rows without outputs.
