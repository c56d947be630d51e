"""Threads, forks, signals and the interpreter's end."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from conftest import TIMEOUT, make_pair, read_to_end

import freshwire
from freshwire import choice

PRELUDE = """
import os, signal, socket, sys, threading
import freshwire
from freshwire import choice
server = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(server.getsockname())
far = server.accept()[0]
engine = freshwire.Engine()
sender = freshwire.Sender(engine, freshwire.Ring(rings=2))
"""


def run(program, **options):
    """Run a program in a process of its own; it must end by itself."""
    command = [sys.executable, "-X", "faulthandler", "-c", PRELUDE + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=3 * TIMEOUT, **options)


def test_many_threads_push_into_one_sink(engine, pair):
    sink = freshwire.Sender(engine, freshwire.Ring(slots=4096, block_bytes=64, blocks=8192)).add_sink(
        pair[0], choice.fifo(), framing="chunked"
    )
    received = []
    reader = threading.Thread(target=lambda: received.extend(freshwire.Receiver(pair[1])))
    reader.start()

    def produce():
        for _ in range(500):
            while True:
                try:
                    sink.push(b"x" * 32)
                    break
                except freshwire.Full:
                    time.sleep(0.001)

    threads = [threading.Thread(target=produce) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    sink.close()
    reader.join(TIMEOUT)
    assert len({record.id for record in received}) == 4000


def test_a_waiting_call_lets_other_threads_run(pair):
    receiver = freshwire.Receiver(pair[1])
    waiting = threading.Thread(target=next, args=(receiver, None))
    waiting.start()
    counted = 0
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        counted += 1
    assert waiting.is_alive()
    pair[0].close()
    waiting.join(TIMEOUT)
    assert not waiting.is_alive()
    assert counted > 100


@pytest.mark.parametrize(
    "policy", ["choice.fifo()", "choice.from_function(lambda now, queue, link: choice.Decision.Send(0))"]
)
def test_the_interpreter_ends_with_a_live_engine(policy):
    ended = run(f"""
sink = sender.add_sink(near, {policy})
for _ in range(500):
    sink.push(bytes(100))
print("done")
""")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_the_interpreter_ends_while_threads_push():
    ended = run("""
def produce(sink):
    while True:
        try:
            sink.push(bytes(100))
        except freshwire.FreshwireError:
            pass
policy = choice.from_function(lambda now, queue, link: choice.Decision.Send(0) if queue else choice.Decision.Wait())
for policy in (policy, choice.fifo()):
    sink = sender.add_sink(near, policy)
    threading.Thread(target=produce, args=(sink,), daemon=True).start()
print("done")
""")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_the_child_of_a_fork_is_told_and_harms_nobody():
    ended = run("""
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
node = freshwire.a1.Node("127.0.0.1:0")
sink = sender.add_sink(near, choice.fifo())
sink.push(b"before ")
child = os.fork()
if child == 0:
    for call in (lambda: sink.push(b"child "), sink.stats, engine.close, lambda: sender.add_sink(near, choice.fifo()),
                 lambda: node.address, lambda: list(sink.fates())):
        try:
            call()
        except RuntimeError as error:
            assert "forked" in str(error), error
        else:
            os._exit(3)
    with freshwire.Engine() as own:
        other = freshwire.Sender(own)
    del sink, sender, engine, node
    sys.exit(0)
status = os.waitpid(child, 0)[1]
sink.push(b"after")
print(os.waitstatus_to_exitcode(status), sink.close())
far.settimeout(10)
parts = []
while part := far.recv(100):
    parts.append(part)
print(b"".join(parts))
""")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "0 Ended.Closed()\nb'before after'\n"


@pytest.mark.parametrize(
    "call",
    [
        "freshwire.Receiver(far).recv()",
        "next(freshwire.Receiver(far))",
        "freshwire.a1.Node('127.0.0.1:0').accept()",
        "(sink.push(bytes(1 << 20)), sink.close(timeout=1000))",
        "freshwire.a1.Node('127.0.0.1:0').connect('127.0.0.1', 9, '00' * 32, timeout=1000)",
    ],
)
def test_ctrl_c_ends_a_wait(call):
    program = f"""
sender = freshwire.Sender(engine, freshwire.Ring(block_bytes=1 << 20, blocks=4))
near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
sink = sender.add_sink(near, choice.fifo())
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
try:
    print("waits", flush=True)
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""
    command = [sys.executable, "-c", PRELUDE + program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "waits\n"
            deadline = time.monotonic() + TIMEOUT
            while process.poll() is None and time.monotonic() < deadline:
                # One that comes between "waits" and the call is told too.
                os.kill(process.pid, signal.SIGINT)
                time.sleep(0.3)
            process.kill()  # one that did not end would keep its output open
            assert process.stdout.read() == "interrupted\n"
        finally:
            process.kill()


def test_a_dropped_sink_finishes_its_record(engine):
    near, far = make_pair()
    sink = freshwire.Sender(engine).add_sink(near, choice.fifo())
    near.close()
    sink.push(b"x" * 1000)
    while sink.stats().committed == 0:
        time.sleep(0.001)
    del sink
    assert read_to_end(far) == b"x" * 1000


def test_a_sub_interpreter_gets_an_import_error():
    """As an application under mod_wsgi: before the main interpreter's import and after it. The process ends in each case."""
    program = """
        import sys
        try:
            import _interpreters as interpreters                      # 3.13 and later
        except ImportError:
            import _xxsubinterpreters as interpreters
        try:
            sub = interpreters.create("legacy")
        except TypeError:
            sub = interpreters.create(isolated=False)
        try_it = '''
        try:
            import freshwire
            freshwire.Engine()
        except ImportError as error:
            print("refused:", error, flush=True)
        '''
        import textwrap
        run = getattr(interpreters, "exec", None) or interpreters.run_string
        for turn in range(2):
            run(sub, textwrap.dedent(try_it))
            import freshwire
            with freshwire.Engine() as engine:
                assert engine.is_running
        if "destroy" in sys.argv:
            interpreters.destroy(sub)
        print("the end", flush=True)
    """
    for arguments in ([], ["destroy"]):
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True, timeout=3 * TIMEOUT
        )
        assert ended.returncode == 0, ended.stderr
        lines = ended.stdout.splitlines()
        assert len(lines) == 3 and lines[2] == "the end", ended.stdout
        assert all("main interpreter" in line and "WSGIApplicationGroup" in line for line in lines[:2]), lines
