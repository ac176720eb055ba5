"""An estimator that predicts by a panel, as a graph: views of the pretrained network, simpler models, their mixture.

X [rows, D] is all that a file of it reads: views and simpler models were fitted to the rows of the fit, which the file
holds. What each member reads is one task of a batch, with empty slots where it has fewer rows or columns than others.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from dsvnp.export.estimators import facts_of
from dsvnp.export.filling import FillingModule
from dsvnp.export.graph import Axes, Graph
from dsvnp.export.network import exportable, predictive_of
from dsvnp.export.outputs import outputs_of
from dsvnp.predictive import CategoricalPredictive, IndependentPredictive, Predictive
from dsvnp.sources.priors.scaling import output_scale, standardise
from dsvnp.sources.priors.tables import CLIP_OUTPUT
from dsvnp.tabular.panel.asking import MOST_CLASSES, network, order_of
from dsvnp.tabular.panel.consulting import Member, Ridge, consult
from dsvnp.tabular.panel.panel import Panel, seated, side_by_side, stretch_all
from dsvnp.tabular.panel.views import View, fit_view

Key = tuple[int, Member]  # an output and who predicts it


class Seat(NamedTuple):
    """What a member with a network has read."""

    show: Callable[[Tensor], Tensor]  # the columns that it is shown of encoded rows, in its order
    x: Tensor  # the rows that it has read, as shown, [N, d]
    y: Tensor  # their outputs, [N]: residuals of the line if there is one; labels in its order of classes
    line: Ridge | None  # a linear model that its answers are added to
    classes: Tensor  # its order of classes


class PanelModule(nn.Module):
    """A panel with the rows that it predicts from; all members with a network answer in one batch."""

    x: Tensor
    y: Tensor
    read: Tensor
    used: Tensor
    known: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, panel: Panel, fill: FillingModule, context: tuple[Tensor, Tensor]) -> None:
        super().__init__()
        _check(panel, len(context[0]))
        self.panel, self.fill = panel.to(torch.device("cpu")), fill
        keys = dict.fromkeys((i, member) for i, board in enumerate(panel.members) for member in board)
        told = {key: self._told(key, *context) for key in keys}
        self.seats = {key: self._seat(key[1], *told[key]) for key in keys if key[1].has_network}
        self.simple = {
            key: consult([key[1]], [told[key]], self.panel.problem) for key in keys if not key[1].has_network
        }
        self.model = exportable(network(panel.problem.num_classes, torch.device("cpu"), torch.float32))
        if self.seats:
            self._stack(list(self.seats.values()))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = self.fill(inputs["X"])
        found = {key: ask([x]) for key, ask in self.simple.items()} | self._asked(x)
        members = self.panel.members
        boards = [seated([found[i, member] for member in board]) for i, board in enumerate(members)]
        whole = stretch_all(side_by_side(boards), self.panel.stretch)
        return {name: value[0] for name, value in outputs_of(whole).items()}

    def _told(self, key: Key, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and outputs that a member reads."""
        column = y[:, key[0]]
        known = column >= 0 if self.panel.problem.num_classes else ~column.isnan()
        return self.panel.some(x[known], column[known], key[1])

    def _seat(self, member: Member, x: Tensor, y: Tensor) -> Seat:
        """Let a member read, see `dsvnp.tabular.panel.consulting.consult`."""
        line = Ridge.fit(x, y) if member.view == "residuals" else None
        y = y if line is None else y - line(x)
        view: View = fit_view("columns" if line else member.view, self.panel.problem.layout, x, y)
        order = order_of(member.order, view(x[:1]).shape[1])
        classes = order_of(member.order, self.panel.problem.num_classes)
        return Seat(
            lambda rows: view(rows)[:, order],
            view(x)[:, order],
            classes[y] if len(classes) else y,
            line,
            classes,
        )

    def _stack(self, seats: list[Seat]) -> None:
        """Keep what all seats have read as one batch of B tasks."""
        self.width = max(seat.x.shape[1] for seat in seats)
        count = torch.tensor([len(seat.y) for seat in seats])
        columns = torch.tensor([seat.x.shape[1] for seat in seats])
        x = pad_sequence([self._wide(seat.x) for seat in seats], batch_first=True)  # [B, N, W]
        y = pad_sequence([seat.y for seat in seats], batch_first=True)  # [B, N]
        known = torch.arange(y.shape[1]) < count[:, None]
        mean, std = torch.zeros(2, len(seats), 1, dtype=torch.float64)
        if y.is_floating_point():
            mean, std = output_scale(y, known)
            y = ((y - mean) / std).clamp(-CLIP_OUTPUT, CLIP_OUTPUT).float()
        kept = {"x": x, "y": y[..., None], "known": known, "mean": mean, "std": std}
        kept["used"] = torch.arange(self.width) < columns[:, None]
        kept["read"] = standardise(x, kept["used"], known, known).float()
        for name, value in kept.items():
            self.register_buffer(name, value)

    def _wide(self, x: Tensor) -> Tensor:
        """Rows with as many columns as the widest view."""
        return pad(x, (0, self.width - x.shape[1]))

    def _asked(self, x: Tensor) -> dict[Key, Predictive]:
        """What each member with a network says of encoded rows [T, D]."""
        if not self.seats:
            return {}
        shown = torch.stack([self._wide(seat.show(x)) for seat in self.seats.values()])  # [B, T, W]
        unseen = torch.zeros_like(shown[..., 0], dtype=torch.bool)
        rows, seen, filled = (
            torch.cat(both, 1) for both in ((self.x, shown), (self.known, unseen), (self.known, ~unseen))
        )
        # What was read is scaled apart from the targets: it is constant, and a runtime can compute what follows once.
        targets = standardise(rows, self.used, seen, filled)[:, self.x.shape[1] :].float()
        whole = predictive_of(self.model, self.read, self.y, self.known, targets, {}).map(Tensor.double)
        return {key: self._one(whole, i, seat, x) for i, (key, seat) in enumerate(self.seats.items())}

    def _one(self, whole: Predictive, index: int, seat: Seat, x: Tensor) -> Predictive:
        """What one member says, in the user's units and order of classes."""
        part = whole.map(lambda array: array[:, :, index : index + 1])
        if isinstance(part, CategoricalPredictive):
            return CategoricalPredictive(part.log_probs[..., seat.classes])
        loc, scale, weights = part.arrays()
        shift = self.mean[index] if seat.line is None else self.mean[index] + seat.line(x)[:, None]
        return IndependentPredictive(shift + self.std[index] * loc, self.std[index] * scale, weights)


def _check(panel: Panel, rows: int) -> None:
    """Refuse a panel that asks the network more than once for a row, or for some rows another way than for others."""
    instead = (
        "fit with the name of a model, as NPRegressor('dsvnp') or NPClassifier('dsvnp'), and export that"
    )
    if panel.problem.num_classes > MOST_CLASSES:
        raise ValueError(
            f"a file of the pretrained network tells at most {MOST_CLASSES} classes apart, got "
            f"{panel.problem.num_classes}; {instead}"
        )
    if panel.leaves > 1 and rows > panel.most_rows:
        raise ValueError(
            f"a file of the pretrained network predicts from at most {panel.most_rows} rows, got {rows}, which the fit "
            f"cut into {panel.leaves} boxes; fit fewer rows, or {instead}"
        )


def panel_graph(estimator: Any) -> Graph:
    """Make the graph of a fitted estimator that predicts by a panel."""
    filling = estimator.filling_
    module = PanelModule(estimator.ensemble_, FillingModule(filling), estimator.context_)
    axes: dict[str, Axes] = {"X": ("rows", len(filling.medians))}
    return Graph(
        module, axes, {"X": torch.float64}, {}, facts_of(estimator) | {"context": "the rows of the fit"}
    )
