"""Every page of the documentation, and the README: its Python runs, its commands parse, its links lead somewhere."""

import re
import shlex
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.main import get_command

from dsvnp import MODELS
from dsvnp.cli import app
from dsvnp.cli.paper import ALL, changes_of
from dsvnp.paper import EXPERIMENTS
from dsvnp.paper.settings import make_experiment
from dsvnp.tabular.base import BaseNP

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
TEXTS = dict(zip(NAMES, (path.read_text(encoding="utf-8") for path in PAGES), strict=True))
OTHERS = ["CONTRIBUTING.md", "CHANGELOG.md", "results/README.md"]  # their links lead somewhere, too


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXTS[name], flags=re.DOTALL)


def commands(name: str) -> list[list[str]]:
    """The words of each call of `dsvnp` in the shell blocks of a page, and of those in its prose."""
    lines = [line for block in blocks(name, "sh") for line in re.split(r"\n|&&", block.replace("\\\n", " "))]
    lines += re.findall(r"`(dsvnp [^`\n]+)`", TEXTS[name])
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[1:] for line in words if line and line[0].split("/")[-1] == "dsvnp"]


@pytest.mark.filterwarnings("ignore:(rows|tables) that were held out:UserWarning")
@pytest.mark.parametrize("name", [name for name in NAMES if blocks(name, "python")])
def test_python_runs_in_the_order_of_the_page(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # the estimators' defaults take half a minute; that they learn is tested elsewhere
    monkeypatch.setitem(BaseNP.__init__.__kwdefaults__, "max_steps", 20)
    monkeypatch.setitem(BaseNP.__init__.__kwdefaults__, "n_replicas", 2)
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        if "from botorch" in TEXTS[name]:
            pytest.importorskip("botorch", reason="needs the extra botorch", exc_type=ImportError)
            warnings.simplefilter("ignore")  # of BoTorch and what it imports
        for block in blocks(name, "python"):
            exec(compile(block, name, "exec"), names)


@pytest.mark.parametrize("name", [name for name in NAMES if commands(name)])
def test_commands_parse(name):
    group = get_command(app)
    for words in commands(name):
        context = group.make_context("dsvnp", list(words), resilient_parsing=True)
        word, command, rest = group.resolve_command(context, list(words))
        params = command.make_context(word, rest, parent=context).params
        if word != "reproduce":
            continue
        kinds = EXPERIMENTS.values() if params["experiment"] == ALL else [EXPERIMENTS[params["experiment"]]]
        for kind in kinds:
            make_experiment(kind, params["preset"], **changes_of(params["set_"] or []))
        assert set((params["models"] or "cnp").split(",")) <= set(MODELS)


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_links_lead_to_files(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in link:
            assert ((ROOT / name).parent / link).exists(), link


def test_every_experiment_has_a_guide():
    for name in EXPERIMENTS:
        assert f"docs/guides/{name}.md" in NAMES
        assert any(words[:2] == ["reproduce", name] for words in commands(f"docs/guides/{name}.md"))


def test_every_page_is_in_the_contents():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for name in NAMES[1:]:
        assert f": {name.removeprefix('docs/')}\n" in contents, f"add {name} to the contents in mkdocs.yml"


@pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="the extra `docs` is not installed")
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference" / "tasks" / "index.html").read_text(encoding="utf-8")
    assert "from_sets" in page
    assert not re.search(r'<(script|link)[^>]+(src|href)="https?:', page)  # nothing comes from another host
