"""The page in a real browser: every tab, theme and width; mouse, touch and keyboard; nothing from elsewhere."""

import os
import re
import statistics
import threading
import time
from pathlib import Path

import pytest
from chromium import CHROMIUM, Browser

from dsvnp.playground import PAGE
from dsvnp.playground.server import address, make_server

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)"),
    pytest.mark.xdist_group("browser"),
]
DRAGS = int(os.environ.get("DSVNP_DRAGS", "12"))  # 100 for figures that are to be quoted
TABS = ("curves", "branches", "cartpole", "digits")
SET = "playground.tabs.curves.set"
PANEL = "document.querySelector('#panel-curves .panel:not([hidden])')"
DRAWN = """[...document.querySelectorAll('main canvas')].filter(c => c.clientWidth).map(c => {
  const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size > 3;
})"""


@pytest.fixture(scope="module")
def url():
    with make_server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address(server)
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def show(browser, url, tab, width=1280, dark=False):
    """Open a tab and wait until all its networks have answered."""
    browser.open("about:blank")  # after it an earlier page complains no more
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(f"{url}?{time.monotonic()}#{tab}", width, 844 if width < 600 else 900, dark)
    browser.until(f"globalThis.playground?.tabs.{tab}", "the page to start")
    names = f"[...document.querySelectorAll('#panel-{tab} .panel:not([hidden])')]"
    browser.until(f"{names}.some(p => p.dataset.bandsMs)", "an answer of a network")
    time.sleep(0.3)


def place(browser, x, y, owner="playground.tabs.curves.panels.find(p => p.visible)"):
    """Where a point of the data lies in the window, for the plot of a panel or tab."""
    return browser.run(
        f"""(() => {{
          const {{ plot }} = {owner};
          const box = plot.canvas.getBoundingClientRect();
          return [box.left + plot.px({x}), box.top + plot.py({y})];
        }})()"""
    )


def press(browser, tab, text):
    """Press the button of a tab that shows this text."""
    buttons = f"[...document.querySelectorAll('#panel-{tab} button')]"
    browser.run(f"{buttons}.find(b => b.textContent === '{text}').click()")


def luminance(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("tab", TABS)
def test_every_tab_in_both_themes_on_a_phone_and_on_a_desk(browser, url, tab, width, dark):
    show(browser, url, tab, width, dark)
    assert browser.complaints == []
    browser.until(f"{DRAWN}.every(Boolean)", "every canvas to be drawn")
    assert {request.split("/")[2] for request in browser.requests if not request.startswith("data:")} == {
        url.split("/")[2]
    }
    assert browser.run("document.documentElement.scrollWidth") <= width
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    ink = browser.run("getComputedStyle(document.body).color")
    bright, faint = (ink, ground) if dark else (ground, ink)
    assert luminance(bright) > 200
    assert luminance(faint) < 60


@pytest.mark.parametrize("tab", TABS)
def test_what_can_be_used_has_a_name_for_screen_readers(browser, url, tab):
    show(browser, url, tab)
    browser.send("Accessibility.enable")
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    used = [
        node
        for node in nodes
        if not node.get("ignored")
        and any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", []))
    ]
    assert len(used) > 10
    nameless = [node["role"]["value"] for node in used if not node.get("name", {}).get("value")]
    assert set(nameless) <= {"RootWebArea", "main"}


@pytest.mark.skipif("DSVNP_AXE" not in os.environ, reason="set DSVNP_AXE to axe.min.js (npm pack axe-core)")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("tab", TABS)
def test_axe_core_finds_nothing(browser, url, tab, dark):
    show(browser, url, tab, 390 if dark else 1280, dark)
    browser.run(f"document.querySelector('#panel-{tab} .help summary').click()")
    browser.run(Path(os.environ["DSVNP_AXE"]).read_text(encoding="utf-8") + ";0")
    found = browser.run("axe.run().then(r => r.violations.map(v => [v.id, v.impact, v.nodes[0].html]))")
    assert found == []


def test_a_page_opened_as_a_file_says_what_to_do(browser):
    browser.open((PAGE / "index.html").as_uri())
    assert "dsvnp playground" in browser.run("document.getElementById('failure').innerText")


def test_weights_that_are_missing_are_told(browser, url):
    show(browser, url, "curves")
    browser.run("playground.tabs.curves.panels[0].asker.url = 'nowhere', playground.tabs.curves.recompute()")
    browser.until("document.getElementById('failure').innerText.includes('404')", "a message")


def test_help_has_three_sentences_on_every_tab(browser, url):
    for tab in TABS:
        show(browser, url, tab)
        browser.run(f"document.querySelector('#panel-{tab} .help summary').click()")
        text = browser.run(f"document.querySelector('#panel-{tab} .help p').innerText")
        assert len(re.findall(r"[.!?](?:\s|$)", text)) == 3, text


def test_a_mouse_adds_drags_and_removes(browser, url):
    show(browser, url, "curves")
    assert browser.run(f"{SET}.points.length") == 5
    browser.click(*place(browser, 1.4, 1.0))
    assert browser.run(f"{SET}.points.at(-1).x") == pytest.approx(1.4, abs=0.05)
    before = browser.run("[...playground.tabs.curves.panels[0].bands.mean]")
    browser.drag(place(browser, 1.4, 1.0), place(browser, 1.0, -1.5))
    moved = browser.run(f"{SET}.points.at(-1)")
    assert (moved["x"], moved["y"]) == (pytest.approx(1.0, abs=0.05), pytest.approx(-1.5, abs=0.05))
    browser.until(f"playground.tabs.curves.panels[0].bands.mean[80] !== {before[80]}", "the bands to follow")
    end = place(browser, 1.0, -1.5)
    for clicks in (1, 2):
        browser.click(*end, clicks)
    assert browser.run(f"{SET}.points.length") == 5
    assert browser.complaints == []


def test_how_long_a_drag_takes(browser, url, record_property):
    show(browser, url, "curves")
    names = browser.run("playground.tabs.curves.panels.map(p => p.model.name)")
    for name in names:
        browser.run(f"document.querySelector('.chips [data-key={name}]').click()")
        panel = f"playground.tabs.curves.panels[{names.index(name)}]"
        times = {"bandsMs": [], "functionsMs": []}
        for step in range(DRAGS):
            browser.run(f"{SET}.move(0, {{x: {-1.5 + 3 * step / DRAGS}, y: 0.3}})")
            browser.until(f"new Promise(r => requestAnimationFrame(() => r(!{panel}.asker.busy)))")
            for kind, values in times.items():
                values.append(float(browser.run(f"{panel}.element.dataset.{kind}")))
        for kind, values in times.items():
            assert min(values) > 0, kind
            record_property(f"{name} {kind}", statistics.median(values))
            print(
                f"{name:7} {kind:12} median {statistics.median(values):6.1f} ms, best {min(values):6.1f} ms"
            )


def test_how_long_a_completed_digit_takes(browser, url, record_property):
    show(browser, url, "digits")
    tab = "playground.tabs.digits"
    times = []
    for step in range(DRAGS):
        browser.run(f"{tab}.pad.ink[{300 + step}] = 1, {tab}.recompute()")
        busy = f"Object.values({tab}.askers).some(asker => asker.busy)"
        browser.until(f"new Promise(r => requestAnimationFrame(() => r(!({busy}))))")
        times.append(float(browser.run(f"{tab}.meanPanel.dataset.bandsMs")))
    assert min(times) > 0
    record_property("digits", statistics.median(times))
    print(f"digits  completion   median {statistics.median(times):6.1f} ms, best {min(times):6.1f} ms")


def test_functions_hold_still_until_new_ones_are_wanted(browser, url):
    show(browser, url, "curves")
    panel = "playground.tabs.curves.panels.find(p => p.model.name === 'np')"
    browser.until(f"{panel}.functions", "functions")
    first = browser.run(f"[...{panel}.functions]")
    browser.run(f"{SET}.move(0, {{...{SET}.points[0]}})")
    browser.until(f"!{panel}.asker.busy")
    assert browser.run(f"[...{panel}.functions]") == first
    press(browser, "curves", "New functions")
    browser.until(f"{panel}.functions[0] !== {first[0]}", "new functions")
    moving = browser.run(f"{panel}.functions[0]")
    press(browser, "curves", "Animate")
    browser.until(f"{panel}.functions[0] !== {moving}", "functions to move")


def test_a_finger_adds_drags_and_removes(browser, url):
    show(browser, url, "curves", 390)
    x, y = place(browser, 1.4, 1.5)
    browser.touch("Start", x, y)
    browser.touch("End")
    browser.until(f"{SET}.points.length === 6", "a tap to add a point")
    time.sleep(0.5)  # the next touch is not the second half of a double tap
    end = place(browser, 0.9, -1.0)
    browser.touch("Start", x, y)
    for share in (0.3, 0.6, 1.0):
        browser.touch("Move", x + share * (end[0] - x), y + share * (end[1] - y))
    browser.touch("End")
    assert browser.run(f"{SET}.points.at(-1).y") == pytest.approx(-1.0, abs=0.15)
    time.sleep(0.5)
    browser.touch("Start", *end)
    browser.until(f"{SET}.points.length === 5", "a long press to remove the point")
    browser.touch("End")
    assert browser.complaints == []


def test_the_keyboard_adds_moves_and_removes(browser, url):
    show(browser, url, "curves")
    browser.run(f"{PANEL}.querySelector('canvas').focus()")
    browser.key("ArrowRight")
    browser.key("Enter")
    browser.until(f"{SET}.points.length === 6", "a point")
    start = browser.run(f"{SET}.points.at(-1)")
    assert start["x"] == pytest.approx(0.05)
    browser.key("ArrowUp")
    assert browser.run(f"{SET}.points.at(-1).y") == pytest.approx(start["y"] + 0.06)
    browser.until(
        "document.getElementById('live').textContent.includes('Point 6')", "the point to be announced"
    )
    browser.key("Delete")
    browser.until(f"{SET}.points.length === 5", "the point to go")
    browser.key("n")
    assert browser.run(f"{SET}.selected") == 0


def test_warnings_where_the_networks_were_not_trained(browser, url):
    show(browser, url, "curves")
    warning = "document.querySelector('#panel-curves .warning').textContent"
    assert browser.run(warning) == ""
    browser.run(f"{SET}.set([{{x: 2.4, y: 0}}])")
    browser.until(f"{warning}.includes('outside −2 … 2')", "a warning")
    browser.run(f"{SET}.set([{{x: 0, y: 2.5}}, {{x: 0.02, y: -2.5}}])")
    browser.until(f"{warning}.includes('no curve of the training kind')", "a warning")


def test_tabs_by_keyboard_and_the_theme_by_its_button(browser, url):
    show(browser, url, "curves")
    browser.run("document.getElementById('tab-curves').focus()")
    browser.key("ArrowRight")
    assert browser.run("document.activeElement.id") == "tab-branches"
    assert not browser.run("document.getElementById('panel-branches').hidden")
    assert browser.run("document.getElementById('panel-curves').hidden")
    browser.run("document.getElementById('theme').click()")
    assert luminance(browser.run("getComputedStyle(document.body).backgroundColor")) < 60
    show(browser, url, "branches")  # the choice lasts
    assert luminance(browser.run("getComputedStyle(document.body).backgroundColor")) < 60
    browser.run("document.getElementById('theme').click()")
    assert luminance(browser.run("getComputedStyle(document.body).backgroundColor")) > 200
    browser.run("localStorage.clear()")


def test_one_latent_is_frozen_while_the_other_is_resampled(browser, url):
    show(browser, url, "branches")
    tab = "playground.tabs.branches"
    seeds = browser.run(f"({{...{tab}.seeds}})")
    press(browser, "branches", "Resample")
    after = browser.run(f"({{...{tab}.seeds}})")
    assert after["global"] == seeds["global"]
    assert after["local"] != seeds["local"]
    for name in ("Freeze z_G", "Freeze z_*"):  # the other way round
        labels = "[...document.querySelectorAll('#panel-branches label')]"
        browser.run(f"{labels}.find(l => l.innerText.includes('{name}')).querySelector('input').click()")
    press(browser, "branches", "Resample")
    last = browser.run(f"({{...{tab}.seeds}})")
    assert last["global"] != after["global"]
    assert last["local"] == after["local"]


def test_pushes_narrow_the_mass(browser, url):
    show(browser, url, "cartpole")
    tab = "playground.tabs.cartpole"
    spread = f"(() => {{ const m = {tab}.masses; return Math.max(...m) - Math.min(...m); }})()"
    before = browser.run(spread)
    browser.run("document.querySelector('.scene').focus()")
    for key in ("ArrowRight", "ArrowLeft"):
        count = browser.run(f"{tab}.transitions.length")
        browser.key(key)
        browser.until(f"{tab}.transitions.length === {count + 3}", "three measurements of a push")
    browser.until(f"!{tab}.asker.busy")
    assert browser.run(spread) < before


def test_painted_pixels_are_read(browser, url):
    show(browser, url, "digits")
    tab = "playground.tabs.digits"
    press(browser, "digits", "Clear")
    pad = "document.querySelector('.pad').getBoundingClientRect()"
    left, top, width = (browser.run(f"{pad}.{name}") for name in ("left", "top", "width"))
    browser.drag((left + width / 2, top + 0.2 * width), (left + width / 2, top + 0.7 * width))
    painted = browser.run(f"[...{tab}.pad.ink].filter(v => !Number.isNaN(v)).length")
    assert 14 < painted < 80
    browser.run("document.querySelector('.pad').focus()")
    browser.key("ArrowLeft")
    browser.key("Enter")
    browser.until("document.getElementById('live').textContent.includes('ink')", "the cell to be announced")


@pytest.mark.parametrize("width", [390, 1280], ids=["finger", "mouse"])
def test_two_branches_by_finger_mouse_and_keyboard(browser, url, width):
    show(browser, url, "branches", width)
    points = "playground.tabs.branches.set.points"
    count = browser.run(f"{points}.length")
    x, y = place(browser, 0.4, 2.0, "playground.tabs.branches")
    if width < 600:
        browser.touch("Start", x, y)
        browser.touch("End")
    else:
        browser.click(x, y)
    browser.until(f"{points}.length === {count + 1}", "a point")
    assert browser.run(f"{points}.at(-1).y") == pytest.approx(2.0, abs=0.1)
    browser.run("playground.tabs.branches.canvas.focus()")
    browser.key("ArrowDown")
    assert browser.run(f"{points}.at(-1).y") < 2.0
    browser.key("Delete")
    browser.until(f"{points}.length === {count}", "the point to go")
    assert browser.complaints == []


def test_a_finger_pushes_the_cart(browser, url):
    show(browser, url, "cartpole", 390)
    tab = "playground.tabs.cartpole"
    button = (
        "[...document.querySelectorAll('#panel-cartpole button')].find(b => b.textContent.includes('right'))"
    )
    browser.run(f"{button}.scrollIntoView({{block: 'center'}})")
    box = browser.run(
        f"(() => {{ const b = {button}.getBoundingClientRect(); return [b.x, b.y, b.width, b.height] }})()"
    )
    browser.touch("Start", box[0] + box[2] / 2, box[1] + box[3] / 2)
    browser.touch("End")
    browser.until(f"{tab}.transitions.length === 3", "three measurements of a push")


def test_a_finger_paints(browser, url):
    show(browser, url, "digits", 390)
    tab = "playground.tabs.digits"
    press(browser, "digits", "Clear")
    browser.run("document.querySelector('.pad').scrollIntoView({block: 'center'})")
    pad = "document.querySelector('.pad').getBoundingClientRect()"
    left, top, width = (browser.run(f"{pad}.{name}") for name in ("left", "top", "width"))
    browser.touch("Start", left + width / 2, top + 0.2 * width)
    for share in (0.3, 0.5, 0.7):
        browser.touch("Move", left + width / 2, top + share * width)
    browser.touch("End")
    assert 14 < browser.run(f"[...{tab}.pad.ink].filter(v => !Number.isNaN(v)).length") < 80
