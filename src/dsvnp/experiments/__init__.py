"""Experiments: the demo, and one file for each experiment of the paper."""

from dsvnp.experiments.ablations import AblationsExperiment
from dsvnp.experiments.base import Experiment
from dsvnp.experiments.cartpole import CartPoleExperiment
from dsvnp.experiments.curves import CurvesExperiment
from dsvnp.experiments.images import ImagesExperiment
from dsvnp.experiments.multioutput import MultiOutputExperiment
from dsvnp.experiments.toy import ToyExperiment

EXPERIMENTS: dict[str, type[Experiment]] = {
    kind.name: kind
    for kind in (
        ToyExperiment,
        CurvesExperiment,
        CartPoleExperiment,
        AblationsExperiment,
        MultiOutputExperiment,
        ImagesExperiment,
    )
}
