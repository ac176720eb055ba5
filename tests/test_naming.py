"""Names that users type."""

from __future__ import annotations

import pytest

from dsvnp.naming import lookup, unknown

TABLE = {"mean": 1, "max": 2, "top-3": 3}


def test_a_known_name_is_looked_up():
    assert lookup("max", TABLE, "aggregator") == 2


@pytest.mark.parametrize("typed", ["maen", "MEAN", "means", "meow"])
def test_a_misspelt_name_gets_the_nearest_one(typed):
    with pytest.raises(ValueError) as refusal:
        lookup(typed, TABLE, "aggregator")
    expected = f"unknown aggregator {typed!r}. Did you mean 'mean'? Known: mean, max, top-3."
    assert str(refusal.value) == expected


def test_a_name_like_no_other_gets_the_list_alone():
    assert unknown("zzz", TABLE, "aggregator") == "unknown aggregator 'zzz'. Known: mean, max, top-3."


def test_known_names_may_be_read_only_once():
    assert unknown("maen", iter(TABLE), "thing").endswith("Did you mean 'mean'? Known: mean, max, top-3.")
