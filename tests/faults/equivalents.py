"""Mutants that no test can notice, or need not, each with the reason: the report of a run names it."""

from __future__ import annotations

MASKED = "the number stands for a missing value, and what is computed from it is replaced afterwards"
EDGE = "both sides agree at the edge itself, or no value lies there"
MORE = "more rounds, nodes or slots than are needed change nothing"
SPEED = "the same digits in another time"
SYMMETRIC = "nodes, or noise, of the other sign are as good"
DEFAULT = "older files lack it, and any value that is allowed passes"
LAYOUT = "how JSON is indented, or a message cut, does not matter"

# file, a part of the line, the code before -> why nothing changes
EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("predictive/gaussian.py", "torch.where(missing, 0.0, y)", "0.0"): MASKED,
    ("likelihoods/numbers.py", "torch.where(missing, 0.0, y)", "0.0"): MASKED,
    ("predictive/low_rank.py", "torch.where(there, y, 0.0)", "0.0"): MASKED,
    ("likelihoods/classes.py", "torch.where(is_class.unsqueeze(-1), 0.0, value)", "0.0"): MASKED,
    ("likelihoods/classes.py", "> 0.5", "flag > 0.5"): EDGE,
    ("likelihoods/classes.py", "> 0.5", "y[..., 1] > 0.5"): EDGE,
    ("predictive/base.py", "edges <= u", "edges <= u"): EDGE,
    ("predictive/independent.py", "<= u", "weights.exp().cumsum(1) <= u"): EDGE,
    ("predictive/gaussian.py", "miss < 0", "miss < 0"): EDGE,
    ("predictive/gaussian.py", "newton >= low", "newton >= low"): EDGE,
    ("predictive/gaussian.py", "newton <= high", "newton <= high"): EDGE,
    ("predictive/gaussian.py", "close * unit", "step.abs() <= close * unit"): EDGE,
    ("predictive/gaussian.py", "for _ in range(60", "60"): MORE,
    ("predictive/gaussian.py", "for _ in range(60", "30"): MORE,
    ("predictive/mixtures.py", "hermegauss(32)", "32"): MORE,
    ("predictive/mixtures.py", "for _ in range(60)", "60"): MORE,
    ("predictive/mixtures.py", "high - low", "high - low"): "it holds the first of many steps alone",
    ("predictive/mixtures.py", "MANY = 2**14", "14"): SPEED,
    ("predictive/mixtures.py", "MANY = 2**14", "2"): SPEED,
    ("predictive/mixtures.py", "start.float(), 1e-5)", "1e-05"): SPEED,
    (
        "predictive/mixtures.py",
        "variance = (weights",
        "wide - mean",
    ): "a unit of another size, in which the root is the same",
    ("predictive/mixtures.py", "> MANY", "len(level) * loc.numel() > MANY"): SPEED,
    ("predictive/mixtures.py", "(last <= close).all()", "last <= close"): EDGE,
    (
        "predictive/mixtures.py",
        "ndtri(level).unsqueeze(1)",
        "1",
    ): "a new axis next to axes of size 1: the same shape",
    ("aggregators.py", "torch.where(mask.unsqueeze(-1), values, 0.0)", "0.0"): "empty slots have no weight",
    ("predictive/mixtures.py", "> MANY", "loc.dtype == torch.float64"): SPEED,
    ("predictive/mixtures.py", "loc + scale * float(node)", "loc + scale * float(node)"): SYMMETRIC,
    ("predictive/low_rank.py", "loc + noise * own", "loc + noise * own"): SYMMETRIC,
    (
        "predictive/low_rank.py",
        "loc + noise * own",
        "loc + noise * own + (factor * shared.unsqueeze(-2)).sum(-1)",
    ): SYMMETRIC,
    ("tabular/saved/checking.py", "known[0]", "0"): DEFAULT,
    ("tabular/saved/checking.py", '"n_draws", 1)', "1"): DEFAULT,
    (
        "likelihoods/numbers.py",
        "g = 2.0",
        "2.0",
    ): "the root that the rounds lead to is the same from any start",
    ("likelihoods/numbers.py", "for _ in range(64)", "64"): MORE,
    ("aggregators.py", "F.pad(r, (0, 0, 0, 1))", "0"): MORE,
    ("aggregators.py", "F.pad(r, (0, 0, 0, 1))", "1"): MORE,
    ("training/checkpoint.py", "indent=1", "1"): LAYOUT,
    ("tabular/saved/saving.py", "indent=1", "1"): LAYOUT,
    ("tabular/saved/saving.py", "[:300]", "300"): LAYOUT,
}


def reason(file: str, line: str, before: str) -> str:
    """Why a surviving mutant is no gap of the tests; an empty text if it may be one."""
    found = (
        why
        for (name, part, code), why in EQUIVALENT.items()
        if name == file and part in line and code == before
    )
    return next(found, "")
