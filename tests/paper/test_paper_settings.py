"""Settings inside settings are changed by dotted names, and come back from JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from dsvnp.paper.settings import as_json, changed, rebuild


@dataclass(frozen=True)
class Inner:
    width: int = 3
    rate: float | None = None
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Outer:
    inner: Inner = Inner(4)
    some: dict[str, int] = field(default_factory=lambda: {"a": 1})
    partial: dict[str, object] = field(default_factory=dict, metadata={"of": Inner})
    names: tuple[str, ...] = ("x",)


def test_some_settings_change_and_the_rest_stay():
    made = changed(Outer(), {"inner.rate": 1, "inner.sizes": [5], "some.b": 2, "names": "p,q"})
    assert made == Outer(Inner(4, 1, (5,)), {"a": 1, "b": 2}, names=("p", "q"))
    assert changed(Outer(), {"inner": {"width": 9}, "partial.width": 7}) == Outer(
        Inner(9), partial={"width": 7}
    )
    assert changed(Outer(), {"inner": Inner()}) == Outer(Inner())


def test_json_gives_them_back():
    made = Outer(Inner(1, 2.0, (3, 4)), {"a": 2})
    assert rebuild(Outer, json.loads(json.dumps(as_json(made)))) == made
    assert rebuild(Outer, {"inner": {}}) == Outer(Inner())  # older than its settings
    with pytest.raises(ValueError, match="Inner has no setting colour; another version wrote that run"):
        rebuild(Outer, {"inner": {"colour": 1}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iner.width": 1}, r"unknown setting 'iner'\. Did you mean 'inner'"),
        ({"inner.widht": 1}, r"unknown setting 'inner\.widht'\. Did you mean 'inner\.width'"),
        ({"partial.widht": 1}, r"Did you mean 'partial\.width'"),
        ({"inner.width": 1.5}, r"inner\.width: expected int, got 1\.5"),
        ({"partial.width": "a"}, r"partial\.width: expected int, got 'a'"),
        ({"inner.sizes": ["a"]}, r"inner\.sizes: expected tuple\[int, \.\.\.\], got"),
        ({"inner": None}, r"inner takes settings by name, as in inner\.NAME=VALUE, got None"),
    ],
)
def test_what_is_no_setting_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        changed(Outer(), change)
