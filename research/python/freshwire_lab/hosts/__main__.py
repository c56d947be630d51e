"""`python3 -m freshwire_lab.hosts A B`: freshness, throughput and processor time between two machines, in both directions."""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from . import measure, report

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[3]
# As little of ssh as the measurement needs: nobody is asked for a password, and a dead path does not hang for ever.
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15"
# Questions to the other clock.
QUESTIONS = 40
# Values are offered at this multiple of what the path carries, so that there is something to choose.
OVERLOAD = 2
# The most that is offered: about what a source in Python makes in time. And the least: one value each 0.1 s.
MOST_OFFERED = 400e6
LEAST_OFFERED = 100e3
SCHEMES = ("plain TCP", "Freshwire on TCP", "Freshwire on A1")


class Problem(Exception):
    """Something that a person has to hear."""


class Refusal(Problem):
    """A request that a machine could not carry out; the next one may succeed."""


class Host:
    """One of the machines, with the agent on it."""

    def __init__(self, name: str, ssh: str) -> None:
        """Start the agent."""
        self.name = name
        boot = "import sys; exec(compile(eval(sys.stdin.readline()), 'agent', 'exec'))"
        # One word for the other shell, as ssh has it; the address by which it was reached comes first.
        command = f'echo "${{SSH_CONNECTION:-}}"; exec python3 -u -c {shlex.quote(boot)}'
        try:
            self.process = subprocess.Popen(
                [*shlex.split(ssh), name, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise Problem(f"{ssh} does not run: {error}; SSH names the program") from error
        assert self.process.stdin and self.process.stdout
        self.input, self.output = self.process.stdin, self.process.stdout
        reached = self.line().split()
        self.reached = reached[2] if len(reached) == 4 else None
        self.write(repr((HERE / "agent.py").read_text()))
        self.peer_address = ""
        self.key = ""

    def write(self, line: str) -> None:
        """Write a line to the machine."""
        try:
            self.input.write(line + "\n")
            self.input.flush()
        except BrokenPipeError as error:
            raise Problem(f"{self.name}: the connection ended; it needs python3, 3.9 or newer") from error

    def line(self) -> str:
        """Read a line from the machine."""
        line = self.output.readline()
        if not line:
            raise Problem(f"{self.name} cannot be reached, or has no python3: see what ssh says above")
        return line

    def ask(self, do: str, **words: Any) -> None:
        """Send a request."""
        self.write(json.dumps({"do": do, **words}))

    def answer(self) -> Any:
        """Wait for the answer to a request."""
        answer = json.loads(self.line())
        if "failure" in answer:
            raise Refusal(f"{self.name}: {answer['failure']}")
        return answer["is"]

    def call(self, do: str, **words: Any) -> Any:
        """Send a request and wait for its answer."""
        self.ask(do, **words)
        return self.answer()

    def close(self) -> None:
        """End the agent, and what it started."""
        self.input.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def commands(scheme: str, sender: Host, receiver: Host, port: int, *, values: bool) -> tuple[list[str], list[str]]:
    """Return the sending and the receiving command; words in capitals are what only the agent knows."""
    address = sender.peer_address
    if scheme == "plain TCP":
        return (
            ["PYTHON", "-c", "SEND", address, str(port), "PATIENCE"],
            ["PYTHON", "-c", "RECEIVE", str(port)],
        )
    to = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    send = ["FRESHWIRE", "send", "--quiet", "--to", to, "--wait", "10s"]
    receive = ["FRESHWIRE", "recv", "--quiet", "--listen", str(port), "--out", "-"]
    if scheme == "Freshwire on A1":
        send += ["--carrier", "a1", "--peer-key", receiver.key]
        receive += ["--carrier", "a1", "--key", "KEY"]
    else:
        send += ["--carrier", "tcp"]
    if values:
        # Of each key only the newest value.
        return [*send, "lines", "--key-field", "id"], receive
    return [*send, "--policy", "fifo", "records"], receive


def stream(
    hosts: tuple[Host, Host], scheme: str, port: int, seconds: float, source: measure.Source | None
) -> dict[str, Any]:
    """Run one stream from the first to the second, and return what both said."""
    sender, receiver = hosts
    send, receive = commands(scheme, sender, receiver, port, values=source is not None)
    receiver.call("receive", argv=receive, values=source is not None)
    try:
        sent = sender.call("send", argv=send, seconds=seconds, source=source and source._asdict())
    except Refusal as refusal:
        try:
            receiver.call("received")
        except Refusal as other:
            raise Refusal(f"{refusal}; {other}") from refusal
        raise
    return {"sent": sent, "received": receiver.call("received")}


def moved(offset: tuple[measure.Offset, measure.Offset], at: int, sender: int) -> int:
    """Return one of the sender's times on the receiver's clock; the sender is host 0 or 1."""
    before, after = offset
    if sender == 0:
        return at + measure.between(before, after, at)
    return at - measure.between(before, after, at - before.ns)


def judge(
    said: dict[str, Any],
    source: measure.Source | None,
    offsets: tuple[measure.Offset, measure.Offset],
    sender: int,
) -> dict[str, Any]:
    """Return the measures of a stream."""
    sent, received = said["sent"], said["received"]
    begin, end = (moved(offsets, sent[name], sender) for name in ("begin_ns", "end_ns"))
    result: dict[str, Any] = {
        "seconds": (sent["end_ns"] - sent["begin_ns"]) / measure.NS,
        "offered": sent["turns"],
        "written": sent["values"],
        "received_bytes": received["bytes"],
        "sender_cpu_s": sent["cpu_s"],
        "receiver_cpu_s": received["cpu_s"],
    }
    if source is None:
        result["throughput_bps"] = measure.throughput(received["pieces"], begin, end)
        return result
    arrivals = [(key, moved(offsets, made, sender), came) for key, made, came in received["arrivals"]]
    found = measure.ages(arrivals, source.keys, begin, end)
    result.update(
        source=source._asdict(),
        received_values=len(arrivals),
        clock_error_s=max(one.error_ns for one in offsets) / measure.NS,
        **{f"age_{name}_s": None if math.isinf(value) else value for name, value in found._asdict().items()},
    )
    return result


class Session:
    """The measurement of two machines."""

    def __init__(self, options: argparse.Namespace, hosts: tuple[Host, Host]) -> None:
        """Say to each machine how it reaches the other one, and copy the command there."""
        self.options = options
        self.hosts = hosts
        self.offsets: list[measure.Offset] = []
        a, b = hosts
        for host, other, address in ((a, b, options.address_b), (b, a, options.address_a)):
            host.peer_address = address or other.reached or ""
            if not host.peer_address:
                option = "--address-b" if host is a else "--address-a"
                raise Problem(f"the address of {other.name} is not known: give {option}")
        say("copying the command")
        data = base64.b85encode(Path(options.command).read_bytes()).decode()
        for host in hosts:
            host.ask("install", data=data)
        self.versions = [host.answer() for host in hosts]
        for host in hosts:
            host.key = host.call("key")
        self.facts = [host.call("facts", peer=host.peer_address) for host in hosts]

    def clock(self) -> measure.Offset:
        """Return what B's clock shows more than A's."""
        a, b = self.hosts
        b.call("pong", port=self.options.port, count=QUESTIONS)
        found = measure.offset(a.call("ping", address=a.peer_address, port=self.options.port, count=QUESTIONS))
        self.offsets.append(found)
        return found

    def run(self, sender: int, scheme: str, repetition: int, source: measure.Source | None) -> dict[str, Any]:
        """Run one stream, between two looks at the clocks."""
        way = self.hosts if sender == 0 else self.hosts[::-1]
        kind = "values" if source else "bulk"
        direction = f"{'AB'[sender]} to {'BA'[sender]}"
        say(f"{direction}, {kind}, {repetition + 1} of {self.options.repeat}: {scheme}")
        before = self.clock()
        try:
            said = stream(way, scheme, self.options.port, self.options.seconds, source)
        except Refusal as refusal:
            # A path may let TCP pass and not UDP: the other schemes are still worth measuring.
            say(f"  failed: {refusal}")
            result: dict[str, Any] = {"failure": str(refusal)}
        else:
            result = judge(said, source, (before, self.clock()), sender)
        return {"direction": direction, "kind": kind, "scheme": scheme, "repetition": repetition, **result}

    def direction(self, sender: int) -> list[dict[str, Any]]:
        """Measure one direction: throughput first, then values at a multiple of it."""
        repetitions = range(self.options.repeat)
        runs = [self.run(sender, scheme, repetition, None) for repetition in repetitions for scheme in SCHEMES]
        carried = [run["throughput_bps"] for run in runs if run["scheme"] == SCHEMES[0] and "failure" not in run]
        if not carried:
            raise Problem(next(run["failure"] for run in runs))
        source = measure.source(
            self.options.offered or max(min(OVERLOAD * statistics.median(carried), MOST_OFFERED), LEAST_OFFERED)
        )
        return runs + [self.run(sender, scheme, repetition, source) for repetition in repetitions for scheme in SCHEMES]

    def measure(self) -> dict[str, Any]:
        """Measure both directions, and return everything that a reader has to know."""
        runs = self.direction(0) + self.direction(1)
        described = zip(self.hosts, self.facts, self.versions, strict=True)
        return {
            "commit": commit(),
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "hosts": [
                {"name": host.name, "command": version, **facts, "load_after": host.call("load")}
                for host, facts, version in described
            ],
            "clock": {
                "offset_s": [one.ns / measure.NS for one in self.offsets],
                "error_s": max(one.error_ns for one in self.offsets) / measure.NS,
            },
            "seconds": self.options.seconds,
            "runs": runs,
        }


def commit() -> str:
    """Return the commit of this repository, and whether it is all that ran."""
    described = subprocess.run(
        ["git", "-C", str(REPOSITORY), "describe", "--always", "--abbrev=12", "--dirty=, with uncommitted changes"],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown: this is no git repository"


def say(line: str) -> None:
    """Say something to the person who waits."""
    print(line, file=sys.stderr, flush=True)


def arguments(words: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m freshwire_lab.hosts",
        description=__doc__,
        epilog="The environment's SSH is the program that reaches a machine, with its options; it is called as ssh is.",
    )
    parser.add_argument(
        "hosts", nargs=2, metavar="HOST", help="[user@]host, as ssh knows it; needs Python 3.9 and iproute2"
    )
    parser.add_argument(
        "--command", required=True, metavar="FILE", help="the command freshwire, copied to both for the time"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="receives hosts.json and report.md")
    parser.add_argument("--address-a", metavar="ADDRESS", help="where B reaches A; default: where ssh reached it")
    parser.add_argument("--address-b", metavar="ADDRESS", help="where A reaches B; likewise")
    parser.add_argument(
        "--port", type=int, default=7411, help="a free port on both, open for TCP and UDP (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=10, help="length of a run (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each kind (%(default)s)")
    parser.add_argument(
        "--offered", type=float, metavar="BIT/S", help="rate of the values; default: twice what plain TCP carried"
    )
    options = parser.parse_args(words)
    if options.repeat < 1 or options.seconds < 1:
        parser.error("--repeat is at least 1, and --seconds at least 1")
    return options


def main(words: list[str] | None = None) -> int:
    """Measure, write the results, and return the exit code."""
    options = arguments(words)
    ssh = os.environ.get("SSH") or SSH
    hosts: list[Host] = []
    try:
        for name in options.hosts:
            hosts.append(Host(name, ssh))
        results = Session(options, (hosts[0], hosts[1])).measure()
    except (Problem, OSError) as problem:
        say(f"hosts: {problem}")
        return 2
    finally:
        for host in hosts:
            host.close()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "hosts.json").write_text(json.dumps(results, indent=1) + "\n")
    text = report.markdown(results)
    (options.out / "report.md").write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
