"""Watch Freshwire and LiveKit's server in turns across one emulated link, and print a table.

Both are at the far end, and one encoder publishes the same three renditions (H.264 without B pictures) to both.
Chromium at the near end reads the clock in the picture on its screen ten times a second.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .near import SYSTEMS
from .plan import RENDITIONS, Folder, Tools

LAB = Path(__file__).resolve().parents[2]
PEER = LAB / "peers/livekit"
SERVER = "github.com/livekit/livekit-server/cmd/server@v1.9.12"
CLIENT = "livekit-client@2.16.1"
NAMES = {"freshwire": "`freshwire serve` and its page", "livekit": "LiveKit's server and client"}
COLUMNS = (
    "server",
    "age on the screen, mean, s",
    "median",
    "95 %",
    "in the browser's buffer, s",
    "round trip, s",
    "kbit/s",
    "pictures/s",
    "longest without one, s",
    "largest, middle, small rendition",
    "first picture, s",
    "mean age in the beginning, s",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def tools(freshwire: Path, folder: Path) -> Tools:
    """Return where the programs are."""
    client = folder / "node_modules/livekit-client/dist/livekit-client.umd.js"
    return Tools(freshwire.absolute(), folder / "bin/server", folder / "bin/publisher", client)


def install(folder: Path) -> None:
    """Fetch and build LiveKit's programs."""
    for program in ("go", "npm"):
        if not shutil.which(program):
            raise SystemExit(f"{program} is not there: install it (Debian: golang, npm)")
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(folder / "bin")}
    subprocess.run(["go", "install", SERVER], check=True, env=environment)
    subprocess.run(["go", "build", "-o", str(folder / "bin/publisher"), "."], check=True, cwd=PEER)
    subprocess.run(["npm", "install", "--no-save", "--ignore-scripts", "--prefix", str(folder), CLIENT], check=True)


def run(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run both in turns, and return what was on the screen."""
    found = tools(given.freshwire, given.tools.absolute())
    if missing := found.missing():
        names = ", ".join(str(path) for path in missing)
        raise SystemExit(
            f"not there: {names}\n"
            "`python3 -m freshwire_lab.livekit install` fetches LiveKit's programs; --freshwire names the command"
        )
    for program in ("ffmpeg", "chromium"):
        if not shutil.which(program):
            raise SystemExit(f"{program} is not there: install Debian's package of this name")
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(Path(name))
        folder.path.chmod(0o777)
        here = [sys.executable, "-m"]
        far = [*here, "freshwire_lab.livekit.far", name, str(found.freshwire), str(found.server), str(found.publisher)]
        far += ["send-side"] if given.send_side else []
        near = [*here, "freshwire_lab.livekit.near", name, str(found.client), str(given.repetitions)]
        near += [str(given.warm), str(given.seconds)]
        link = [str(found.freshwire), "link", "--rate", f"down={given.rate}", "--loss", f"down={given.loss}"]
        link += ["--delay", given.delay, "--seed", str(given.seed), "--account", "none"]
        link += ["--peer", f"exec {shlex.join(far)}", "--", *near]
        done = subprocess.run(link, env={**os.environ, "PYTHONPATH": str(LAB)}, check=False)
        if given.logs:
            shutil.copytree(folder.path, given.logs, dirs_exist_ok=True)
        folder.check()
        if done.returncode != 0 or not folder.results.exists():
            raise SystemExit(f"the run failed with {done.returncode}")
        return json.loads(folder.results.read_text(encoding="utf-8"))


def percentile(values: list[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def row(system: str, results: list[dict[str, Any]]) -> str:
    """Return a line of the table: medians of the repetitions, and all means."""
    runs = [one for one in results if one["system"] == system]

    def median(figure: list[float], digits: int) -> str:
        return f"{statistics.median(figure):.{digits}f}"

    def ages(part: str) -> list[list[float]]:
        return [one[part]["ages"] for one in runs]

    def means(part: str) -> str:
        each = [statistics.fmean(one) for one in ages(part)]
        return f"{median(each, 3)} ({', '.join(f'{mean:.2f}' for mean in each)})"

    widths = [width for one in runs for width in one["settled"]["widths"]]
    shares = [f"{100 * widths.count(one.width) / len(widths):.0f}" for one in reversed(RENDITIONS)]
    cells = [
        NAMES[system],
        means("settled"),
        median([percentile(one, 0.5) for one in ages("settled")], 3),
        median([percentile(one, 0.95) for one in ages("settled")], 3),
        median([one["buffered"] for one in runs], 3),
        median([one["trip"] for one in runs], 3),
        median([one["kbit"] for one in runs], 0),
        median([one["rate"] for one in runs], 1),
        median([one["longest"] for one in runs], 2),
        f"{', '.join(shares)} %",
        median([one["first"] for one in runs], 1),
        means("beginning"),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m freshwire_lab.livekit",
        description=__doc__,
        epilog=f"Needed: ffmpeg, chromium, and what `install` fetches with go and npm: {SERVER}, {CLIENT}.",
    )
    parser.add_argument("command", nargs="?", choices=("run", "install"), default="run", help="what to do [run]")
    release = Path("target/release/freshwire")
    parser.add_argument("--freshwire", type=Path, default=release, help="the command freshwire")
    parser.add_argument("--tools", type=Path, default=Path("target/livekit"), help="folder of LiveKit's programs")
    parser.add_argument("--rate", default="300kbit", help="rate of the link to the browser")
    parser.add_argument("--loss", default="2%", help="share of the packets to the browser that are lost")
    parser.add_argument("--delay", default="25ms", help="delay of the link in one direction")
    parser.add_argument("--seed", type=int, default=1, help="decides which packets are lost")
    parser.add_argument("--repetitions", type=int, default=4, help="how often each is watched")
    parser.add_argument("--warm", type=float, default=10, help="seconds of the beginning, from the first picture on")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of samples behind the beginning")
    parser.add_argument(
        "--send-side", action="store_true", help="LiveKit estimates the path as the sender (use_send_side_bwe)"
    )
    parser.add_argument("--output", type=Path, help="write all samples, as JSON")
    parser.add_argument("--logs", type=Path, help="keep what the programs say in this folder")
    given = parser.parse_args()
    if given.command == "install":
        install(given.tools.absolute())
        return
    before = os.getloadavg()[0]
    results = run(given)
    print(HEAD, *(row(system, results) for system in SYSTEMS), sep="\n")
    print(
        f"\nMedians of {given.repetitions} runs of {given.seconds:g} s behind {given.warm:g} s of beginning, in turns; "
        f"link {given.rate}, {given.loss} loss, {given.delay} in each direction, seed {given.seed}; "
        f"load of the machine {before:.1f} before and {os.getloadavg()[0]:.1f} after, {os.cpu_count()} processors"
    )
    if given.output:
        given.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
