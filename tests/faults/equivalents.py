"""Mutants that no test can notice, or need not, each with the reason: the report of a run names it."""

from __future__ import annotations

MASKED = "the number stands for a missing value, and what is computed from it is replaced afterwards"
EDGE = "both sides agree at the edge itself, or no value lies there"
MORE = "more rounds, nodes or slots than are needed change nothing"
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
    (
        "likelihoods/numbers.py",
        "g = 2.0",
        "2.0",
    ): "the root that the rounds lead to is the same from any start",
    ("likelihoods/numbers.py", "for _ in range(64)", "64"): MORE,
    ("aggregators.py", "F.pad(r, (0, 0, 0, 1))", "0"): MORE,
    ("aggregators.py", "F.pad(r, (0, 0, 0, 1))", "1"): MORE,
    ("training/checkpoint.py", "indent=1", "1"): LAYOUT,
    ("tabular/saving.py", "indent=1", "1"): LAYOUT,
    ("tabular/saving.py", "[:300]", "300"): LAYOUT,
}


def reason(file: str, line: str, before: str) -> str:
    """Why a surviving mutant is no gap of the tests; an empty text if it may be one."""
    found = (
        why
        for (name, part, code), why in EQUIVALENT.items()
        if name == file and part in line and code == before
    )
    return next(found, "")
