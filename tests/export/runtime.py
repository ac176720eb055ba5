"""onnxruntime, where it is installed: it answers from a file, and the answer is compared with torch's."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install 'dsvnp[onnx]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install 'dsvnp[onnx]')")

NEAR = 1e-4  # of the predictive σ


def session_of(path: Path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # it warns of inputs with a default
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def answer(session, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {name: value.numpy() for name, value in inputs.items()})
    return {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}


def same(got: dict[str, Tensor], predictive) -> None:
    """Hold the outputs for numbers [B, T, ·] against a predictive, component by component."""
    sigma = predictive.stddev
    assert (got["mean"] - predictive.mean).abs().div(sigma).max() < NEAR
    assert (got["std"] - sigma).abs().div(sigma).max() < NEAR
    for name in ("aleatoric", "epistemic"):
        assert (got[name] - getattr(predictive, name)).abs().div(sigma.square()).max() < NEAR
    each = predictive.loc.flatten(0, 1).movedim(0, 2)  # [B, T, M, D]
    assert (got["means"] - each).abs().div(sigma.unsqueeze(2)).max() < NEAR
    sigmas = predictive.scale.flatten(0, 1).movedim(0, 2)
    assert (got["sigmas"] - sigmas).abs().div(sigma.unsqueeze(2)).max() < NEAR
    # The parts are the mixture: its moments follow from them.
    weights = got["weights"].unsqueeze(-1)
    mean = (weights * got["means"]).sum(2)
    second = (weights * (got["sigmas"].square() + got["means"].square())).sum(2)
    torch.testing.assert_close(mean, got["mean"], rtol=1e-4, atol=1e-5)
    assert ((second - mean.square()).sqrt() - got["std"]).abs().div(got["std"]).max() < 1e-3
