"""Estimators: neural processes on a person's own table, behind scikit-learn's interface."""

from dsvnp.tabular.classifier import NPClassifier
from dsvnp.tabular.regressor import NPRegressor

__all__ = ["NPClassifier", "NPRegressor"]
