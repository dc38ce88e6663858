"""A headless Chromium, driven over its DevTools protocol through a pipe: no library and no port is needed for that."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@contextmanager
def chromium(profile: Path) -> Iterator[Tab]:
    """An empty page of a browser with a profile of its own."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert program, f"needs a Chromium on PATH ({', '.join(NAMES)}), as from: apt-get install -y chromium"
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    # it reads commands from descriptor 3 and answers on 4
    shell = f'exec "$@" 3<&{their_in} 4>&{their_out}'
    options = [*QUIET, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    browser = subprocess.Popen(
        ["bash", "-c", shell, "bash", program, *options],  # noqa: S607
        pass_fds=(their_in, their_out),
        stderr=subprocess.DEVNULL,
    )
    os.close(their_in)
    os.close(their_out)
    try:
        with open(our_in, "rb") as answers, open(our_out, "wb") as commands:
            tab = Tab(answers, commands)
            tab.attach()
            yield tab
            tab.ask("Browser.close", of_tab=False)
    finally:
        browser.kill()
        browser.wait()


@dataclass
class Tab:
    answers: IO[bytes]
    commands: IO[bytes]
    events: list[dict[str, Any]] = field(default_factory=list)
    session: str | None = None
    number: int = 0

    def attach(self) -> None:
        target = self.ask("Target.createTarget", of_tab=False, url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", of_tab=False, targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, *, of_tab: bool = True, **params: Any) -> dict[str, Any]:
        """Calls a method; what happens meanwhile is kept in `events`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        message |= {"sessionId": self.session} if of_tab else {}
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while (answer := self._read()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            assert byte, "the browser has gone"
            message += byte
        found: dict[str, Any] = json.loads(message)
        return found

    def look(self, width: int, theme: str, media: str = "screen") -> None:
        """Shows pages as on a screen (or paper: `print`) so wide, in `light` or `dark`."""
        metrics: dict[str, Any] = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **metrics)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def open(self, page: Path) -> None:
        """Returns when all is loaded."""
        self.events.clear()
        self.ask("Page.navigate", url=page.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self, to: Path) -> None:
        """Takes a picture of the whole page."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, to: Path) -> None:
        to.write_bytes(base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"]))

    def said(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") in methods]
