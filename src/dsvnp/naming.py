"""Names that users type: look one up, or suggest the nearest known name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


def lookup(name: str, table: Mapping[str, T], kind: str) -> T:
    """Return `table[name]`, or raise a ValueError that suggests the nearest known name."""
    if name in table:
        return table[name]
    raise ValueError(unknown(name, table, kind))


def unknown(name: str, known: Iterable[str], kind: str) -> str:
    """Word the error for a `name` that is not a known `kind`: the nearest known name, and all of them."""
    known = list(known)
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {name!r}.{hint} Known: {', '.join(known)}."
