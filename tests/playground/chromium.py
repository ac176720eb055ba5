"""A system Chromium driven over its DevTools pipe: pointers, touch, keys, pictures, and what the page complains of.

The pipe (`--remote-debugging-pipe`) carries JSON ended by a zero byte; nothing needs to be installed besides
the browser.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--disable-component-update", "--remote-debugging-pipe"),
)


class Browser:
    """One tab of a headless browser.

    Args:
        folder: where its profile may be written.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, folder: Path, timeout: float = 60) -> None:
        assert CHROMIUM is not None
        self.timeout = timeout
        self.complaints: list[str] = []
        self.requests: list[str] = []
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        # The browser reads its file descriptor 3 and writes to 4.
        redirect = f'exec "$@" 3<&{read_commands} 4>&{write_answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", redirect, "bash", CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(read_commands, write_answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._buffer, self._next, self._session = b"", 0, None
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        os.close(self._commands)
        os.close(self._answers)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its result."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._next:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer.get('error')}"
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + self.timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser did not answer in time"
            self._buffer += os.read(self._answers, 1 << 16)
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        """Keep what the page asks for and complains of."""
        kind, given = event.get("method"), event.get("params", {})
        if kind == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif kind == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(given["exceptionDetails"].get("exception", given))[:400])
        elif kind == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.complaints.append(given["entry"]["text"])
        elif kind == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps([each.get("value") for each in given["args"]]))

    def run(self, expression: str) -> Any:
        """Evaluate JavaScript in the page, await it, and return its value."""
        done = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, expression: str, what: str = "") -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + self.timeout
        while not (value := self.run(expression)):
            assert time.monotonic() < end, f"waited in vain for {what or expression}; {self.complaints}"
            time.sleep(0.05)
        return value

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page at a width in a theme; a narrow one as a phone with a touch screen."""
        phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.send("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def mouse(self, kind: str, x: float, y: float, clicks: int = 1) -> None:
        """Press, move or release the mouse at a place of the window."""
        self.send(
            "Input.dispatchMouseEvent",
            type=f"mouse{kind}",
            x=x,
            y=y,
            button="left",
            buttons=0 if kind == "Released" else 1,
            clickCount=clicks,
        )

    def click(self, x: float, y: float, clicks: int = 1) -> None:
        """Click once; `clicks` says the how manieth of a double click it is."""
        self.mouse("Pressed", x, y, clicks)
        self.mouse("Released", x, y, clicks)

    def drag(self, start: tuple[float, float], end: tuple[float, float], steps: int = 5) -> None:
        """Drag with the mouse."""
        self.mouse("Pressed", *start)
        for step in range(1, steps + 1):
            self.mouse("Moved", *(a + (b - a) * step / steps for a, b in zip(start, end, strict=True)))
        self.mouse("Released", *end)

    def touch(self, kind: str, *place: float) -> None:
        """Start, move or end a touch with one finger."""
        points = [{"x": place[0], "y": place[1]}] if place else []
        self.send("Input.dispatchTouchEvent", type=f"touch{kind}", touchPoints=points)

    def key(self, key: str, text: str = "") -> None:
        """Press and release a key."""
        code = {"Enter": 13, "Delete": 46, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        given = {"key": key, "text": text, "windowsVirtualKeyCode": code.get(key, 0)}
        self.send("Input.dispatchKeyEvent", type="keyDown", **given)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, path: Path, full: bool = True) -> None:
        """Save what is shown, or the whole page."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(shot["data"]))
