# %% [markdown]
# # Many small tables
#
# **A new sensor has sent five readings. Can the other sensors help to predict the rest?**
#
# Five readings are too few to learn from. But 150 older sensors show how such curves look. `fit_tasks` learns from
# all of them; a new sensor is then predicted from its own readings, without further training.

# %%
import matplotlib.pyplot as plt
import numpy as np

rng = np.random.default_rng(0)


def sensor(count=None):
    """Readings of one sensor over a day: its own amplitude, phase and noise."""
    hours = rng.uniform(0, 24, (count or rng.integers(15, 40), 1))
    amplitude, phase, noise = rng.uniform(0.5, 3), rng.uniform(0, 2 * np.pi), rng.uniform(0.05, 0.3)

    def truth(x):
        return amplitude * np.sin(2 * np.pi * x[:, 0] / 12 + phase)

    return hours, truth(hours) + noise * rng.normal(size=len(hours)), truth


old = [sensor() for _ in range(150)]
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for hours, readings, _ in old[:6]:
    ax.plot(hours, readings, "o", markersize=3)
ax.set(title="6 of 150 old sensors", xlabel="hour", ylabel="reading")

# %% [markdown]
# ## Learn how sensors look
#
# Each table is one task. The numbers of rows may differ, the columns must agree. This takes about a minute; with
# `effort="thorough"` it takes longer and is often better.

# %%
from dsvnp import NPRegressor

meta = NPRegressor(random_state=0).fit_tasks([(x, y) for x, y, _ in old])
print(f"chosen model: {meta.recipe_.model}")

# %% [markdown]
# ## A new sensor, reading by reading
#
# `condition` gives the estimator the readings of a new sensor. It trains nothing: readings are an input. With one
# reading the prediction is wide, with five it has found amplitude and phase.

# %%
x, y, truth = sensor(24)
grid = np.linspace(0, 24, 150)[:, None]
figure, axes = plt.subplots(1, 4, figsize=(12, 2.8), sharey=True, layout="constrained")
for ax, count in zip(axes, (1, 2, 5, 20)):
    known = meta.condition(x[:count], y[:count])
    known.plot(grid, ax=ax)
    ax.plot(grid, truth(grid), "k--", linewidth=1)
    ax.plot(x[:count], y[:count], "ko", markersize=4)
    ax.set(title=f"{count} reading{'s' if count > 1 else ''}", xlabel="hour")

# %% [markdown]
# ## Is that better than a Gaussian process for each sensor?
#
# On 40 new sensors with five known readings each: a Gaussian process knows nothing of the other sensors, and has to
# guess the length scale from five points.

# %%
import warnings

from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

errors = {"fit_tasks": [], "a GP per sensor": []}
inside = []
for _ in range(40):
    x, y, truth = sensor(25)
    low, high = meta.predict_interval(x[5:], coverage=0.9, context=(x[:5], y[:5]))
    inside.append((low <= y[5:]) & (y[5:] <= high))
    errors["fit_tasks"].append(meta.predict(x[5:], context=(x[:5], y[:5])) - y[5:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # five points rarely determine a length scale
        kernel = RBF(3.0) + WhiteKernel(0.05)
        process = GaussianProcessRegressor(kernel, normalize_y=True).fit(x[:5], y[:5])
    errors["a GP per sensor"].append(process.predict(x[5:]) - y[5:])

for name, values in errors.items():
    print(f"{name:>16}: rmse {np.sqrt(np.mean(np.square(np.concatenate(values)))):.2f}")
print(f"90 % intervals of fit_tasks hold {np.mean(np.concatenate(inside)):.0%} of the readings")

# %% [markdown]
# On the command line the tables are one file, and a column says which rows belong together: `dsvnp fit readings.csv
# --target y --group sensor_id --out model`. More in [on your own data](../own-data.md).
