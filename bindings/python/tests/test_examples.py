"""The examples run."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from conftest import TIMEOUT, needs

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(*arguments):
    """Run an example to its end, and return what it printed."""
    command = [sys.executable, *map(str, arguments)]
    ended = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=3 * TIMEOUT)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_market_data_is_never_old():
    assert "Ended.Closed()" in run("market.py", "--seconds", "0.5", "--symbols", "5")


def test_camera_frames_arrive():
    needs("av")
    printed = run("camera.py", "--frames", "30", "--deadline", "30")
    assert printed.startswith("encoded 30, received 30, dropped 0, Ended.Closed()")


def test_viewers_follow_the_robot():
    command = [sys.executable, "robot.py", "--port", "0", "--seconds", "600"]
    with subprocess.Popen(command, cwd=EXAMPLES, stdout=subprocess.PIPE, text=True) as robot:
        try:
            port = int(robot.stdout.readline().rsplit(" ", 1)[1])
            viewers = [socket.create_connection(("127.0.0.1", port), TIMEOUT) for _ in range(2)]
            for viewer in viewers:
                lines = viewer.makefile()
                joints = set()
                while len(joints) < 12:
                    joints.add(json.loads(lines.readline())["joint"])
        finally:
            robot.kill()


def free_port():
    """Find a port that nobody has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def request(method, url, body=None):
    """Ask the application, once it listens."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            headers = {"Content-Type": "application/json"}
            data = None if body is None else json.dumps(body).encode()
            wanted = urllib.request.Request(url, data, headers, method=method)
            with urllib.request.urlopen(wanted, timeout=TIMEOUT) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert time.monotonic() < deadline, "the application listens"
            time.sleep(0.05)


def test_browsers_follow_the_application():
    needs("fastapi")
    needs("uvicorn")
    needs("websockets")
    from websockets.sync import client

    web = free_port()
    command = [sys.executable, "-m", "uvicorn", "application:app", "--port", str(web), "--log-level", "warning"]
    with subprocess.Popen(command, cwd=EXAMPLES) as application:
        try:
            assert request("PUT", f"http://127.0.0.1:{web}/state/7", {"temperature": 20}) == {"followers": 0}
            with client.connect(f"ws://127.0.0.1:{web}/state", open_timeout=TIMEOUT) as follower:
                assert json.loads(follower.recv(TIMEOUT)) == {"key": 7, "value": {"temperature": 20}}
                assert request("PUT", f"http://127.0.0.1:{web}/state/7", {"temperature": 21}) == {"followers": 1}
                assert json.loads(follower.recv(TIMEOUT))["value"] == {"temperature": 21}
                assert request("GET", f"http://127.0.0.1:{web}/followers")[0]["sent"] >= 1
            with pytest.raises(urllib.error.HTTPError, match="422"):
                request("PUT", f"http://127.0.0.1:{web}/state/1000", {})
        finally:
            application.kill()


def test_browsers_follow_the_robot():
    command = [sys.executable, "browser.py", "--port", "0"]
    with subprocess.Popen(command, cwd=EXAMPLES, stdout=subprocess.PIPE, text=True) as robot:
        try:
            port = int(robot.stdout.readline().rstrip().rstrip("/").rsplit(":", 1)[1])
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=TIMEOUT) as page:
                assert b"new WebSocket" in page.read()
            needs("websockets")
            from websockets.sync import client

            def follow(address):
                """Read as an independent client does: permessage-deflate is offered, and declined."""
                with client.connect(address, open_timeout=TIMEOUT) as browser:
                    joints = set()
                    while len(joints) < 12:
                        joints.add(json.loads(browser.recv(TIMEOUT))["joint"])
                    pong = browser.ping()
                    until = time.monotonic() + TIMEOUT
                    while not pong.is_set():
                        browser.recv(TIMEOUT)
                        assert time.monotonic() < until, "a pong comes between messages"

            follow(f"ws://127.0.0.1:{port}/state")
            assert robot.stdout.readline() == "a browser has left with code 1000\n"
        finally:
            robot.kill()
