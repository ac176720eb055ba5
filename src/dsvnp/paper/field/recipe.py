"""How the field makes and trains its models: sizes, σ, objectives.

Parameters, one input and one output: CNP 216k, NP 232k, AttnNP 348k, TNP 222k, as in the public code of Bootstrapping
Neural Processes (Lee et al., 2020) and Transformer Neural Processes (Nguyen & Grover, 2022).
"""

from dataclasses import dataclass, field, replace
from typing import Any

from dsvnp.models import Architecture, Transformer
from dsvnp.objectives import Objective
from dsvnp.paper.recipe import annealed_over
from dsvnp.pretrained.copula import CopulaSettings
from dsvnp.training import Adam, Schedule, Settings

LOCAL = ("dsvnp", "dsvtnp")  # models with a local latent
TRANSFORMERS = ("tnp", "dsvtnp")  # which the field trains without a floor of σ
FLOOR: dict[str, Any] = {"sigma_floor": 0.1, "sigma_form": "softplus"}
NO_FLOOR: dict[str, Any] = {"sigma_floor": 0.0, "sigma_form": "exp"}
NPML = Objective(kind="npml", num_global=2, num_local=4)


@dataclass(frozen=True)
class LocalLatent:
    """How DSVNP and DSVTNP infer and weigh their local latent; see `Architecture` for the first five.

    NPML with four numbers was the best of seven recipes for DSVNP on other problems (results/local-latent), there with
    the weight of KL_L rising from 0. Without a floor under σ that start does harm: while KL_L is free, DSVTNP writes y
    into z_*, and after 4,000 steps its validation is at −200 nats. The weight is therefore 1 from the start.
    """

    dim_local: int | None = 4
    local_hidden: tuple[int, ...] | None = None
    local_start: str = "random"
    local_detach: bool = False
    local_posterior: str = "free"
    objective: Objective = NPML  # what they maximise
    anneal: float = 0.0  # share of the steps over which the weight of the local KL rises from 0

    def choices(self) -> dict[str, Any]:
        """The settings of an architecture."""
        names = ("dim_local", "local_hidden", "local_start", "local_detach", "local_posterior")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class FieldRecipe:
    """Sizes and training of all models; the defaults are the field's."""

    num_steps: int = 100_000  # steps of training
    learning_rate: float = 5e-4  # of Adam, falling to 0 by a cosine
    width: int = 128  # size of layers, representations and latents
    num_heads: int = 8  # heads of AttnNP
    transformer: Transformer = field(default_factory=Transformer)  # sizes of TNP and DSVTNP
    num_components: int = 10  # components of a mixture head
    num_global: int = 4  # draws of the importance-weighted bound that NP and AttnNP maximise
    local: LocalLatent = field(default_factory=LocalLatent)  # the local latent of DSVNP and DSVTNP
    # of TNP whose targets are joined after its training
    copula: CopulaSettings = field(default_factory=CopulaSettings)

    def architecture(self, model: str, dim_x: int, dim_y: int, **head: Any) -> Architecture:
        """The architecture of a model; `head` holds settings of its likelihood, σ among them, or its attention."""
        w = self.width
        sizes: dict[str, Any] = {
            "encoder": (w, w, w),
            "dim_lat": w,
            "latent_hidden": (w,),
            "decoder": (w, w),
            "deterministic_path": True,
        }
        own: dict[str, dict[str, Any]] = {
            "attnnp": {
                "encoder": (w,) if head.get("attention") == "block" else (w, w),  # 348k parameters either way
                "num_heads": self.num_heads,
                "self_attention": 1,
            },
            "dsvnp": self.local.choices(),
            "tnp": {"decoder": (w,)},
            "dsvtnp": {"encoder": (w,), "decoder": (w,), **self.local.choices()},
        }
        mixture = {"num_components": self.num_components, "transformer": self.transformer}
        return Architecture(dim_x, dim_y, **{**sizes, **own.get(model, {}), **mixture, **head})

    def objective(self, model: str) -> Objective:
        """What a model maximises."""
        if model in ("np", "attnnp"):
            return Objective(kind="iw", num_global=self.num_global)
        if model not in LOCAL:
            return Objective()
        return replace(self.local.objective, **annealed_over(self.local.anneal, self.num_steps))

    def settings(self, model: str, **others: Any) -> Settings:
        """How a model is trained; `others` are further settings."""
        usual = {"checkpoint_every": max(10, self.num_steps // 8)}
        schedule = Schedule("cosine")
        objective = self.objective(model)
        return Settings(self.num_steps, self.learning_rate, Adam(), schedule, objective, **(usual | others))


def has_floor(model: str) -> bool:
    """Whether the field gives σ of a model a floor."""
    return model not in TRANSFORMERS


def sigma(model: str, other: bool) -> dict[str, Any]:
    """The field's σ of a model, or the other one."""
    return FLOOR if has_floor(model) != other else NO_FLOOR
