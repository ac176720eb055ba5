"""The page as `dsvnp playground` serves it, and as a wheel holds it."""

import re
import subprocess
import sys
import threading
import tomllib
import urllib.request
from fnmatch import fnmatch
from pathlib import Path

import pytest

from dsvnp.playground import PAGE
from dsvnp.playground.server import address, make_server

ROOT = Path(__file__).parents[2]


@pytest.fixture
def url():
    with make_server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address(server)
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("", "text/html"),
        ("js/app.js", "text/javascript"),
        ("style.css", "text/css"),
        ("weights/manifest.json", "application/json"),
    ],
)
def test_files_have_the_types_that_browsers_insist_on(url, path, kind):
    with urllib.request.urlopen(url + path) as answer:
        assert answer.headers["Content-Type"].startswith(kind)
        assert answer.read() == (PAGE / (path or "index.html")).read_bytes()


def test_a_port_in_use_is_told():
    with make_server() as server, pytest.raises(OSError, match="choose another with --port"):
        make_server(server.server_address[1])


def test_the_command_serves_until_it_is_stopped():
    process = subprocess.Popen(
        [sys.executable, "-m", "dsvnp", "playground", "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        with urllib.request.urlopen(found[0]) as answer:
            assert b"dsvnp <span>playground</span>" in answer.read()
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def test_every_file_of_the_page_is_package_data():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "dsvnp"
    ]
    for path in PAGE.rglob("*"):
        if path.is_file():
            name = path.relative_to(PAGE.parents[1]).as_posix()
            assert any(fnmatch(name, pattern) for pattern in patterns), name


def test_the_page_asks_no_other_host():
    for path in PAGE.rglob("*"):
        if path.suffix in (".html", ".js", ".css"):
            assert not re.findall(r"https?://", path.read_text(encoding="utf-8")), path
