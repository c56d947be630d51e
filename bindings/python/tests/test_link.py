"""The emulated link: sockets at its ends, its settings, its end, and the example of the manual."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from conftest import TIMEOUT, read_to_end, until

import freshwire

MANUAL = Path(__file__).parents[3] / "docs/python.md"


def make_link(**options):
    """Make a link; skip where the system gives none, but for CI."""
    try:
        return freshwire.Link(**options)
    except freshwire.LinkNotPermitted as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def datagram_pair(link):
    """Make a connected socket at the near end, and one at the far end."""
    far = link.socket("far", type=socket.SOCK_DGRAM)
    far.bind((link.far, 0))
    far.settimeout(TIMEOUT)
    near = link.socket("near", type=socket.SOCK_DGRAM)
    near.connect(far.getsockname())
    near.settimeout(TIMEOUT)
    return near, far


def test_a_stream_crosses_the_link():
    with make_link(delay=(0.03, "5ms")) as link, link.listen() as server:
        begin = time.monotonic()
        near = link.connect(server, timeout=TIMEOUT)
        assert time.monotonic() - begin >= 0.035
        far, address = server.accept()
        assert address[0] == link.near == "10.77.0.1" and link.far == "10.77.0.2"
        assert near.gettimeout() is None
        with near:
            near.sendall(b"across")
        with far:
            assert read_to_end(far) == b"across"
        stats = link.stats()
        assert stats.up.delivered_bytes > 6 and stats.down.delivered_packets > 0
        assert stats.up.lost_packets == stats.up.dropped_packets == 0
        assert link.address is None
        with pytest.raises(TypeError, match="the link leads to no server"):
            link.connect()
        with pytest.raises(ConnectionRefusedError):
            link.connect(9, timeout=TIMEOUT)


def test_the_rate_changes_and_the_queue_overflows():
    with make_link(rate="8bit", queue=60) as link:
        near, far = datagram_pair(link)
        with near, far:
            for number in range(4):
                near.send(bytes([number]))
            # One is in the transmitter for 29 s, two fit into the queue.
            until(lambda: link.stats().up.offered_packets == 4, "all are offered")
            up = link.stats().up
            assert (up.queued_bytes, up.dropped_packets, up.delivered_packets) == (58, 1, 0)
            link.set_rate(0, "up")
            link.set_rate("6Mbit", "down")
            assert link.stats().up.queued_bytes == 58
            link.set_rate(None)
            assert [far.recv(10)[0] for _ in range(3)] == [0, 1, 2]
            assert link.stats().up.queued_bytes == 0


def test_loss_is_that_of_the_seed():
    def lost(seed):
        with make_link(loss="50%", seed=seed) as link:
            near, far = datagram_pair(link)
            with near, far:
                for number in range(40):
                    near.send(bytes([number]))
                until(lambda: link.stats().up.offered_packets == 40, "all are offered")
                up = link.stats().up
                arrived = [far.recv(10)[0] for _ in range(40 - up.lost_packets)]
        return up.lost_packets, arrived

    first = lost(1)
    assert 0 < first[0] < 40
    assert lost(1) == first != lost(2)


def test_late_packets_are_overtaken():
    with make_link(reorder=("50%+100ms", None), seed=1) as link:
        near, far = datagram_pair(link)
        with near, far:
            for number in range(20):
                near.send(bytes([number]))
            arrived = [far.recv(10)[0] for _ in range(20)]
    assert sorted(arrived) == list(range(20)) != arrived


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"rate": "300kb"}, ValueError, '"300kb" is not clear: some programs read bytes there and some bits'),
        ({"rate": -1}, OverflowError, "negative"),
        ({"rate": 0}, ValueError, "a link of rate zero carries nothing"),
        ({"rate": 1.5}, TypeError, "float"),
        ({"rate": ("1kbit", "2kbit", "3kbit")}, ValueError, "3 values: one, or a pair of up and down, is wanted"),
        ({"delay": -1.0}, ValueError, "delay=-1: a number of seconds, not below zero, is wanted"),
        ({"delay": 4000}, ValueError, "a delay of 4000s is more than an hour"),
        ({"queue": "many"}, ValueError, '"many" is not a size'),
        ({"loss": "101%"}, ValueError, '"101%" is not a share'),
        ({"loss": 1.5}, ValueError, "shares go from 0 to 1"),
        ({"burst": 3}, ValueError, "burst says how long losses last: say with loss how many there are"),
        ({"reorder": "1%"}, ValueError, "write SHARE+TIME, such as 1%+5ms"),
        ({"reorder": 0.01}, TypeError, 'reorder=0.01: text such as "1%+5ms" is wanted'),
        ({"to": ("127.0.0.1", 0)}, freshwire.LinkError, "port 0 cannot be reached: name the server's port"),
        ({"to": "127.0.0.1"}, TypeError, "to"),
    ],
)
def test_wrong_settings_are_refused(options, error, words):
    with pytest.raises(error, match=re.escape(words)):
        freshwire.Link(**options)


def test_wrong_arguments_are_refused():
    with make_link() as link:
        with pytest.raises(ValueError, match='end="middle": near or far is wanted'):
            link.socket("middle")
        with pytest.raises(freshwire.LinkError, match="cannot make a socket at the far end: Invalid argument"):
            link.socket("far", type=12345)
        with pytest.raises(ValueError, match='direction="left": up or down is wanted'):
            link.set_rate(None, "left")


def test_a_server_of_this_machine_is_reached_by_address():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(server.getsockname())
        with make_link(rate="2Mbit", delay="5ms", to=server.getsockname()) as link:
            assert link.address[0] == "127.0.0.1"
            for connect in (lambda: socket.create_connection(link.address, TIMEOUT), lambda: link.connect(timeout=TIMEOUT)):
                with connect() as client:
                    peer = server.accept()[0]
                    client.sendall(b"question")
                    client.shutdown(socket.SHUT_WR)
                    peer.settimeout(TIMEOUT)
                    assert read_to_end(peer) == b"question"
                    with peer:
                        peer.sendall(b"answer" * 10_000)
                    client.settimeout(TIMEOUT)
                    assert read_to_end(client) == b"answer" * 10_000
            assert link.stats().down.delivered_bytes > 120_000
            with socket.socket(type=socket.SOCK_DGRAM) as client:
                client.settimeout(TIMEOUT)
                datagrams.settimeout(TIMEOUT)
                client.sendto(b"ping", link.address)
                data, address = datagrams.recvfrom(100)
                datagrams.sendto(data + b"pong", address)
                assert client.recvfrom(100) == (b"pingpong", link.address)


def test_a1_crosses_the_link():
    from freshwire import a1, choice

    viewer, sender = a1.Node("127.0.0.1:0"), a1.Node("127.0.0.1:0")
    with make_link(rate="1Mbit", delay=0.01, to=tuple(viewer.address)) as link:
        connection = sender.connect(*link.address, viewer.public_key, timeout=TIMEOUT)
        sink = freshwire.Sender().add_a1_sink(connection, choice.latest())
        sink.push(b"position", key=1)
        assert viewer.accept(TIMEOUT).recv(TIMEOUT).payload == b"position"
        assert link.stats().up.delivered_packets > 0


def test_a_closed_link_has_ended():
    with make_link() as link:
        near, far = datagram_pair(link)
        near.send(b"x")
        assert far.recv(10) == b"x"
    with near, far:
        assert link.close() == link.close()
        assert repr(link) == "<freshwire.Link closed>"
        assert link.stats().up.delivered_packets == 1
        for call in (lambda: link.socket("near"), lambda: link.set_rate(None), link.listen):
            with pytest.raises(freshwire.Closed, match="the link has ended"):
                call()
        far.settimeout(0.05)
        # The interface goes with the link, so that sending may fail too.
        with pytest.raises(OSError):
            near.send(b"y")
            far.recv(10)


def test_links_are_apart_and_leave_nothing_behind():
    def make():
        with make_link() as first, make_link() as second:
            near, far = datagram_pair(first)
            other, other_far = datagram_pair(second)
            with near, far, other, other_far:
                other.send(b"second")
                assert other_far.recv(10) == b"second"
                assert first.stats().up.offered_packets == 0

    make()
    threads, descriptors = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    make()
    assert len(os.listdir("/proc/self/task")) <= threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    # A link that nobody holds is closed.
    make_link()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_threads_share_a_link():
    with make_link() as link:
        failures = []

        def use():
            try:
                for _ in range(20):
                    link.socket("near").close()
                    link.stats()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()
        assert failures == []


def processes_with(mark):
    """Find the processes whose environment has this."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def start(program):
    """Start a program in a process of its own, with a mark that its link's process has too."""
    mark = f"FRESHWIRE_TEST_MARK={uuid.uuid4()}"
    command = [sys.executable, "-X", "faulthandler", "-c", "import os, socket, sys, freshwire\n" + program]
    environment = dict([*os.environ.items(), mark.split("=")])
    return mark, subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


ENDS = {
    "exit": "",
    "kill": "import time; time.sleep(600)",
    # A child that has the link's descriptors, and outlives the program.
    "fork": """
if os.fork() == 0:
    import time
    try:
        link.stats()
    except RuntimeError as error:
        assert "forked" in str(error)
        print("refused", flush=True)
    os.close(1), os.close(2)
    time.sleep(600)
link.stats()
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_links_process_ends_with_the_program(end):
    make_link().close()
    mark, process = start('link = freshwire.Link(to=("127.0.0.1", 9))\nprint("up", flush=True)\n' + ENDS[end])
    with process:
        assert process.stdout.readline() == "up\n"
        if end == "kill":
            assert len(processes_with(mark)) >= 2
            process.kill()
        # A few words each: neither pipe fills.
        output, errors = process.stdout.read(), process.stderr.read()
        process.wait(TIMEOUT)
    children = []

    def is_gone():
        children[:] = processes_with(mark)
        return len(children) == (1 if end == "fork" else 0)

    try:
        assert (process.returncode, errors) == (-signal.SIGKILL if end == "kill" else 0, "")
        assert output == ("refused\n" if end == "fork" else "")
        until(is_gone, "the link's process ends")
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_ctrl_c_ends_a_wait_and_not_the_link():
    make_link().close()
    _, process = start(
        """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
with freshwire.Link() as link, link.listen() as server:
    link.set_rate(0)
    try:
        print("waits", flush=True)
        link.connect(server)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        link.set_rate(None)
        link.connect(server, timeout=60).close()
        print("interrupted", flush=True)
        os._exit(0)
"""
    )
    with process:
        try:
            assert process.stdout.readline() == "waits\n"
            deadline = time.monotonic() + TIMEOUT
            while process.poll() is None and time.monotonic() < deadline:
                os.kill(process.pid, signal.SIGINT)
                time.sleep(0.3)
            process.kill()  # one that did not end would keep its output open
            assert process.stdout.read() == "interrupted\n", process.stderr.read()
        finally:
            process.kill()


def test_the_manuals_example_holds():
    make_link().close()
    blocks = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "freshwire.Link(" in block]
    names = {}
    exec(compile(example, str(MANUAL), "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()
