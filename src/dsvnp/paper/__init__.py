"""Experiments: the demo, and one file for each experiment of the paper."""

from dsvnp.paper.ablations.experiment import AblationsExperiment
from dsvnp.paper.cartpole.experiment import CartPoleExperiment
from dsvnp.paper.curves.experiment import CurvesExperiment
from dsvnp.paper.experiment import Experiment
from dsvnp.paper.images.experiment import ImagesExperiment
from dsvnp.paper.multioutput.experiment import MultiOutputExperiment
from dsvnp.paper.toy.experiment import ToyExperiment

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
