"""Every page of the documentation, and the README: its Python runs, its commands parse, its links lead somewhere."""

import re
import shlex
import subprocess
import sys
import threading
import warnings
from functools import partial
from html.parser import HTMLParser
from http.server import ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from chromium import CHROMIUM, Browser
from typer.main import get_command

from dsvnp import MODELS
from dsvnp.cli import app
from dsvnp.cli.paper import ALL, changes_of
from dsvnp.paper import EXPERIMENTS
from dsvnp.paper.settings import make_experiment
from dsvnp.playground.server import PageHandler, address
from dsvnp.tabular.base import BaseNP

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
TEXTS = dict(zip(NAMES, (path.read_text(encoding="utf-8") for path in PAGES), strict=True))
ELSEWHERE = ["docs/export.md"]  # needs onnxruntime: tests/export runs it
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
@pytest.mark.filterwarnings("ignore:n_replicas, max_steps has no effect:UserWarning")
@pytest.mark.parametrize(
    "name",
    [name for name in NAMES if blocks(name, "python") and "tutorials/" not in name and name not in ELSEWHERE],
)
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


class Links(HTMLParser):
    """What a page of the site leads to, and the places in it that others can lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [link for name in ("href", "src") if (link := given.get(name))]
        self.places |= {place for name in ("id", "name") if (place := given.get(name))}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if find_spec("mkdocstrings") is None:
        pytest.skip("the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.xdist_group("site")
def test_the_site_builds_without_a_warning(site):
    page = (site / "reference" / "tasks" / "index.html").read_text(encoding="utf-8")
    assert "from_sets" in page
    assert not re.search(r'<(script|link)[^>]+(src|href)="https?:', page)  # nothing comes from another host


@pytest.mark.xdist_group("site")
def test_the_reference_shows_comments_of_fields_and_parameters(site):
    page = (site / "reference" / "data" / "index.html").read_text(encoding="utf-8")
    assert "Mean of each column, [D]." in page  # next to a field of Standardizer
    assert "At least one, in the order of their turns;" in page  # above one of Rotation
    assert "drawing it again is no part of a captured step." in page  # next to a parameter of CartPoleTasks


@pytest.mark.xdist_group("site")
def test_links_of_the_site_lead_to_pages_and_places(site):
    pages = {path: Links(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert (site / "playground" / "page" / "js" / "app.js").is_file()
    assert "playground/page/index.html" in pages[site / "index.html"].links
    for page, found in pages.items():
        for link in found.links:
            place = urlsplit(link)
            if place.scheme or place.netloc:
                continue
            goal = (page.parent / unquote(place.path)).resolve() if place.path else page
            goal = goal / "index.html" if goal.is_dir() else goal
            assert goal.is_file(), f"{page.relative_to(site)} leads to {link}"
            if place.fragment and goal in pages and "playground/page" not in goal.as_posix():
                assert unquote(place.fragment) in pages[goal].places, f"{page.relative_to(site)}: {link}"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)")
@pytest.mark.xdist_group("site")
def test_the_front_page_shows_the_playground_on_a_desk_and_on_a_phone(site, tmp_path):
    serving = partial(PageHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), serving) as server, Browser(tmp_path) as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for page, width in (("", 1280), ("", 390), ("tutorials/a-new-model/", 390)):
            browser.open(f"{address(server)}{page}", width)
            assert browser.run("document.documentElement.scrollWidth") <= width
            if not page:
                frame = "document.querySelector('iframe.playground')"
                browser.run(f"{frame}.scrollIntoView()")
                browser.until(
                    f"!!{frame}.contentDocument.querySelector('[data-bands-ms]')", "a network to answer"
                )
        assert browser.complaints == []
        server.shutdown()
