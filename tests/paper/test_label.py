"""A label is parsed and printed in one place."""

import pytest

from dsvnp.models import MODELS
from dsvnp.paper.label import Label
from dsvnp.plotting.style import COLOURS, INK, NAMES, look_of


@pytest.mark.parametrize(
    ("text", "label", "shown"),
    [
        ("dsvnp", Label("dsvnp"), "DSVNP"),
        ("mc-dropout", Label("mc-dropout"), "MC-Dropout"),
        ("mc-dropout-strong@wq", Label("mc-dropout", "strong", "wq"), "MC-Dropout strong"),
        ("dsvnp-beta-local-5@curves", Label("dsvnp", "beta-local-5", "curves"), "DSVNP beta-local-5"),
        ("npx-wide", Label("npx-wide"), "npx-wide"),
        ("oracle-average", Label("oracle-average"), "oracle-average"),
        ("extra-trees@wq", Label("extra-trees", dataset="wq"), "extra-trees"),
    ],
)
def test_what_is_printed_is_what_was_parsed(text, label, shown):
    assert Label.parse(text) == label
    assert str(label) == text
    assert f"{label}" == text
    assert label.look.text == shown
    assert label.look.colour == COLOURS.get(label.model, INK)
    assert "@" not in label.file
    assert label.row == text.partition("@")[0]


def test_a_registered_model_may_have_another_ones_name_in_its_own(monkeypatch):
    monkeypatch.setitem(MODELS, "np-max", MODELS["np"])
    assert Label.parse("np-max-wide") == Label("np-max", "wide")


def test_figures_show_every_model():
    assert {name: look_of(name).text for name in MODELS} == {name: NAMES.get(name, name) for name in MODELS}
    assert set(NAMES) == set(COLOURS)
    assert len(set(COLOURS.values())) == len(COLOURS)
