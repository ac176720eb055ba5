"""Filling as a part of a graph: gaps of encoded columns get their medians, and flags mark where they were."""

from typing import Any

import torch
from torch import Tensor, nn

from dsvnp.tabular.rows.encoding import Filling


class FillingModule(nn.Module):
    """Numbers [rows, D], NaN where one is missing → numbers and flags, as `Filling.transform` makes them."""

    medians: Tensor
    gaps: Tensor
    empty: Tensor

    def __init__(self, filling: Filling) -> None:
        super().__init__()
        self.register_buffer("medians", torch.tensor(filling.medians, dtype=torch.float64))
        self.register_buffer("gaps", torch.tensor(filling.gaps).nonzero()[:, 0])
        self.register_buffer("empty", torch.tensor(filling.empty))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.where(self.empty, 0.0, x)
        missing = x.isnan()
        flags = missing[:, self.gaps].to(x.dtype)
        return torch.cat([torch.where(missing, self.medians, x), flags], dim=-1)


def unfilled_context(estimator: Any) -> tuple[Tensor, Tensor]:
    """The context of an estimator with its gaps as they were before they were filled."""
    filled, y = estimator.context_
    gaps = torch.tensor(estimator.filling_.gaps)
    x = filled[:, : len(gaps)].clone()
    x[:, gaps] = torch.where(filled[:, len(gaps) :] > 0, torch.nan, x[:, gaps])
    return x, y
