# %% [markdown]
# # Time series with gaps
#
# **My series has holes: single values, and half a year when the sensor was broken. What was there, how sure is that,
# and what comes next?**
#
# Below are four years of weekly values with a season, a slow trend and noise. A third of them is missing at random, and
# half of the third year.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dsvnp import CurveRegressor
from dsvnp.plotting import plot_functions

rng = np.random.default_rng(0)
weeks = pd.date_range("2020-01-01", "2025-01-01", freq="W")
years = (weeks - weeks[0]).days.to_numpy() / 365.25
truth = 8 * np.sin(2 * np.pi * years - 1.8) + 2 * np.sin(4 * np.pi * years) + 1.5 * years + 10
values = truth + 1.2 * rng.normal(size=len(years))

future, gap = years >= 4, (years > 2.3) & (years < 2.8)
known = (rng.uniform(size=len(years)) < 0.67) & ~gap & ~future
series = pd.DataFrame({"date": weeks, "value": np.where(known, values, np.nan)})[~future]

figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
ax.plot(series["date"], series["value"], "ko", markersize=2.5)
ax.set(title=f"{known.sum()} of {len(series)} weeks are known", ylabel="value")

# %% [markdown]
# ## Fill the gaps
#
# `CurveRegressor` predicts a series, or a function of up to three numbers, by a network that was trained once on
# millions of synthetic curves, mixed with a small Gaussian process. `fit` trains no network. Weeks whose value is
# missing do not count, and nothing needs to be evenly spaced. The dashed line is the function that made the data.

# %%
curve = CurveRegressor().fit(series[["date"]], series["value"])
print(f"season found: {curve.view_.period:.0f} days")
ax = curve.plot(X=weeks[~future])
ax.plot(weeks[~future], truth[~future], "k--", linewidth=1)
ax.axvspan(weeks[gap][0], weeks[gap][-1], color="black", alpha=0.06, linewidth=0)

# %%
filled = series["value"].fillna(pd.Series(curve.predict(series[["date"]])))
low, high = curve.predict_interval(weeks)
asked = {"single missing weeks": ~known & ~gap & ~future, "the broken half year": gap}
for name, where in asked.items():
    error = np.sqrt(np.mean((filled[where[~future]] - truth[where]) ** 2))
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
functions = curve.sample_functions(weeks[gap], n_samples=200)  # [weeks, samples]
ax = plot_functions(functions[:, :20], weeks[gap], truth=truth[gap])

sums = functions.sum(0)
low_sum, high_sum = np.quantile(sums, [0.05, 0.95])
print(
    f"sum over the gap: {sums.mean():.0f}, 90 % between {low_sum:.0f} and {high_sum:.0f}; "
    f"truth {truth[gap].sum():.0f}"
)

# %% [markdown]
# ## The year to come
#
# Inputs may lie beyond the last point. The season is continued, and the interval widens with the distance.

# %%
ax = curve.plot(X=weeks)
ax.plot(weeks[future], values[future], "r.", markersize=3, label="not known yet")
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
inside = np.mean((low <= values)[future] & (values <= high)[future])
print(f"90 % intervals hold {inside:.0%} of the {future.sum()} weeks of the next year")

# %% [markdown]
# ## More than a date
#
# Where other columns matter as well, such as a temperature or a price, the series is a table:
# `NPRegressor().fit(frame, values)` turns its column of dates into days, season, weekday and time of day
# ([a first prediction](first-prediction.md)).
