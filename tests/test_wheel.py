"""The wheel in a fresh environment runs the README's commands: nothing that it needs is left in the repository.

Takes minutes: `DSVNP_WHEEL=1 pytest -m wheel`. The packages that dsvnp depends on are taken from the environment of the
tests, by their path.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.wheel,
    pytest.mark.skipif("DSVNP_WHEEL" not in os.environ, reason="takes minutes; set DSVNP_WHEEL"),
]
SHORTER = {
    "demo": ["--steps", "10"],
    "fit": ["--steps", "10", "--replicas", "1"],
    "reproduce": ["--preset", "smoke", "--models", "cnp", "--out", "runs/curves-quick"],
}


def readme_commands() -> list[list[str]]:
    """The words of each call of `dsvnp` in the README's shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    words = [shlex.split(line, comments=True) for block in blocks for line in re.split(r"\n|&&", block)]
    return [line[1:] for line in words if line and line[0].split("/")[-1] == "dsvnp"]


def call(*words: object, cwd: Path = ROOT) -> str:
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=outside, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of programs of an environment into which the wheel was installed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys; sys.path[:0] = {!r}; from build.__main__ import main; main({!r})"
    words = ["--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    call(sys.executable, "-c", build.format(sys.path, words))
    (wheel,) = folder.glob("dsvnp-*.whl")
    venv.create(folder / "env", with_pip=False)
    paths = {"base": str(folder / "env"), "platbase": str(folder / "env")}
    site = Path(sysconfig.get_path("purelib", scheme="venv", vars=paths))
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "others.pth").write_text("\n".join(others) + "\n")
    programs = site.parents[2] / "bin"
    call(
        sys.executable,
        "-m",
        "pip",
        "--python",
        programs / "python",
        "install",
        "--no-deps",
        "--no-index",
        wheel,
    )
    return programs


def test_the_wheel_runs_the_commands_of_the_readme(installed, tmp_path):
    where = call(installed / "python", "-c", "import dsvnp; print(dsvnp.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    rows = [f"{i / 10},{'ab'[i % 2]},{i * 3 % 7}" for i in range(60)]
    for name in ("table.csv", "new.csv"):
        (tmp_path / name).write_text("\n".join(["size,kind,price", *rows]) + "\n")
    called = readme_commands()
    assert {words[0] for words in called} >= {"demo", "fit", "predict", "reproduce", "report"}
    for words in called:
        call(installed / "dsvnp", *words, *SHORTER.get(words[0], []), cwd=tmp_path)
    assert (tmp_path / "predictions.csv").read_text().startswith("price,price_std")
    assert (tmp_path / "runs" / "curves-quick" / "report.html").is_file()
    for weights in (ROOT / "src" / "dsvnp" / "pretrained" / "weights").glob("*.json"):
        load = f"from dsvnp import load_pretrained; load_pretrained({weights.stem!r})"
        call(installed / "python", "-c", load, cwd=tmp_path)
