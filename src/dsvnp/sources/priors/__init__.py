"""Priors: synthetic tasks to pretrain on, drawn on the device, each used once."""

from dsvnp.sources.priors.curves import CurvePrior, CurveSettings
from dsvnp.sources.priors.landscapes import LandscapePrior, LandscapeSettings
from dsvnp.sources.priors.scaling import output_scale, seen_classes, standardise
from dsvnp.sources.priors.tables import TablePrior, TableSettings

__all__ = [
    "CurvePrior",
    "CurveSettings",
    "LandscapePrior",
    "LandscapeSettings",
    "TablePrior",
    "TableSettings",
    "output_scale",
    "seen_classes",
    "standardise",
]
