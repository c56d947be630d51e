"""A1 in asyncio: by descriptors, without threads."""

import asyncio
import gc
import os
import select
import subprocess
import sys
import threading

import pytest
from conftest import TIMEOUT, until

import freshwire
from freshwire import a1, choice


def run(coroutine):
    async def limited():
        return await asyncio.wait_for(coroutine, TIMEOUT)

    return asyncio.run(limited())


def threads():
    """Return the names of this process's threads."""
    return [thread.name for thread in threading.enumerate()]


@pytest.fixture
def nodes():
    with a1.Node("127.0.0.1:0") as near, a1.Node("127.0.0.1:0") as far:
        yield near, far


def test_a_conversation_takes_no_thread(nodes):
    near, far = nodes
    count = len(os.listdir("/proc/self/task"))

    async def serve():
        async for connection in far:
            sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
            async for message in connection:
                sink.push(message.payload.upper())
            return

    async def conversation():
        server = asyncio.ensure_future(serve())
        connection = await near.connect_async(*far.address, far.public_key, TIMEOUT)
        sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
        for number in range(200):
            sink.push(f"message {number}".encode())
            answer = await connection.recv_async()
            assert answer.payload == f"MESSAGE {number}".encode()
            assert len(os.listdir("/proc/self/task")) == count, threads()
        connection.close()
        await server

    run(conversation())


def test_a_name_is_looked_up(nodes):
    near, far = nodes

    async def conversation():
        connecting = near.connect_async("localhost", far.address[1], far.public_key, TIMEOUT)
        connection, accepted = await asyncio.gather(connecting, far.accept_async())
        assert accepted.peer_key == near.public_key
        assert connection.peer_address == far.address
        with pytest.raises(freshwire.ConnectError, match="look up"):
            await near.connect_async("nowhere.invalid", 1, far.public_key, TIMEOUT)
        with pytest.raises(freshwire.ConnectError, match="IPv4 or IPv6"):
            await near.connect_async("::1", 1, far.public_key, TIMEOUT)
        with pytest.raises(freshwire.ConnectError, match="no answer"):
            await near.connect_async("127.0.0.1", 9, far.public_key, 0.05)

    run(conversation())


def test_several_tasks_share_what_comes(nodes):
    near, far = nodes
    connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
    accepted = far.accept(TIMEOUT)
    sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
    got = []

    async def take():
        got.append((await accepted.recv_async()).payload)

    async def conversation():
        tasks = [asyncio.ensure_future(take()) for _ in range(8)]
        await asyncio.sleep(0)
        for number in range(8):
            sink.push(str(number).encode())
            if number % 3 == 0:
                await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)

    run(conversation())
    assert sorted(got) == [str(number).encode() for number in range(8)]


def test_loops_in_several_threads_share_what_comes(nodes):
    near, far = nodes
    connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
    accepted = far.accept(TIMEOUT)
    sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
    got = []

    async def take():
        for _ in range(25):
            got.append((await accepted.recv_async()).payload)

    takers = [threading.Thread(target=run, args=(take(),)) for _ in range(4)]
    for taker in takers:
        taker.start()
    for number in range(100):
        sink.push(str(number).encode())
    for taker in takers:
        taker.join(TIMEOUT)
    assert sorted(map(int, got)) == list(range(100))


def test_a_cancelled_wait_loses_nothing_and_leaves_no_descriptor(nodes):
    near, far = nodes
    connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
    accepted = far.accept(TIMEOUT)
    sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())

    async def cancel():
        for wait in (accepted.recv_async, accepted.__anext__, far.accept_async):
            for _ in range(20):
                task = asyncio.ensure_future(wait())
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    run(cancel())
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    run(cancel())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    sink.push(b"still there")
    assert run(accepted.recv_async()).payload == b"still there"


def test_a_cancelled_connect_gives_up(nodes):
    near, far = nodes

    async def cancel():
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        task = asyncio.ensure_future(near.connect_async("127.0.0.1", 9, far.public_key, TIMEOUT))
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) > before
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        # The loop keeps what it has just run.
        await asyncio.sleep(0)
        gc.collect()
        # The node has one too, as long as it tries to connect.
        assert len(os.listdir("/proc/self/fd")) == before

    run(cancel())


def test_the_end_ends_a_wait(nodes):
    near, far = nodes
    connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
    accepted = far.accept(TIMEOUT)

    async def conversation():
        waits = [asyncio.ensure_future(accepted.recv_async()) for _ in range(2)]
        iteration = asyncio.ensure_future(accepted.__anext__())
        await asyncio.sleep(0)
        connection.close(300, "enough")
        for wait in [*waits, iteration]:
            with pytest.raises(freshwire.Closed, match="enough"):
                await wait
        newcomer = asyncio.ensure_future(far.accept_async())
        await asyncio.sleep(0)
        far.close()
        with pytest.raises(freshwire.Closed, match="stopped"):
            await newcomer
        assert [it async for it in far] == []
        with pytest.raises(freshwire.Closed):
            far.events()

    run(conversation())


def test_other_event_loops_wait_for_descriptors(nodes):
    near, far = nodes
    newcomers = far.events()
    newcomers.clear()
    assert select.select([newcomers], [], [], 0) == ([], [], [])
    going = near.begin_connect("{}:{}".format(*far.address), far.public_key, TIMEOUT)
    assert select.select([newcomers], [], [], TIMEOUT)[0] == [newcomers]
    accepted = until(lambda: far.accept(0), "a connection")
    connection = until(going.poll_open, "the connection")
    arrivals = accepted.events()
    assert arrivals.fileno() == accepted.events().fileno()
    assert accepted.recv(0) is None
    arrivals.clear()
    assert select.select([arrivals], [], [], 0) == ([], [], [])
    sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
    sink.push(b"hello")
    assert select.select([arrivals], [], [], TIMEOUT)[0] == [arrivals]
    arrivals.clear()
    assert until(lambda: accepted.recv(0), "the message").payload == b"hello"
    arrivals.set()
    assert select.select([arrivals], [], [], 0)[0] == [arrivals]


PRELUDE = """
import asyncio, os, sys, threading, warnings
import freshwire
from freshwire import a1, choice
warnings.simplefilter("ignore", DeprecationWarning)
near, far = [a1.Node("127.0.0.1:0", in_order=True) for _ in range(2)]
connection = near.connect(*far.address, far.public_key)
accepted = far.accept()
"""


def run_apart(program):
    """Run a program in a process of its own; it must end by itself."""
    command = [sys.executable, "-X", "faulthandler", "-c", PRELUDE + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=3 * TIMEOUT)


def test_the_child_of_a_fork_is_told_and_harms_nobody():
    ended = run_apart("""
group = near.group("239.255.78.9:5004", 1_000_000)
events = accepted.events()
stream = a1.ByteStream(connection)
going = near.begin_connect("127.0.0.1:9", far.public_key)
child = os.fork()
if child == 0:
    calls = [accepted.recv, accepted.events, events.fileno, events.clear, near.events, near.stats, lambda: accepted.qos,
             stream.read, lambda: stream.write(b"x"), stream.finish, stream.read_events, stream.close, group.stats,
             lambda: group.address, lambda: group.invite(accepted), going.poll_open, accepted.memberships,
             lambda: freshwire.Sender().add_a1_group(group, choice.fifo()), lambda: a1.ByteStream(accepted)]
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            assert "forked" in str(error), error
        else:
            os._exit(3)
    with a1.Node("127.0.0.1:0") as own:
        own.events().clear()
    del near, far, connection, accepted, stream, group, going, events
    sys.exit(0)
status = os.waitpid(child, 0)[1]
print(os.waitstatus_to_exitcode(status))
other = a1.ByteStream(accepted)
print(stream.write(b"after the fork"), other.read())
""")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "0\n14 b'after the fork'\n"


def test_a_policy_may_free_what_its_node_has():
    ended = run_apart("""
held = [near.connect(*far.address, far.public_key), near.begin_connect("127.0.0.1:9", far.public_key),
        near.group("239.255.78.10:5004", 1_000_000), a1.ByteStream(near.connect(*far.address, far.public_key))]
def frees(now, queue, link):
    if queue:
        held.clear()
    return choice.Decision.Wait()
sink = freshwire.Sender().add_a1_sink(connection, choice.from_function(frees, before=choice.fifo()))
sink.push(b"x")
print(accepted.recv().payload, held)
held.append(near)
del near
sink.push(b"y")
try:
    while True:
        accepted.recv()
except freshwire.Closed as error:
    print(error, held)
""")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "b'x' []\nclosed by the peer: the node was stopped (code 256) []\n"


def test_a_node_is_used_while_its_policy_decides():
    ended = run_apart("""
import time
deciding = threading.Event()
def slow(now, queue, link):
    if queue:
        deciding.set()
        # Pause: the other thread gets as far as the node's lock.
        time.sleep(0.05)
    return choice.Decision.Wait()
sink = freshwire.Sender().add_a1_sink(connection, choice.from_function(slow, before=choice.fifo()))
uses = [lambda: near.address, lambda: near.public_key, near.stats, near.events, lambda: near.accept(0), lambda: repr(near),
        lambda: near.begin_connect("127.0.0.1:9", far.public_key), lambda: near.group("239.255.78.11:5004", 1_000_000),
        lambda: connection.peer_address, near.close]
for use in uses:
    deciding.clear()
    pushing = threading.Thread(target=sink.push, args=(b"x",))
    pushing.start()
    deciding.wait()
    use()
    pushing.join()
print("done")
""")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.parametrize(
    "wait",
    [
        "accepted.recv()",
        "far.accept()",
        "a1.ByteStream(accepted).read()",
        "asyncio.run(accepted.recv_async())",
        "asyncio.run(far.accept_async())",
    ],
)
def test_the_interpreter_ends_with_a_live_node(wait):
    ended = run_apart(f"""
def wait():
    try:
        {wait}
    except freshwire.Closed:
        pass
sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
threading.Thread(target=wait, daemon=True).start()
for _ in range(100):
    sink.push(bytes(100))
    connection.stats()
print("done")
""")
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    # asyncio's own thread may be cut off in the middle: nothing of the library's is named.
    assert "panicked" not in ended.stderr


def test_objects_go_when_nobody_has_them():
    def make():
        near, far = a1.Node("127.0.0.1:0", in_order=True), a1.Node("127.0.0.1:0", in_order=True)
        connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
        accepted = far.accept(TIMEOUT)
        stream, other = a1.ByteStream(connection), a1.ByteStream(accepted)
        stream.write(b"x")

        async def read():
            assert await other.read_async() == b"x"

        run(read())
        near.events(), far.events(), accepted.events(), stream.write_events()
        group = near.group("239.255.78.8:5004", 1_000_000)
        sink = freshwire.Sender().add_a1_group(group, choice.fifo())
        sink.push(b"x")

    for _ in range(3):
        make()
    gc.collect()
    tasks, descriptors = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        make()
    gc.collect()
    assert len(os.listdir("/proc/self/task")) <= tasks
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_messages_leave_no_references(nodes):
    near, far = nodes
    connection = near.connect(*far.address, far.public_key, timeout=TIMEOUT)
    accepted = far.accept(TIMEOUT)
    sink = freshwire.Sender().add_a1_sink(connection, choice.fifo())
    payload = b"x" * 1000

    async def converse(count):
        for _ in range(count):
            sink.push(payload)
            assert (await accepted.recv_async()).payload == payload
            for _ in sink.fates():
                pass

    run(converse(500))
    gc.collect()
    references, objects = [sys.getrefcount(it) for it in (payload, accepted, sink)], len(gc.get_objects())
    run(converse(2000))
    gc.collect()
    assert [sys.getrefcount(it) for it in (payload, accepted, sink)] == references
    assert abs(len(gc.get_objects()) - objects) < 500
