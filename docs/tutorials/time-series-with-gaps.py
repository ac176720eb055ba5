# %% [markdown]
# # Time series with gaps
#
# **My series has holes: single values, and half a year when the sensor was broken. What was there, and how sure is
# that?**
#
# A date is an input like any other. The estimators turn a column of dates into days, season, weekday and time of day;
# nothing needs to be evenly spaced. Below are four years of weekly values with a season, a slow trend and noise. A
# third of them is missing at random, and half of the third year.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dsvnp import NPRegressor
from dsvnp.plotting import plot_functions, plot_predictive

rng = np.random.default_rng(0)
date = pd.date_range("2020-01-01", "2024-01-01", freq="W")
years = (date - date[0]).days.to_numpy() / 365.25
truth = 8 * np.sin(2 * np.pi * years - 1.8) + 2 * np.sin(4 * np.pi * years) + 1.5 * years + 10
values = truth + 1.2 * rng.normal(size=len(years))

gap = (years > 2.3) & (years < 2.8)
known = (rng.uniform(size=len(years)) < 0.67) & ~gap
series = pd.DataFrame({"date": date, "value": np.where(known, values, np.nan)})

figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
ax.plot(series["date"], series["value"], "ko", markersize=2.5)
ax.set(title=f"{known.sum()} of {len(series)} weeks are known", ylabel="value")

# %% [markdown]
# ## Fill the gaps
#
# Rows whose output is missing do not count in `fit`. Every week gets a mean and an interval; the dashed line is the
# function that made the data.

# %%
regressor = NPRegressor(random_state=0).fit(series[["date"]], series["value"])
found = regressor.predict_dist(series[["date"]])
ax = plot_predictive(found, date, known=(date[known], values[known]), truth=truth)
ax.axvspan(date[gap][0], date[gap][-1], color="black", alpha=0.06, linewidth=0)

# %%
filled = series["value"].fillna(found.mean)
low, high = found.interval(0.9)
for name, where in {"single missing weeks": ~known & ~gap, "the broken half year": gap}.items():
    error = np.sqrt(np.mean((filled - truth)[where] ** 2))
    inside = np.mean((low <= values)[where] & (values <= high)[where])
    print(
        f"{name}: error {error:.2f} (noise is 1.2), 90 % intervals hold {inside:.0%} of {where.sum()} hidden values"
    )

# %% [markdown]
# ## A question about several weeks together
#
# "What was the sum over the broken half year?" An interval for each week cannot answer that: errors of neighbouring
# weeks go together. Draw whole functions and sum each of them.

# %%
functions = regressor.sample_y(series[["date"]], n_samples=200, noise=False)  # [weeks, samples]
ax = plot_functions(functions[:, :20], date, known=(date[known], values[known]))
ax.set_xlim(date[gap][0] - pd.Timedelta(days=120), date[gap][-1] + pd.Timedelta(days=120))

sums = functions[gap].sum(0)
low, high = np.quantile(sums, [0.05, 0.95])
print(
    f"sum over the gap: {sums.mean():.0f}, 90 % between {low:.0f} and {high:.0f}; truth {truth[gap].sum():.0f}"
)

# %% [markdown]
# ## Without any training
#
# `CurveRegressor` predicts functions of one to three inputs by a network that was trained once, on millions of
# synthetic curves. `fit` only keeps the points.

# %%
from dsvnp import CurveRegressor

curve = CurveRegressor().fit(date[known], values[known])
ax = curve.plot(X=date)
ax.plot(date, truth, "k--", linewidth=1)
low, high = curve.predict_interval(date[gap])
inside = np.mean((low <= values[gap]) & (values[gap] <= high))
print(f"90 % intervals hold {inside:.0%} of the hidden values in the gap")
