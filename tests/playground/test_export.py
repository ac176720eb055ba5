"""Files for the page: what they hold, what is refused, and that all that is shipped fits."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from dsvnp.models import Architecture, Transformer, make_model
from dsvnp.playground import PAGE
from dsvnp.playground.export import MANIFEST, about, export, load, write_manifest
from dsvnp.task import Task

ARCH = Architecture(1, 1, encoder=(6,), dim_lat=4, decoder=(6,), transformer=Transformer(8, 1, 2, 8, (8,)))
WEIGHTS = PAGE / "weights"


def test_a_network_comes_back_rounded_and_without_what_training_alone_needs(tmp_path):
    torch.manual_seed(0)
    model, path = make_model("dsvnp", ARCH), tmp_path / "new" / "net.safetensors"
    count = export(model, path, {"steps": 7})
    posterior = sum(w.numel() for name, w in model.named_parameters() if name.startswith("local_posterior."))
    assert count == sum(w.numel() for w in model.parameters()) - posterior
    assert about(path) == {"model": "dsvnp", "num_weights": count, "steps": 7}
    back = load(path)
    torch.testing.assert_close(back.decoder.first.bias, model.decoder.first.bias.half().float())
    x = torch.zeros(1, 2, 1)
    assert back.predict(Task.from_sets(x, x, x)).mean.isfinite().all()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("mc-dropout", {}, "model of the playground"),
        ("cnp", {"likelihood": "mixture"}, "likelihood=gaussian"),
        ("cnp", {"aggregator": "max"}, "aggregator=mean"),
        ("attnnp", {"attention": "block"}, "the playground computes attention=dot, got 'block'"),
        *((name, {"deterministic_path": True}, "no deterministic path") for name in ("cnp", "np", "dsvnp")),
    ],
)
def test_what_the_page_cannot_compute_is_refused(name, change, said, tmp_path):
    model = make_model(name, replace(ARCH, **change))
    with pytest.raises(ValueError, match=said):
        export(model, tmp_path / "net.safetensors")
    assert not list(tmp_path.iterdir())


def test_weights_beyond_half_precision_are_refused(tmp_path):
    model = make_model("cnp", ARCH)
    model.decoder.first.bias.data[0] = 1e6
    with pytest.raises(ValueError, match=r"decoder\.first\.bias leaves"):
        export(model, tmp_path / "net.safetensors")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.update(x=torch.ones(1).half()), "x is not as its architecture needs it"),
        (lambda t: t.pop("decoder.first.bias"), "decoder.first.bias is not as"),
        (lambda t: t.update({"decoder.first.bias": torch.ones(7).half()}), "decoder.first.bias is not as"),
        *(
            (
                lambda t, dtype=dtype: t.update({"decoder.first.bias": torch.ones(6, dtype=dtype)}),
                f"decoder.first.bias is of {dtype}, not of torch.float16",
            )
            for dtype in (torch.complex64, torch.int64, torch.float32)
        ),
    ],
)
def test_weights_that_are_not_the_networks_are_refused_by_name(tmp_path, change, reason):
    path = tmp_path / "net.safetensors"
    export(make_model("cnp", ARCH), path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match=rf"net\.safetensors.*{reason}"):
        load(path)
    save_file(tensors, path)
    with pytest.raises(ValueError, match=r"net\.safetensors.*(does not say the model|is of torch)"):
        load(path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"net\.safetensors cannot be read as weights"):
        load(path)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"architecture": "{"}, "its architecture is not JSON"),
        ({"architecture": "[" * 100_000}, "its architecture is not JSON"),
        ({"architecture": "[]"}, "its network cannot be made"),
        ({"architecture": '{"dim_x": []}'}, "its network cannot be made"),
        ({"architecture": '{"dim_x": 1, "dim_y": 1, "decoder": [1000000, 1000000]}'}, "is not as its"),
        ({"architecture": '{"dim_x": 1, "dim_y": 1, "decoder": [9999999999]}'}, "more than 1048576"),
        ({"model": "oracle"}, "its network cannot be made .*oracle"),
    ],
)
def test_a_hostile_description_is_one_line_and_takes_no_memory(tmp_path, entry, reason):
    path = tmp_path / "net.safetensors"
    export(make_model("cnp", ARCH), path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    save_file(load_file(path), path, metadata | entry)
    with pytest.raises(ValueError, match=rf"net\.safetensors.*{reason}") as refusal:
        load(path)
    assert "\n" not in str(refusal.value)


def test_the_manifest_lists_the_networks_of_a_folder(tmp_path):
    export(make_model("tnp", ARCH), tmp_path / "curves-tnp.safetensors")
    listed = json.loads(write_manifest(tmp_path, {"curves": {"noise": [0.1]}}).read_text())
    assert list(listed["networks"]) == ["curves-tnp"]
    assert listed["domains"] == {"curves": {"noise": [0.1]}}


def test_what_is_shipped_is_small_and_listed():
    assert sum(path.stat().st_size for path in PAGE.rglob("*") if path.is_file()) < 6e6
    listed = json.loads((WEIGHTS / MANIFEST).read_text())["networks"]
    assert listed == {path.stem: about(path) for path in sorted(WEIGHTS.glob("*.safetensors"))}
    assert max(network["num_weights"] for network in listed.values()) <= 300_000
