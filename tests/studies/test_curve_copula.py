"""The studies of functions of curves: a copula is trained, written and measured."""

import json
import math
import sys

import torch

from dsvnp import Architecture, CurveRegressor, Transformer, make_model
from dsvnp.pretrained import Card, load_pretrained, save_pretrained
from studies import curve_copula, curve_functions


def test_a_copula_is_trained_written_and_measured(tmp_path, monkeypatch):
    torch.manual_seed(0)
    stack = Transformer(8, 1, 2, 8, (8,), equivariant=True, rotary=20.0)
    sizes = {"decoder": (8,), "sigma_form": "exp", "coded_x": True, "transformer": stack}
    save_pretrained(make_model("tnp", Architecture(6, 1, "mixture", **sizes)), Card("curves"), tmp_path)
    monkeypatch.setattr(curve_copula, "EVERY", 2)
    out = tmp_path / "out"
    options = ["--start", str(tmp_path), "--out", str(out), "--steps", "4", "--batch", "2"]
    monkeypatch.setattr(sys, "argv", ["", *options])
    curve_copula.main()
    first, *lines = [json.loads(line) for line in (out / "curve-copula.jsonl").read_text().splitlines()]
    assert first["settings"]["num_steps"] == 4
    assert [line["step"] for line in lines] == [2, 4]
    monkeypatch.setattr(
        sys, "argv", ["", "--start", str(out), *options[2:3], str(tmp_path / "again"), *options[4:]]
    )
    curve_copula.main()
    again = load_pretrained("curves", tmp_path / "again").state_dict()
    assert all(
        torch.equal(value, again[name]) for name, value in load_pretrained("curves", out).state_dict().items()
    )
    before, after = load_pretrained("curves", tmp_path), load_pretrained("curves", out)
    assert after.arch.likelihood == "coherent-mixture"
    x = torch.linspace(0, 1, 9).tolist()
    fits = [CurveRegressor(weights=folder).fit(x, [math.sin(5 * v) for v in x]) for folder in (tmp_path, out)]
    one, other = (fit.predict_quantiles([0.33, 1.2]) for fit in fits)
    assert abs(one - other).max() < 1e-3

    monkeypatch.setattr(curve_functions, "INPUTS", 5)
    monkeypatch.setattr(curve_functions, "DRAWN", (1, 2))
    monkeypatch.setattr(sys, "argv", ["", str(out), str(tmp_path / "found.json"), "--tasks", "2"])
    curve_functions.main()
    found = json.loads((tmp_path / "found.json").read_text())
    row = found["likelihoods"]["rbf"]
    assert abs(row["copula"] - row["single"] - row["copula_gain"]) < 2e-4
    assert row["exact"] > max(row["single"], row["copula"], row["chain"])
    assert found["seconds"]["copula"].keys() == {"1", "2"}
    assert before.arch.likelihood == "mixture"
