"""The problems of the experiment by name: where a local latent can help, and three controls where it cannot."""

from dsvnp.paper.ambiguity.arms import HiddenPose, InverseKinematics
from dsvnp.paper.ambiguity.cartpole import KickedCartPole
from dsvnp.paper.ambiguity.curves import Branches, Contamination, GaussianNoise, SharedNoise, VaryingNoise
from dsvnp.paper.ambiguity.problem import Problem

CONTROLS: dict[str, Problem] = {
    "gaussian-noise": GaussianNoise(),
    "varying-noise": VaryingNoise(),
    "contamination": Contamination(),
}
PROBLEMS: dict[str, Problem] = {
    "branches": Branches(),
    "shared-noise-2": SharedNoise(dim_y=2),
    "shared-noise-8": SharedNoise(dim_y=8),
    "inverse-kinematics": InverseKinematics(),
    "hidden-pose": HiddenPose(),
    "kicked-cartpole": KickedCartPole(),
    **CONTROLS,
}
