"""Content of a saved estimator: taken from a fitted one as JSON and tensors, and put back into a new one."""

from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dsvnp import __version__
from dsvnp.devices import pick_device
from dsvnp.pretrained import read_card
from dsvnp.sources.own_units import OwnUnits
from dsvnp.tabular.panel.asking import NETWORK
from dsvnp.tabular.panel.consulting import Member, PanelProblem
from dsvnp.tabular.panel.panel import Panel
from dsvnp.tabular.panel.views import Layout
from dsvnp.tabular.rows.encoding import Encoding, Filling
from dsvnp.tabular.rows.scaling import ClassScaling, InputScaling, OutputScaling
from dsvnp.tabular.saved.checking import check_network, check_recipe
from dsvnp.tabular.trained.ensemble import Ensemble, Replica
from dsvnp.tabular.trained.recipe import FitRecipe

FORMAT, VERSION = "dsvnp-estimator", 5


class OtherWeightsError(ValueError):
    """An estimator that was fitted with other pretrained weights than the package has."""


class Content(NamedTuple):
    """What a folder holds: settings and facts as JSON takes them, and tensors by name."""

    record: dict[str, Any]
    tensors: dict[str, Tensor]


def content_of(estimator: Any) -> Content:
    """Everything of a fitted estimator."""
    return Content(_record(estimator), _tensors(estimator))


def _record(estimator: Any) -> dict[str, Any]:
    """Everything but tensors, as JSON holds it."""
    params = estimator.get_params()
    if not isinstance(params["random_state"], int | np.integer | None):
        params["random_state"] = None  # a generator: what it decided is in the tensors
    params.pop("class_weight", None)  # by label, in the classifier's own record
    encoding, names = estimator.encoding_, getattr(estimator, "feature_names_in_", None)
    return {
        "format": FORMAT,
        "version": VERSION,
        "dsvnp": __version__,
        "kind": estimator.kind,
        "params": {
            name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()
        },
        "recipe": None if estimator.recipe_ is None else asdict(estimator.recipe_),
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "encoding": None if encoding is None else asdict(encoding),
        "filling": asdict(estimator.filling_),
        "target_names": list(estimator.target_names_),
        **_members(estimator.ensemble_),
        "num_context": estimator.ensemble_.num_context,
        "noise_seed": estimator.noise_seed_,
        "validation": estimator.validation_,
        "best_steps": estimator.best_steps_,
        **estimator._own_record(),
    }


def _members(ensemble: Ensemble | Panel) -> dict[str, Any]:
    """Who predicts: the number of replicas, or the members of a panel with the checksum of their network."""
    if isinstance(ensemble, Ensemble):
        return {"num_replicas": len(ensemble.replicas)}
    seats = [[asdict(member) for member in board] for board in ensemble.members]
    sizes = {"most_rows": ensemble.most_rows, "leaves": ensemble.leaves}
    return {"panel": seats, **sizes, "network": _network()}


def _network() -> dict[str, str]:
    """Name and checksum of the weights that ship with the package: a folder of a panel holds none itself."""
    return {"name": NETWORK, "sha256": read_card(NETWORK).sha256}


def _tensors(estimator: Any) -> dict[str, Tensor]:
    """All tensors by name."""
    x, y = estimator.context_
    ensemble = estimator.ensemble_
    out = {"context.x": x, "context.y": y, "prior": ensemble.prior, "calibration": ensemble.calibration}
    if isinstance(ensemble, Panel):
        out["stretch"] = ensemble.stretch
        out |= {f"inputs.{name}": value for name, value in vars(ensemble.inputs).items()}
        out |= {f"outputs.{name}": value for name, value in vars(ensemble.outputs).items()}
        return _separate(out)
    for row, replica in enumerate(ensemble.replicas):
        out |= {f"replica.{row}.model.{name}": value for name, value in replica.model.state_dict().items()}
        out |= {f"replica.{row}.inputs.{name}": value for name, value in vars(replica.inputs).items()}
        out |= {f"replica.{row}.outputs.{name}": value for name, value in vars(replica.outputs).items()}
        own = {} if replica.own is None else vars(replica.own)
        out |= {f"replica.{row}.own.{name}": value for name, value in own.items()}
    return _separate(out)


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of which none shares memory with another."""
    return {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}


def fill(estimator: Any, record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Put what was read into an estimator."""
    estimator.recipe_ = None if record["recipe"] is None else check_recipe(FitRecipe(**record["recipe"]))
    estimator.n_features_in_ = record["n_features_in"]
    if record["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.array(record["feature_names_in"], dtype=object)
    estimator.encoding_ = _encoding(record["encoding"])
    filling = record["filling"]
    medians = tuple(map(float, filling["medians"]))
    estimator.filling_ = Filling(medians, tuple(filling["gaps"]), tuple(filling["empty"]))
    estimator.target_names_ = tuple(record["target_names"])
    estimator._restore_own(record)
    estimator.noise_seed_ = record["noise_seed"]
    estimator.validation_ = record["validation"]
    estimator.best_steps_ = record["best_steps"]
    estimator.context_ = tensors["context.x"], tensors["context.y"]
    device = pick_device(estimator.device)
    if "panel" in record:
        estimator.ensemble_ = _panel(estimator, record, tensors).to(device)
        return
    replicas = [_replica(estimator, tensors, row).to(device) for row in range(record["num_replicas"])]
    estimator.ensemble_ = Ensemble(
        replicas, record["num_context"], tensors["prior"].to(device), tensors["calibration"]
    )


def _panel(estimator: Any, record: dict[str, Any], tensors: dict[str, Tensor]) -> Panel:
    """A panel, if the package has the weights that it was chosen with."""
    if record["network"] != _network():
        raise OtherWeightsError(
            f"it predicts with the pretrained network {record['network']['name']!r} of dsvnp {record['dsvnp']}, whose "
            f"weights are not those of dsvnp {__version__}; install that version, or fit again"
        )

    numbers = estimator.kind == "regressor"
    problem = PanelProblem(
        Layout.of(estimator.encoding_, estimator.filling_),
        0 if numbers else estimator._dim_y,
        torch.device("cpu"),
    )
    return Panel(
        tuple(tuple(Member(**member) for member in board) for board in record["panel"]),
        tensors["stretch"],
        record["most_rows"],
        record["leaves"],
        record["num_context"],
        problem,
        InputScaling(**_part(tensors, "inputs.")),
        (OutputScaling if numbers else ClassScaling)(**_part(tensors, "outputs.")),
        tensors["prior"],
        tensors["calibration"],
    )


def _encoding(record: dict[str, Any] | None) -> Encoding | None:
    """The encoding of a frame's columns from JSON, whose tuples are lists."""
    if record is None:
        return None
    columns = (record["categories"], record["cycles"])
    each = (tuple(None if found is None else tuple(found) for found in column) for column in columns)
    return Encoding(tuple(record["names"]), *each)


def _replica(estimator: Any, tensors: dict[str, Tensor], row: int) -> Replica:
    """One replica, its model made again from the recipe."""
    inputs = InputScaling(**_part(tensors, f"replica.{row}.inputs."))
    regression = estimator.kind == "regressor"
    outputs = (OutputScaling if regression else ClassScaling)(**_part(tensors, f"replica.{row}.outputs."))
    likelihood = "gaussian" if regression else "categorical"
    with torch.device(
        "meta"
    ):  # neither memory nor random numbers: the tensors that were read are the weights
        model = estimator.recipe_.make_joined(len(inputs.centre), estimator._dim_y, likelihood).double()
    owner = f"replica.{row}.model."
    weights = _part(tensors, owner)
    check_network(owner, weights, model.state_dict())
    model.load_state_dict(weights, assign=True)
    own = None
    if regression and estimator.recipe_.own_units:
        own = OwnUnits(**_part(tensors, f"replica.{row}.own."))
    return Replica(model.eval(), inputs, outputs, own)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
