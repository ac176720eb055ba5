"""Remoteness: how far rows lie from those that are known, beyond what is usual among these."""

import torch
from torch import Tensor

FEW = 20  # rows, too few to measure what is usual
USUAL = 0.95  # share of the known rows that have another one within the unit


def remoteness(x: Tensor, known: Tensor, unit: Tensor | None = None, chunk: int = 1000) -> Tensor:
    """ln of the distance of rows [N, D] to the nearest known row, in units of the usual one; 0 within it, [N].

    With fewer than twenty known rows [M, D] every score is 0. `unit` is the usual distance, where it is known already.
    """
    if len(known) < FEW:
        return x.new_zeros(len(x))
    unit = usual_distance(known) if unit is None else unit
    nearest = torch.cat([_distance(part, known).amin(1) for part in x.split(chunk)])
    return (nearest / unit).clamp(min=1).log()


def usual_distance(known: Tensor) -> Tensor:
    """The distance within which most rows [M, D] have another one; 1 if most are there twice."""
    among = _distance(known, known).fill_diagonal_(torch.inf).amin(1)
    unit = torch.quantile(among, USUAL)
    return torch.where(unit > 0, unit, 1.0)


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """Distances [N, M]; not by a matrix product, to which rows that are the same are not quite so."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
