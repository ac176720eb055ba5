"""The page on export: its Python runs and writes a file, and its JavaScript answers from that file as Python does."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from runtime import session_of

from dsvnp.tabular.base import BaseNP

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def node_modules() -> Path | None:
    """A folder with onnxruntime's package for Node, or None."""
    if shutil.which("node") is None:
        return None
    places = [
        ROOT / "node_modules",
        *map(Path, filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep))),
    ]
    return next((place for place in places if (place / "onnxruntime-node").is_dir()), None)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """The folder in which the page's Python ran, with estimators that train for a few steps only."""
    folder = tmp_path_factory.mktemp("page")
    names: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(BaseNP.__init__.__kwdefaults__, "max_steps", 20)
        patch.setitem(BaseNP.__init__.__kwdefaults__, "n_replicas", 1)
        for block in blocks("python"):
            exec(compile(block, "docs/export.md", "exec"), names)
    assert names["mean"].shape == (1, 30, 1)
    np.testing.assert_allclose(names["outputs"]["weights"].sum(-1).numpy(), 1, rtol=1e-5)
    return folder


@pytest.mark.filterwarnings("ignore:(rows|tables) that were held out:UserWarning")
def test_python_runs(written):
    assert {path.name for path in written.iterdir()} == {"model.onnx", "curves.onnx", "curves.pt2"}


@pytest.mark.filterwarnings("ignore:(rows|tables) that were held out:UserWarning")
@pytest.mark.skipif(
    node_modules() is None,
    reason="no Node with onnxruntime-node here (npm install onnxruntime-node, or name its folder in NODE_PATH)",
)
def test_javascript_answers_as_python_does(written):
    (script,) = blocks("js")
    (written / "snippet.mjs").write_text(script, encoding="utf-8")
    (written / "node_modules").symlink_to(node_modules())
    done = subprocess.run(["node", "snippet.mjs"], cwd=written, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    mean, std = session_of(written / "model.onnx").run(["mean", "std"], {"X": np.zeros((2, 10))})
    np.testing.assert_allclose(json.loads(done.stdout), [*mean.ravel(), *std.ravel()], rtol=1e-5)
