"""Estimators: neural processes on a person's own table, behind scikit-learn's interface."""

from dsvnp.estimators.classifier import NPClassifier
from dsvnp.estimators.regressor import NPRegressor

__all__ = ["NPClassifier", "NPRegressor"]
