# %% [markdown]
# # A first prediction
#
# **I have a table. What is the output of a new row, and how sure can I be?**
#
# `NPRegressor` takes a table of numbers, texts and dates, and predicts a distribution for every new row. Here the
# table has 442 patients with diabetes, ten measurements of each, and how far the disease progressed within a year.

# %%
import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from dsvnp import NPRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_known, X_new, y_known, y_new = train_test_split(X, y, test_size=142, random_state=0)

regressor = NPRegressor(random_state=0).fit(X_known, y_known)
ax = regressor.plot(X_new, y_new)
ax.set_ylabel("progression of diabetes")

# %% [markdown]
# Each of the 142 new patients is a dot, sorted by its predicted mean. The band is the 90 % interval: it should hold
# nine of ten dots. The same numbers, as numbers:

# %%
mean, std = regressor.predict(X_new, return_std=True)
low, high = regressor.predict_interval(X_new, coverage=0.9)
inside = ((low <= y_new) & (y_new <= high)).mean()

table = pd.DataFrame({"mean": mean, "std": std, "low": low, "high": high, "truth": y_new})
print(table.head(3).round(0).to_string(index=False))
print(f"90 % intervals hold {inside:.0%} of the new patients")

# %% [markdown]
# ## Can I trust the intervals?
#
# On the left, intervals of every level: a calibrated prediction follows the diagonal, and chance alone keeps it
# inside the grey band. On the right, residuals in units of the predicted spread: they should look like noise around
# zero, with one in twenty outside the dotted lines.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
regressor.plot(X_new, y_new, left, kind="calibration")
regressor.plot(X_new, y_new, right, kind="residuals")

# %% [markdown]
# `evaluate` compares with simple predictors. NLL and CRPS judge the whole distribution, and lower is better.

# %%
for name, values in regressor.evaluate(X_new, y_new).summary.items():
    print(f"{name:>16}: rmse {values['rmse']:.1f}, NLL {values['nll']:.2f}, CRPS {values['crps']:.1f}")

# %% [markdown]
# ## What if one column changed?
#
# Take one patient, change the body-mass index only, and predict each variant. The body-mass indices of the known
# patients are the marks at the bottom: beyond them the prediction is an extrapolation.

# %%
import numpy as np

from dsvnp.plotting import plot_predictive

bmi = np.linspace(15, 50, 80)
variants = pd.DataFrame([X_new.iloc[0]] * len(bmi)).assign(bmi=bmi)
ax = plot_predictive(regressor.predict_dist(variants), bmi)
ax.plot(X_known["bmi"], np.full(len(X_known), ax.get_ylim()[0]), "|", color="black", markersize=8, alpha=0.3)
ax.set(xlabel="body-mass index", ylabel="progression of diabetes")

# %% [markdown]
# ## Keep it
#
# A fitted estimator is a folder of tensors and JSON. It loads on another machine, and the command line reads it too:
# `dsvnp predict model new.csv --out predictions.csv`.

# %%
regressor.save("model")
again = NPRegressor.load("model")
print(f"largest difference after loading: {abs(again.predict(X_new) - mean).max():.1g}")

# %% [markdown]
# Next: [which uncertainty is which](which-uncertainty.md), or [many small tables](many-small-tables.md) in place of
# one.
