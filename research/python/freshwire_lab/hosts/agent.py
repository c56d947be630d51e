"""One end of a measurement between two machines: what runs there, by requests on standard input.

The other half of this package sends this file to a machine, where it needs Python 3.9 and nothing else. Each request is a line
of JSON, and so is each answer. The end of standard input ends it, with everything that it started.

A stream is the same for plain TCP and for Freshwire: a source in this process, a sending command, the path, a receiving command,
a reader in this process. The commands differ, the pipes between them do not.
"""

from __future__ import annotations

import array
import base64
import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

F_SETPIPE_SZ = 1031
SIOCETHTOOL = 0x8946
SIOCGIFMTU = 0x8921
# ethtool.h: the commands that read one setting each, without a privilege.
OFFLOADS = {"rx-checksum": 0x14, "tx-checksum": 0x16, "scatter-gather": 0x18, "tso": 0x1E, "gso": 0x23, "gro": 0x2B}
ETHTOOL_GSET = 0x01
ETHTOOL_GDRVINFO = 0x03
ETHTOOL_GFLAGS = 0x25
ETH_FLAG_LRO = 1 << 15
# How long a sender tries to reach its receiver.
PATIENCE = 10
# A value's beginning: whose it is, and when it was made on the sender's clock.
VALUE = re.compile(rb'\{"id":(\d+),"t":(\d+),')

# Plain TCP: standard input to a connection, in the pieces in which it comes; nothing is kept back, and nothing is left to the
# kernel when the process ends.
PLAIN_SEND = """
import os, socket, struct, sys, time
end = time.monotonic() + float(sys.argv[3])
while True:
    try:
        peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
        break
    except OSError as error:
        if time.monotonic() > end:
            sys.exit(f"cannot connect to {sys.argv[1]} port {sys.argv[2]}: {error}")
        time.sleep(0.05)
peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
while piece := os.read(0, 65536):
    peer.sendall(piece)
"""

PLAIN_RECEIVE = """
import os, socket, sys
listener = socket.create_server(("", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
peer = listener.accept()[0]
try:
    while piece := peer.recv(65536):
        while piece:
            piece = piece[os.write(1, piece):]
except ConnectionResetError:
    pass
"""


class Failure(Exception):
    """Something that a person has to hear."""


class Child:
    """A command with a pipe on its standard input or output, and a file for what it says."""

    def __init__(self, argv: list[str], folder: Path, *, sends: bool) -> None:
        """Start the command."""
        self.said = tempfile.TemporaryFile(dir=folder)
        # A session of its own, so that an interrupt ends it by this process and not beside it.
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if sends else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if sends else subprocess.PIPE,
            stderr=self.said,
            start_new_session=True,
        )
        self.cpu_s: float | None = None

    def pipe(self) -> BinaryIO:
        """Return this end of its pipe."""
        pipe = self.process.stdin or self.process.stdout
        assert pipe is not None
        return pipe  # type: ignore[return-value]

    def words(self) -> str:
        """Return the end of what it said."""
        self.said.seek(0)
        return self.said.read().decode(errors="replace").strip()[-400:]

    def has_ended(self) -> bool:
        """Return whether it is over, and take its processor time then."""
        if self.cpu_s is None:
            pid, _, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.cpu_s = usage.ru_utime + usage.ru_stime
        return self.cpu_s is not None

    def end(self) -> float:
        """End it, and return its processor time in seconds."""
        if not self.has_ended():
            # Not send_signal(), which takes the status of a process that has just ended.
            os.kill(self.process.pid, signal.SIGKILL)
            _, _, usage = os.wait4(self.process.pid, 0)
            self.cpu_s = usage.ru_utime + usage.ru_stime
        self.process.returncode = 0
        self.pipe().close()
        self.said.close()
        assert self.cpu_s is not None
        return self.cpu_s


class Reader(threading.Thread):
    """Reads what a receiving command puts out, and notes when."""

    def __init__(self, pipe: BinaryIO, *, values: bool) -> None:
        """Prepare; `values` are lines, otherwise bytes are counted."""
        super().__init__(daemon=True)
        self.pipe = pipe
        self.values = values
        # Key, time made, time arrived of each value; time and bytes so far of each piece.
        self.arrivals: list[tuple[int, int, int]] = []
        self.pieces: list[tuple[int, int]] = []
        self.bytes = 0
        self.failure: str | None = None

    def run(self) -> None:
        """Read to the end."""
        rest = b""
        while piece := os.read(self.pipe.fileno(), 1 << 20):
            now = time.monotonic_ns()
            self.bytes += len(piece)
            if not self.values:
                self.pieces.append((now, self.bytes))
                continue
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                value = VALUE.match(line)
                if value is None:
                    self.failure = f"a line is no value: {line[:60]!r}"
                    return
                self.arrivals.append((int(value[1]), int(value[2]), now))


class Agent:
    """What the requests do."""

    def __init__(self) -> None:
        """Make a folder for what is copied here."""
        self.folder = Path(tempfile.mkdtemp(prefix="freshwire-hosts-"))
        self.command = self.folder / "freshwire"
        self.children: list[Child] = []
        self.reader: Reader | None = None

    def close(self) -> None:
        """End what runs, and delete the folder."""
        for child in self.children:
            child.end()
        self.children = []
        shutil.rmtree(self.folder, ignore_errors=True)

    def install(self, data: str) -> str:
        """Keep the command, and return its version."""
        self.command.write_bytes(base64.b85decode(data))
        self.command.chmod(0o700)
        try:
            ran = subprocess.run([str(self.command), "--version"], capture_output=True, text=True, check=False)
        except OSError as error:
            raise Failure(f"the command does not run here: {error}") from error
        if ran.returncode:
            raise Failure(f"the command does not run here: {ran.stderr.strip()}")
        return ran.stdout.strip()

    def key(self) -> str:
        """Make the key of an A1 end, and return its public half."""
        path = str(self.folder / "key")
        return subprocess.run(
            [str(self.command), "key", path], capture_output=True, text=True, check=True
        ).stdout.strip()

    def facts(self, peer: str) -> dict[str, Any]:
        """Return what a reader of the results has to know of this machine and of its way to the peer."""
        address, device = route(peer)
        model = re.search(r"^(?:model name|Model)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return {
            "kernel": os.uname().release,
            "machine": os.uname().machine,
            "processor": model[1] if model else "unknown",
            "processors": os.cpu_count(),
            "load": os.getloadavg(),
            "congestion": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
            "address": address,
            "interface": interface(device),
        }

    def load(self) -> tuple[float, float, float]:
        """Return the load averages."""
        return os.getloadavg()

    def pong(self, port: int, count: int) -> None:
        """Start to answer each byte with this clock's time."""
        answering = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        answering.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        answering.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        answering.bind(("::", port))
        answering.listen(1)
        answering.settimeout(2 * PATIENCE)

        def answer() -> None:
            with answering:
                peer = answering.accept()[0]
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.settimeout(2 * PATIENCE)
            with peer:
                for _ in range(count):
                    if not peer.recv(1):
                        return
                    peer.sendall(struct.pack("!q", time.monotonic_ns()))

        threading.Thread(target=answer, daemon=True).start()

    def ping(self, address: str, port: int, count: int) -> list[tuple[int, int, int]]:
        """Return the time of each question, of its answer at the peer, and of the answer's arrival."""
        try:
            peer = socket.create_connection((address, port), timeout=PATIENCE)
        except OSError as error:
            raise Failure(
                f"cannot connect to {address} port {port}: {error}; open the port for TCP and UDP, "
                "or name another address"
            ) from error
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        with peer:
            for _ in range(count):
                asked = time.monotonic_ns()
                peer.sendall(b"?")
                answer = b""
                while len(answer) < 8:
                    piece = peer.recv(8 - len(answer))
                    if not piece:
                        raise Failure(f"{address} port {port} closed the connection")
                    answer += piece
                times.append((asked, struct.unpack("!q", answer)[0], time.monotonic_ns()))
        return times

    def argv(self, words: list[str]) -> list[str]:
        """Return a command line with what is only known here."""
        here = {"PYTHON": sys.executable, "FRESHWIRE": str(self.command), "KEY": str(self.folder / "key")}
        here.update(SEND=PLAIN_SEND, RECEIVE=PLAIN_RECEIVE, PATIENCE=str(PATIENCE))
        return [here.get(word, word) for word in words]

    def receive(self, argv: list[str], *, values: bool) -> None:
        """Start a receiving command and read what it puts out."""
        child = Child(self.argv(argv), self.folder, sends=False)
        self.children.append(child)
        self.reader = Reader(child.pipe(), values=values)
        self.reader.start()

    def received(self) -> dict[str, Any]:
        """End the receiving command, and return what came."""
        (child,), reader = self.children, self.reader
        assert reader is not None
        words = child.words()
        cpu = child.end() if reader.bytes else None
        reader.join(PATIENCE)
        self.close_children()
        if reader.failure:
            raise Failure(reader.failure)
        if not reader.bytes:
            raise Failure(f"nothing arrived: {words or 'the receiving command said nothing'}")
        return {"cpu_s": cpu, "bytes": reader.bytes, "arrivals": reader.arrivals, "pieces": thin(reader.pieces)}

    def close_children(self) -> None:
        """End what still runs."""
        for child in self.children:
            if child.cpu_s is None:
                child.end()
        self.children = []

    def send(self, argv: list[str], seconds: float, source: dict[str, int] | None) -> dict[str, Any]:
        """Run a sending command with values, or with as much as it takes, for some seconds."""
        child = Child(self.argv(argv), self.folder, sends=True)
        self.children.append(child)
        try:
            pipe = child.pipe()
            begin = time.monotonic_ns()
            end = begin + int(seconds * 1e9)
            if source:
                made = make_values(pipe, end, child, **source)
            else:
                made = make_bytes(pipe, end, child)
            ended = child.has_ended()
            words = child.words()
        finally:
            cpu = child.end()
            self.children.remove(child)
        if ended:
            raise Failure(f"the sending command ended early: {words or 'it said nothing'}")
        return {"cpu_s": cpu, "begin_ns": begin, "end_ns": end, **made}


def thin(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the last of the pieces in each hundredth of a second."""
    last = {at // 10_000_000: (at, total) for at, total in pieces}
    return list(last.values())


def write(pipe: BinaryIO, data: bytes | memoryview, end: int, child: Child) -> bool:
    """Write all of the data before the end, and return whether that was possible."""
    descriptor = pipe.fileno()
    data = memoryview(data)
    while data:
        left = (end - time.monotonic_ns()) / 1e9
        if left <= 0 or child.has_ended():
            return False
        if not select.select([], [descriptor], [], min(left, 0.2))[1]:
            continue
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            continue
        except BrokenPipeError:
            return False
    return True


def make_values(  # noqa: PLR0913
    pipe: BinaryIO, end: int, child: Child, keys: int, size: int, interval_ns: int
) -> dict[str, int]:
    """Write values in turns, each made when it is written; turns that the command leaves no time for do not take place."""
    # What waits in the pipe is nobody's choice: as little as there can be.
    fcntl.fcntl(pipe.fileno(), F_SETPIPE_SZ, 4096)
    os.set_blocking(pipe.fileno(), False)
    start = time.monotonic_ns()
    turn = made = 0
    while True:
        due = start + turn * interval_ns
        now = time.monotonic_ns()
        if now >= end:
            return {"values": made, "turns": turn}
        if due > now:
            time.sleep(min(due - now, end - now) / 1e9)
            continue
        turn = max(turn, (now - start) // interval_ns)
        head = b'{"id":%d,"t":%d,"p":"' % (made % keys, now)
        if not write(pipe, head + b"x" * max(size - len(head) - 3, 0) + b'"}\n', end, child):
            return {"values": made, "turns": turn}
        made += 1
        turn += 1


def make_bytes(pipe: BinaryIO, end: int, child: Child) -> dict[str, int]:
    """Write records of 64 KiB, each with its length before it, as fast as they are taken."""
    fcntl.fcntl(pipe.fileno(), F_SETPIPE_SZ, 1 << 20)
    os.set_blocking(pipe.fileno(), False)
    record = struct.pack("!I", 1 << 16) + bytes(1 << 16)
    made = 0
    while write(pipe, record, end, child):
        made += 1
    return {"values": made, "turns": made}


def route(peer: str) -> tuple[str, str]:
    """Return the address and the interface that packets to the peer leave by."""
    try:
        number = socket.getaddrinfo(peer, None, type=socket.SOCK_DGRAM)[0][4][0]
        ran = subprocess.run(["ip", "-json", "route", "get", str(number)], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Failure("the program ip is missing: apt-get install iproute2") from error
    except OSError as error:
        raise Failure(f"{peer} has no address here: {error}") from error
    if ran.returncode:
        raise Failure(f"there is no route to {peer}: {ran.stderr.strip()}")
    (way,) = json.loads(ran.stdout)
    return way["prefsrc"], way["dev"]


def ethtool(name: str, request: bytes) -> bytes | None:
    """Ask a driver; `None` where it does not know."""
    buffer = array.array("B", request)
    pointer, _ = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            fcntl.ioctl(probe, SIOCETHTOOL, struct.pack("16sP16x", name.encode(), pointer))
        except OSError:
            return None
    return buffer.tobytes()


def interface(name: str) -> dict[str, Any]:
    """Return what an interface is, and what it does for the kernel."""
    offloads: dict[str, bool | None] = {}
    for offload, command in OFFLOADS.items():
        answer = ethtool(name, struct.pack("II", command, 0))
        offloads[offload] = None if answer is None else struct.unpack("II", answer)[1] != 0
    flags = ethtool(name, struct.pack("II", ETHTOOL_GFLAGS, 0))
    offloads["lro"] = None if flags is None else bool(struct.unpack("II", flags)[1] & ETH_FLAG_LRO)
    answer = ethtool(name, struct.pack("I192x", ETHTOOL_GDRVINFO))
    fields = [answer[at : at + 32].split(b"\0")[0].decode() for at in (4, 36, 68, 100)] if answer else ["unknown"] * 4

    # ethtool_cmd: the rate's lower half behind four words, its upper half behind the packet limits; all ones is "unknown".
    answer = ethtool(name, struct.pack("I40x", ETHTOOL_GSET))
    speed = None
    if answer:
        low, high = struct.unpack_from("H", answer, 12)[0], struct.unpack_from("H", answer, 28)[0]
        speed = low | high << 16
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        mtu = struct.unpack_from("i", fcntl.ioctl(probe, SIOCGIFMTU, struct.pack("16s24x", name.encode())), 16)[0]

    return {
        "name": name,
        "driver": fields[0],
        "driver_version": fields[1],
        "firmware": fields[2],
        "bus": fields[3],
        "mtu": mtu,
        "speed_mbit": speed if speed not in (None, 0, 0xFFFF, 0xFFFFFFFF) else None,
        "offloads": offloads,
    }


def serve() -> None:
    """Answer requests until there are no more."""
    agent = Agent()
    try:
        while request := sys.stdin.readline():
            words = json.loads(request)
            try:
                answer = {"is": getattr(agent, words.pop("do"))(**words)}
            except Failure as failure:
                answer = {"failure": str(failure)}
            print(json.dumps(answer), flush=True)
    finally:
        agent.close()


if __name__ == "__main__":
    # Ends as it would at the end of its input, so that nothing stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(1))
    serve()
