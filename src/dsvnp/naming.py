"""What users type or files hold: look a name up, suggest the nearest known one, show one safely, refuse a number."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")

LISTED, SEARCHED = 100, 2000  # names that a message lists, and those that one is compared with


def lookup(name: str, table: Mapping[str, T], kind: str) -> T:
    """Return `table[name]`, or raise a ValueError that suggests the nearest known name."""
    if name in table:
        return table[name]
    raise ValueError(unknown(name, table, kind))


def unknown(name: str, known: Iterable[str], kind: str) -> str:
    """Word the error for a `name` that is not a known `kind`: the nearest known name, and all of them."""
    known = list(known)
    near = get_close_matches(name.lower(), known[:SEARCHED], n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {name!r}.{hint} Known: {some(known)}."


def some(names: Sequence[str]) -> str:
    """Names in a line, the first of them where there are very many."""
    more = f", … ({len(names)} in all)" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def at_least_one(**numbers: float) -> None:
    """Refuse numbers below 1."""
    for name, value in numbers.items():
        if not value >= 1:
            raise ValueError(f"{name} must be at least 1, got {value}; raise it")


def shown(text: object) -> str:
    """Text for a terminal: signs that would move the cursor, colour it or turn the direction around are spelt out."""
    return "".join(
        sign if sign.isprintable() or sign == "\n" else sign.encode("unicode_escape").decode()
        for sign in str(text)
    )
