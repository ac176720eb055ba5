"""`dsvnp export` as a person types it; what its files answer is tested in tests/export."""

import numpy as np
import pytest
import torch
from fitted import regressor, table
from typer.testing import CliRunner

from dsvnp.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:(rows|tables) that were held out:UserWarning")


def run(*words: object):
    return CliRunner().invoke(app, ["export", *map(str, words)])


def test_a_fitted_model_becomes_a_program_of_torch(tmp_path):
    estimator, (X, _) = regressor(), table()
    estimator.save(tmp_path / "model")
    result = run(tmp_path / "model", "--format", "pt2", "--out", tmp_path / "new" / "model.pt2")
    assert result.exit_code == 0, result.output
    program = torch.export.load(tmp_path / "new" / "model.pt2")
    (inputs,), _ = program.example_inputs
    got = program.module()(inputs | {"X": torch.from_numpy(X[:4])})
    mean, std = estimator.predict(X[:4], return_std=True)
    assert np.max(np.abs(got["mean"].numpy() - mean) / std) < 1e-4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tables", "--format", "onxx"], "Did you mean 'onnx'"),
        (["tables", "--format", "pt2", "--require", "mask_context"], "in which no input has a default"),
        (["tabels", "--out", "x.onnx"], "no pretrained network 'tabels'"),
        ([".", "--out", "x.onnx"], "holds no estimator"),
        (["tables", "--out", "."], "name a file"),
    ],
)
def test_refusals(words, said):
    result = run(*words)
    assert result.exit_code
    assert said in str(result.exception)
