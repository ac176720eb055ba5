"""Priors: synthetic tasks to pretrain on, drawn on the device, each used once."""

from dsvnp.sources.priors.curves import CurvePrior as CurvePrior
from dsvnp.sources.priors.curves import CurveSettings as CurveSettings
from dsvnp.sources.priors.landscapes import LandscapePrior as LandscapePrior
from dsvnp.sources.priors.landscapes import LandscapeSettings as LandscapeSettings
from dsvnp.sources.priors.scaling import output_scale as output_scale
from dsvnp.sources.priors.scaling import seen_classes as seen_classes
from dsvnp.sources.priors.scaling import standardise as standardise
from dsvnp.sources.priors.tables import TablePrior as TablePrior
from dsvnp.sources.priors.tables import TableSettings as TableSettings
