"""Pretrained weights: what is saved is what is loaded, and what is not whole is refused."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save

import dsvnp
from dsvnp import Architecture, Transformer, make_model
from dsvnp.pretrained import Card, load_pretrained, read_card, save_pretrained
from dsvnp.pretrained.heads import for_classes
from dsvnp.pretrained.loading import hashlib
from dsvnp.task import Task

ARCH = Architecture(
    2,
    1,
    likelihood="mixture",
    num_components=3,
    decoder=(8,),
    coded_x=True,
    transformer=Transformer(8, 2, 2, 8, (8,), equivariant=True, rotary=20.0),
)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return make_model("tnp", ARCH)


def some_task() -> Task:
    g = torch.Generator().manual_seed(1)
    return Task.from_sets(
        torch.randn(2, 5, 2, generator=g),
        torch.randn(2, 5, 1, generator=g),
        torch.randn(2, 4, 2, generator=g),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_loaded_network_is_the_saved_one_with_rounded_parameters(model, tmp_path, dtype):
    path = save_pretrained(model, Card("mine", steps=7, limits="few"), tmp_path, dtype)
    loaded = load_pretrained("mine", tmp_path)
    expected = {name: value.to(dtype).float() for name, value in model.named_parameters()}
    expected |= dict(model.named_buffers())  # a fixed frequency is not rounded
    assert loaded.state_dict().keys() == expected.keys()
    for name, value in loaded.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, expected[name].float()), name
    assert not loaded.training
    assert load_file(path)["decoder.first.bias"].dtype == dtype
    card = read_card("mine", tmp_path)
    assert (card.model, card.steps, card.licence) == ("tnp", 7, "MIT")
    assert Architecture.from_dict(card.architecture) == ARCH


def test_half_precision_changes_predictions_little(model, tmp_path):
    save_pretrained(model, Card("mine"), tmp_path)
    before, after = (m.predict(some_task()) for m in (model, dsvnp.load_pretrained("mine", tmp_path)))
    assert torch.allclose(before.mean, after.mean, atol=5e-3)
    assert not torch.equal(before.mean, after.mean)


def test_a_name_that_is_not_there_is_refused_with_those_that_are(model, tmp_path):
    save_pretrained(model, Card("mine"), tmp_path)
    with pytest.raises(ValueError, match=re.escape("has no pretrained network 'yours'; it has mine")):
        load_pretrained("yours", tmp_path)


def rewrite(folder, change) -> None:
    """Change the tensors of saved weights, with a card that gives their checksum."""
    path = folder / "mine.safetensors"
    tensors = load_file(path)
    change(tensors)
    path.write_bytes(save(tensors))
    card = json.loads((folder / "mine.json").read_text())
    card["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "mine.json").write_text(json.dumps(card))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t["decoder.first.bias"].fill_(torch.nan),
            "decoder.first.bias has values that are not finite",
        ),
        (lambda t: t.pop("decoder.first.bias"), "decoder.first.bias is in one of the two only"),
        (lambda t: t.update({"more": torch.ones(1)}), "more is in one of the two only"),
        (
            lambda t: t.update({"decoder.first.bias": torch.ones(9)}),
            "has the shape (9,), the architecture needs (8,)",
        ),
        *(
            (
                lambda t, dtype=dtype: t.update({"decoder.first.bias": torch.ones(8, dtype=dtype)}),
                f"decoder.first.bias is of {dtype}, not float16, bfloat16 or float32",
            )
            for dtype in (torch.complex64, torch.int32, torch.float64)
        ),
    ],
)
def test_weights_that_are_not_of_the_card_are_refused(model, tmp_path, change, message):
    save_pretrained(model, Card("mine"), tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(ValueError, match=re.escape(message)):
        load_pretrained("mine", tmp_path)


def test_damaged_weights_are_refused(model, tmp_path):
    path = save_pretrained(model, Card("mine"), tmp_path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged, its checksum is not the card's"):
        load_pretrained("mine", tmp_path)


def test_a_card_with_an_unknown_entry_is_refused(model, tmp_path):
    save_pretrained(model, Card("mine"), tmp_path)
    card = json.loads((tmp_path / "mine.json").read_text())
    (tmp_path / "mine.json").write_text(json.dumps(card | {"stepz": 1}))
    with pytest.raises(ValueError, match="stepz"):
        load_pretrained("mine", tmp_path)


def test_a_network_that_half_precision_cannot_hold_is_not_saved(model, tmp_path):
    with torch.no_grad():
        model.decoder.first.bias.fill_(1e6)
    with pytest.raises(ValueError, match=re.escape("decoder.first.bias is not finite in torch.float16")):
        save_pretrained(model, Card("mine"), tmp_path)
    assert not list(tmp_path.iterdir())


HOSTILE = {
    "wide": {"decoder": [2**30, 2**30]},
    "large": {"decoder": [2**20, 2**20]},
    "deep": {"transformer": {"num_layers": 10**9}},
    "text": {"dim_x": "2"},
    "list": {"transformer": [8]},
    "none": {"dim_y": None},
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_card_of_a_hostile_architecture_is_one_line_and_takes_no_memory(model, tmp_path, how):
    save_pretrained(model, Card("mine"), tmp_path)
    card = json.loads((tmp_path / "mine.json").read_text())
    card["architecture"] |= HOSTILE[how]
    (tmp_path / "mine.json").write_text(json.dumps(card))
    with pytest.raises(ValueError, match=str(tmp_path / "mine")) as refusal:
        load_pretrained("mine", tmp_path)
    assert "\n" not in str(refusal.value)


def test_weights_that_are_no_tensors_are_refused_though_their_checksum_fits(model, tmp_path):
    path = save_pretrained(model, Card("mine"), tmp_path)
    path.write_bytes(b"not these")
    card = json.loads((tmp_path / "mine.json").read_text())
    card["sha256"] = hashlib.sha256(b"not these").hexdigest()
    (tmp_path / "mine.json").write_text(json.dumps(card))
    with pytest.raises(ValueError, match="no tensors can be read"):
        load_pretrained("mine", tmp_path)


@pytest.mark.parametrize("entry", [{"steps": "7"}, {"architecture": []}, {"sha256": None}, {"prior": {}}])
def test_a_card_with_an_entry_of_another_kind_is_refused(model, tmp_path, entry):
    save_pretrained(model, Card("mine"), tmp_path)
    card = json.loads((tmp_path / "mine.json").read_text())
    (tmp_path / "mine.json").write_text(json.dumps(card | entry))
    with pytest.raises(ValueError, match=rf"mine\.json has {next(iter(entry))} = "):
        load_pretrained("mine", tmp_path)


def test_loading_leaves_torchs_random_numbers_alone(model, tmp_path):
    save_pretrained(model, Card("mine"), tmp_path)
    before = torch.get_rng_state()
    for name, folder in (("curves", None), ("tables", None), ("mine", tmp_path)):
        load_pretrained(name, folder)
    for_classes(load_pretrained("tables"), 3)
    assert torch.equal(torch.get_rng_state(), before)
