"""Play the cells, and print a table: the share of the values that a fast reader gets, and their ages."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .ends import said_of_reader

LAB = Path(__file__).resolve().parents[2]
PORT = 18080
INTERNAL = 19464
FAR = "10.77.0.2"
# What counts as the noise of scheduling, in seconds.
FLOOR_S = 0.03
SHARE = 0.99

# Keys, values a second of each, bytes of a value.
CELLS = [
    (1, 5, 10), (1, 200, 10), (500, 5, 10), (50, 50, 10),
    (1, 100, 330), (50, 30, 330), (10, 30, 330), (200, 10, 330), (100, 20, 500), (30, 40, 150),
    (1, 200, 1000), (50, 20, 1000), (500, 5, 1000),
    (1, 100, 4000), (20, 20, 4000), (100, 5, 4000),
    (1, 50, 16000), (10, 20, 16000), (50, 5, 16000),
]  # fmt: skip
# Rate of a link, and cells that it carries.
LINKS = {
    "1Mbit": [(1, 50, 330), (20, 5, 330), (100, 5, 10), (2, 5, 4000)],
    "10Mbit": [(1, 200, 330), (50, 30, 330), (100, 10, 500), (10, 20, 4000), (5, 5, 16000)],
    "100Mbit": [(100, 20, 500), (50, 20, 1000), (1, 100, 4000), (100, 5, 4000), (50, 5, 16000)],
}


@dataclass
class Options:
    """What is run."""

    freshwire: str
    seconds: float
    busy: int


def role(*arguments: object) -> list[str]:
    """Return the command of an end."""
    return [sys.executable, "-m", "freshwire_lab.keepup.ends", *map(str, arguments)]


def server_command(kind: str, folder: Path, options: Options) -> list[str]:
    """Return the command of a server."""
    if kind == "plain":
        return role("plain", PORT)
    config = folder / "server.toml"
    config.write_text("[hub]\nmax_keys = 1024\n", encoding="utf-8")
    serve = [
        options.freshwire,
        "serve",
        "state=publish",
        "--config",
        str(config),
        "--open",
        "--listen-http",
        f"0.0.0.0:{PORT}",
    ]
    return [*serve, "--listen-rtsp", "none", "--listen-internal", f"127.0.0.1:{INTERNAL}", "--log-level", "warn"]


@contextlib.contextmanager
def running(*commands: list[str]) -> Iterator[None]:
    """Run commands beside what is inside."""
    environment = {**os.environ, "PYTHONPATH": str(LAB)}
    processes = [subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def play(kind: str, cell: tuple[int, float, int], link: str | None, options: Options) -> list[tuple[str, int]]:
    """Run one server with one reader; key and age of each value that it got."""
    keys, hz, size = cell
    held: dict[str, object] = {}
    environment = {**os.environ, "PYTHONPATH": str(LAB)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        output = folder / "read"
        source = role(
            "publish", f"ws://127.0.0.1:{PORT}/state/push", f"{output}.ready", keys, hz, size, options.seconds
        )
        server = server_command(kind, folder, options)
        if link is None:
            reader = role("read", f"ws://127.0.0.1:{PORT}/state/values", output)
            with running(server, source), subprocess.Popen(reader, env=environment) as process:
                while process.poll() is None:
                    time.sleep(0.2)
                    held.update(said_of_reader(INTERNAL) if kind == "freshwire" else {})
        else:
            far = (
                f"{shlex.join(server)} &\n{shlex.join(source)} &\n{shlex.join(role('ask', INTERNAL, folder / 'said'))}"
            )
            reader = role("read", f"ws://{FAR}:{PORT}/state/values", output)
            command = [
                options.freshwire,
                "link",
                "--rate",
                link,
                "--delay",
                "5ms",
                "--queue",
                "64KiB",
                "--account",
                "none",
            ]
            subprocess.run([*command, "--peer", far, "--", *reader], env=environment, check=True)
            with contextlib.suppress(OSError):
                held.update(json.loads((folder / "said").read_text(encoding="utf-8")))
        if held:
            print(f"    {held}", flush=True)
        return [(key, age) for key, age in json.loads(output.read_text(encoding="utf-8"))]


def play_slowly(pace: float, burst_s: float, cell: tuple[int, float, int], link: str | None, options: Options) -> str:
    """Run one slow reader; the ages of what it read in the second half."""
    keys, hz, size = cell
    environment = {**os.environ, "PYTHONPATH": str(LAB)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        output = folder / "read"
        source = role(
            "publish", f"ws://127.0.0.1:{PORT}/state/push", f"{output}.ready", keys, hz, size, options.seconds + 1
        )
        server = server_command("freshwire", folder, options)
        slow = (pace, burst_s, options.seconds, output)
        if link is None:
            with running(server, source):
                wait_for_server()
                subprocess.run(role("slow", f"ws://127.0.0.1:{PORT}/state/values", *slow), env=environment, check=True)
        else:
            far = f"{shlex.join(server)} &\n{shlex.join(source)} &\nsleep 1000"
            command = [
                options.freshwire,
                "link",
                "--rate",
                link,
                "--delay",
                "5ms",
                "--queue",
                "64KiB",
                "--account",
                "none",
            ]
            reader = shlex.join(role("slow", f"ws://{FAR}:{PORT}/state/values", *slow))
            subprocess.run(
                [*command, "--peer", far, "--", "/bin/sh", "-c", f"sleep 2; {reader}"], env=environment, check=True
            )
        ages = [age / 1e9 for _, age in json.loads(output.read_text(encoding="utf-8"))]
        half = sorted(ages[len(ages) // 2 :])
        return f"{len(ages)} values, median age {percentile(half, 0.5):.2f} s, 95 % {percentile(half, 0.95):.2f} s"


def wait_for_server() -> None:
    """Wait until the server answers."""
    for _ in range(200):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{INTERNAL}/health", timeout=1).close()
            return
        time.sleep(0.05)
    raise SystemExit("the server is not up")


def percentile(values: list[float], share: float) -> float:
    """Return the value below which this share of the sorted values lies."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("inf")


def judge(ours: list[tuple[str, int]], plain: list[tuple[str, int]]) -> tuple[bool, str]:
    """Compare what two readers got."""
    share = len(ours) / max(1, len(plain))
    ages = [percentile(sorted(age / 1e9 for _, age in one), 0.95) for one in (ours, plain)]
    good = share >= SHARE and ages[0] <= 2 * ages[1] + FLOOR_S
    return (
        good,
        f"{len(ours):6} of {len(plain):6} ({share:5.1%}), age p95 {ages[0] * 1e3:6.1f} / {ages[1] * 1e3:6.1f} ms",
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m freshwire_lab.keepup", description=__doc__)
    parser.add_argument("--freshwire", default="target/release/freshwire", help="the command freshwire")
    parser.add_argument("--seconds", type=float, default=4, help="length of a run")
    parser.add_argument("--busy", type=int, default=0, help="programs that compute beside it")
    parser.add_argument("--link", action="append", choices=[*LINKS, "none"], help="paths; `none` is loopback")
    parser.add_argument("--cell", action="append", help="KEYS,HZ,BYTES instead of the table's")
    parser.add_argument("--slow", action="store_true", help="play slow readers instead")
    given = parser.parse_args()
    options = Options(str(Path(given.freshwire).absolute()), given.seconds, given.busy)
    cells = [tuple(int(part) for part in cell.split(",")) for cell in given.cell or []]
    bad = 0
    with running(*[role("burn")] * options.busy):
        for name in given.link or ["none", *LINKS]:
            link = None if name == "none" else name
            if given.slow:
                for pace, burst_s in ((200, 0), (2000, 0), (20_000, 0), (0, 0.5)):
                    said = play_slowly(pace, burst_s, (50, 30, 330), link, options)
                    print(f"{name:8} {pace:6} bytes/s, bursts {burst_s}: {said}", flush=True)
                continue
            for cell in cells or (CELLS if link is None else LINKS[name]):
                # One after the other, so that neither takes the processor from the other.
                got = {kind: play(kind, cell, link, options) for kind in ("plain", "freshwire")}
                good, said = judge(got["freshwire"], got["plain"])
                bad += not good
                keys, hz, size = cell
                print(f"{'ok ' if good else 'BAD'} {name:8} {keys:4} keys {hz:4}/s {size:6} bytes: {said}", flush=True)
    print(f"{bad} bad; load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {options.busy} busy programs")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
