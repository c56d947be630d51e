"""Chromium without a screen, driven through a pair of pipes."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--autoplay-policy=no-user-gesture-required",
    "--window-size=1280,800",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
PATIENCE_S = 20.0
# Chromium reads from 3 and writes to 4; the pipes come at other numbers.
PLACE_AND_RUN = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"
)


def _high(pipe: tuple[int, int]) -> tuple[int, int]:
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 16) for end in pipe)
    for end in pipe:
        os.close(end)
    return read, write


class Chromium:
    """A browser with one page. `with` ends it."""

    def __init__(self, profile: str) -> None:
        """Start it with a profile in this folder."""
        theirs_in, self._out = _high(os.pipe())
        self._in, theirs_out = _high(os.pipe())
        command = [sys.executable, "-c", PLACE_AND_RUN, str(theirs_in), str(theirs_out), "chromium", *FLAGS]
        command += [f"--user-data-dir={profile}", "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdin=quiet, stdout=quiet, stderr=quiet
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._asked = 0
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def __enter__(self) -> Chromium:
        """Return the browser."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and return its answer."""
        self._asked += 1
        message: dict[str, object] = {"id": self._asked, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE_S
        while True:
            answer = self._message(method, end)
            if answer.get("id") == self._asked:
                if "error" in answer:
                    raise SystemExit(f"chromium: {method}: {answer['error']}")
                return answer["result"]

    def _message(self, method: str, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._in, 65536) if ready else b""
            if not more:
                raise SystemExit(f"chromium does not answer {method}: it ended, or the machine is too busy")
            self._buffer += more
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def go(self, address: str) -> None:
        """Open an address."""
        answer = self.ask("Page.navigate", url=address)
        if "errorText" in answer:
            raise SystemExit(f"chromium: {address}: {answer['errorText']}")

    def before_each_page(self, script: str) -> None:
        """Run a script in each further page before those of the page."""
        self.ask("Page.enable")
        self.ask("Page.addScriptToEvaluateOnNewDocument", source=script)

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401
        """Return the value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"chromium: {expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")
