"""The report in a real browser: all pictures show, nothing is complained of, nothing sticks out of a phone's screen."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path

import pytest
from made_runs import row, write_run

from dsvnp.paper.report.page import write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)"),
    pytest.mark.xdist_group("browser"),
]
FLAGS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --enable-logging=stderr"
PROBE = """
<!doctype html><body><iframe id=frame style="border:0;width:%dpx;height:900px" srcdoc="%s"></iframe><pre id=found></pre>
<script>
addEventListener("load", () => {
  const page = document.getElementById("frame").contentDocument;
  document.getElementById("found").textContent = JSON.stringify({
    shown: [...page.images].map(image => image.complete && image.naturalWidth > 0 && image.clientWidth > 0),
    width: page.documentElement.scrollWidth,
    tables: [...page.querySelectorAll(".box")].map(box => box.scrollWidth - box.clientWidth),
    ground: page.defaultView.getComputedStyle(page.body).backgroundColor,
    ink: page.defaultView.getComputedStyle(page.body).color,
  });
});
</script>
"""


def look(page: str, folder: Path, width: int, dark: bool = False) -> tuple[dict, list[str]]:
    """Open a page at a width; return what the probe finds and what the console says."""
    probe = folder / "probe.html"
    probe.write_text(PROBE % (width, escape(page)), encoding="utf-8")
    flags = [*FLAGS.split(), f"--user-data-dir={folder / 'profile'}"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run(
        [CHROMIUM, *flags, "--window-size=1400,1000", "--dump-dom", probe.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = re.search('<pre id="found">(.+?)</pre>', done.stdout)
    assert found, done.stderr
    return json.loads(unescape(found[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture
def page(tmp_path):
    splits = [f"inter-{points}{suffix}" for points in "JP" for suffix in ("", "-max")]
    rows = [row(model, [1.0, 1.1], 1.3, split=split) for model in ("np", "dsvnp") for split in splits]
    write_run(tmp_path / "runs" / "curves", rows, figures=("training.svg", "calibration.svg"))
    (html, _) = write_report(tmp_path / "runs")
    return html.read_text(encoding="utf-8")


def luminance(colour: str) -> float:
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_on_a_phone_in_the_light(page, tmp_path):
    found, console = look(page, tmp_path, 390)
    assert console == []
    assert found["shown"] == [True, True]
    assert found["width"] <= 390  # the page does not scroll sideways,
    assert max(found["tables"]) > 0  # its boxes do
    assert luminance(found["ground"]) > 240
    assert luminance(found["ink"]) < 60


def test_on_a_desk_in_the_dark(page, tmp_path):
    found, console = look(page, tmp_path, 1280, dark=True)
    assert console == []
    assert found["shown"] == [True, True]
    assert max(found["tables"]) == 0
    assert luminance(found["ground"]) < 60
    assert luminance(found["ink"]) > 200


def test_the_check_itself(tmp_path):
    bad = '<img src="data:image/svg+xml,nothing"><div style="width:900px">-</div><script>nowhere()</script>'
    found, console = look(bad, tmp_path, 390)
    assert found["shown"] == [False]
    assert found["width"] >= 900
    assert "nowhere is not defined" in console[0]
