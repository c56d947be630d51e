"""Run each server with the same clients, and print a table.

The server and the fast clients are at the far end of an emulated link. The slow clients are at its near end, and share
its rate. An age is the time between the making of a value and its arrival in a client; all programs read the same clock.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

LAB = Path(__file__).resolve().parents[2]
SERVERS = ("serve", "serve-window", "handed-over", "websockets", "fastapi")
NAMES = {
    "serve": "`freshwire serve`",
    "serve-window": "`freshwire serve`, `window=3`",
    "handed-over": "asyncio, sockets handed to Freshwire",
    "websockets": "`websockets`, `broadcast`",
    "fastapi": "FastAPI on Uvicorn",
}
PATHS = {"serve": "/state/values", "serve-window": "/state/values?window=3"}
PORT = 18080
FAR = "10.77.0.2"
SAMPLE_S = 0.5


@dataclass
class Options:
    """What is run."""

    freshwire: str
    python: str
    fast: int
    slow: int
    rate: str
    delay: str
    queue: str
    seconds: float


def far_script(server: str, options: Options, folder: Path) -> str:
    """Return what runs at the far end: the server, and its fast clients."""
    python = shlex.quote(options.python)
    path = PATHS.get(server, "/values")
    if server in PATHS:
        start = (
            f"{shlex.quote(options.freshwire)} serve state=publish --open --listen-http 0.0.0.0:{PORT} "
            f"--listen-rtsp none --listen-internal none --log-level warn & echo $! > {folder}/pid\n"
            f"{python} -m freshwire_lab.websockets.servers publisher 127.0.0.1 {PORT} &\n"
        )
    else:
        start = f"{python} -m freshwire_lab.websockets.servers {server} 0.0.0.0 {PORT} & echo $! > {folder}/pid\n"
    client = f"{python} -m freshwire_lab.websockets.client 127.0.0.1 {PORT} '{path}' {options.fast} {options.seconds}"
    # The link lasts as long as the command at its near end, which waits for `done`.
    return f"{start}{client} {folder}/fast.json\n: > {folder}/done\nsleep 1000\n"


def near_command(server: str, options: Options, folder: Path) -> list[str]:
    """Return what runs at the near end: the slow clients, until the fast ones are done."""
    path = PATHS.get(server, "/values")
    arguments = [FAR, str(PORT), path, str(options.slow), str(options.seconds), f"{folder}/slow.json"]
    wait = f"while [ ! -e {folder}/done ]; do sleep 0.1; done"
    command = shlex.join([options.python, "-m", "freshwire_lab.websockets.client", *arguments])
    return ["/bin/sh", "-c", f"{command}; {wait}"]


def resident_kib(pid: str) -> int | None:
    """Return the resident memory of a process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), None)


def run(server: str, options: Options) -> dict[str, object]:
    """Run one server, and return what came of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        link = [options.freshwire, "link", "--rate", options.rate, "--delay", options.delay]
        link += ["--queue", options.queue, "--account", "none"]
        link += ["--peer", far_script(server, options, folder), "--", *near_command(server, options, folder)]
        environment = {**os.environ, "PYTHONPATH": str(LAB)}
        memory: list[int] = []
        with subprocess.Popen(link, env=environment) as process:
            while process.poll() is None:
                time.sleep(SAMPLE_S)
                pid = folder / "pid"
                sample = resident_kib(pid.read_text(encoding="utf-8").strip()) if pid.exists() else None
                if sample:
                    memory.append(sample)
            if process.returncode != 0:
                raise SystemExit(f"{server}: the run failed with {process.returncode}")
        missing = [kind for kind in ("fast", "slow") if not (folder / f"{kind}.json").exists()]
        if missing:
            raise SystemExit(f"{server}: the {' and '.join(missing)} clients failed; their errors are above")
        ends = {kind: json.loads((folder / f"{kind}.json").read_text(encoding="utf-8")) for kind in ("fast", "slow")}
        return {"server": server, "memory_kib": memory, **ends}


def percentile(values: list[float], share: float) -> float:
    """Return the value below which this share of the sorted values lies."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def figures(result: dict[str, object], kind: str, seconds: float) -> dict[str, float]:
    """Return ages in milliseconds: of all values, and of the last that each client got in the last two seconds."""
    clients = result[kind]
    assert isinstance(clients, dict)
    ages = sorted(age / 1e6 for one in clients["ages"] for _, age in one)
    late = clients["end"] - 2_000_000_000
    last = sorted(age / 1e6 for one in clients["ages"] for at, age in one if at >= late)
    count = len(ages) / max(1, clients["clients"]) / seconds
    return {
        "p50": percentile(ages, 0.5),
        "p99": percentile(ages, 0.99),
        "max": ages[-1] if ages else float("nan"),
        "end": percentile(last, 0.5),
        "rate": count,
        "lost": clients["lost"],
        "silent": sum(not one for one in clients["ages"]),
    }


def row(result: dict[str, object], seconds: float) -> str:
    """Return a line of the table."""
    fast, slow = (figures(result, kind, seconds) for kind in ("fast", "slow"))
    memory = result["memory_kib"]
    assert isinstance(memory, list)
    settled = memory[len(memory) // 3] if memory else 0
    grown = (memory[-1] - settled) / 1024 if memory else float("nan")
    cells = [
        NAMES[str(result["server"])],
        f"{fast['p50']:.1f} / {fast['p99']:.1f} / {fast['max']:.0f}",
        f"{fast['rate']:.1f}",
        f"{slow['p50']:.0f} / {slow['p99']:.0f}",
        f"{slow['end']:.0f}",
        f"{slow['rate']:.1f}",
        f"{max(memory, default=0) / 1024:.0f} ({grown:+.1f})",
        f"{fast['lost'] + slow['lost']:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| server | fast: age p50 / p99 / max, ms | values/s | slow: age p50 / p99, ms | at the end, ms | values/s "
    "| memory, MiB (growth) | lost |\n|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m freshwire_lab.websockets", description=__doc__)
    parser.add_argument("--freshwire", default="target/release/freshwire", help="the command freshwire")
    parser.add_argument("--python", default="target/python/venv/bin/python", help="an interpreter with the packages")
    parser.add_argument("--fast", type=int, default=270, help="fast clients")
    parser.add_argument("--slow", type=int, default=30, help="slow clients, which share the link")
    parser.add_argument("--rate", default="1Mbit", help="rate of the link")
    parser.add_argument("--delay", default="20ms", help="delay of the link in one direction")
    parser.add_argument("--queue", default="64KiB", help="queue of the link")
    parser.add_argument("--seconds", type=float, default=30, help="length of a run")
    parser.add_argument("--output", type=Path, help="write the figures of all runs, as JSON")
    parser.add_argument("servers", nargs="*", default=SERVERS, metavar="SERVER", help=", ".join(SERVERS))
    given = parser.parse_args()
    unknown = set(given.servers) - set(SERVERS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no server; {', '.join(SERVERS)} are")
    freshwire, python = (str(Path(name).absolute()) for name in (given.freshwire, given.python))
    options = Options(freshwire, python, given.fast, given.slow, given.rate, given.delay, given.queue, given.seconds)
    before = os.getloadavg()[0]
    results = []
    rows = []
    for server in given.servers:
        result = run(server, options)
        rows.append(row(result, options.seconds))
        kinds = {kind: figures(result, kind, options.seconds) for kind in ("fast", "slow")}
        results.append({"server": server, "memory_kib": result["memory_kib"], **kinds})
        print(rows[-1], file=sys.stderr, flush=True)
    print(HEAD, *rows, sep="\n")
    print(
        f"\n{options.fast} fast and {options.slow} slow clients; link {options.rate}, {options.delay}, "
        f"queue {options.queue}; "
        f"{options.seconds:g} s; load of the machine {before:.1f} before and {os.getloadavg()[0]:.1f} after, "
        f"{os.cpu_count()} processors"
    )
    if given.output:
        given.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
