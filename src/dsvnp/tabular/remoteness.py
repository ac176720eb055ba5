"""Remoteness: how far rows lie from those that are known, beyond what is usual among these."""

from __future__ import annotations

import torch
from torch import Tensor

FEW = 20  # rows that say nothing of what is usual
USUAL = 0.95  # share of the known rows that have another one within the unit


def remoteness(x: Tensor, known: Tensor, chunk: int = 1000) -> Tensor:
    """ln of the distance to the nearest known row, in units of the usual distance; 0 within it, [N].

    Args:
        x: rows, [N, D].
        known: rows to compare them with, [M, D]; of fewer than twenty nothing is told, and all is 0.
        chunk: rows handled at once.
    """
    if len(known) < FEW:
        return x.new_zeros(len(x))
    among = _distance(known, known).fill_diagonal_(torch.inf).amin(1)
    unit = torch.quantile(among, USUAL)
    unit = torch.where(unit > 0, unit, 1.0)  # rows that are all there twice
    nearest = torch.cat([_distance(part, known).amin(1) for part in x.split(chunk)])
    return (nearest / unit).clamp(min=1).log()


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """Distances [N, M]; not by a matrix product, to which rows that are the same are not quite so."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
