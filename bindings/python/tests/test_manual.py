"""The manual's programs for servers and readers, as they stand in it."""

import asyncio
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import TIMEOUT, needs, until
from test_servers import connect, free_port, listens

import freshwire
from freshwire import choice

MANUAL = Path(__file__).parents[3] / "docs/python.md"


def block(beginning):
    """Find the program of the manual that begins so."""
    found = [text for text in re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL) if text.startswith(beginning)]
    assert len(found) == 1, beginning
    return found[0]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_application_of_fastapi(tmp_path, loop):
    for module in ("fastapi", "uvicorn", "websockets", loop):
        needs(module)
    (tmp_path / "app.py").write_text(block("import fastapi, freshwire"))
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--loop", loop, "--port", str(port), "app:app"]
    with subprocess.Popen(command, cwd=tmp_path) as server:
        try:
            until(lambda: listens(port), "a server that listens")
            with connect(port) as first, connect(port) as second:
                put = ["curl", "-sX", "PUT", "-H", "Content-Type: application/json", "-d", '{"angle": 7}']
                # The endpoint of the second may not have it yet when its client has the answer.
                message = None
                deadline = time.monotonic() + TIMEOUT
                while message is None:
                    assert time.monotonic() < deadline, "a message comes"
                    subprocess.run([*put, f"http://127.0.0.1:{port}/state/3"], check=True)
                    try:
                        message = second.recv(0.2)
                    except TimeoutError:
                        continue
                assert json.loads(message) == json.loads(first.recv(TIMEOUT)) == {"angle": 7}
        finally:
            server.terminate()
        server.wait(TIMEOUT)


def test_the_handler_of_aiohttp():
    aiohttp = needs("aiohttp")
    import aiohttp.web

    async def conversation():
        with freshwire.Engine() as engine:
            sender = freshwire.Sender(engine, freshwire.Ring.for_clients(clients=1, keys=12, bytes=64))
            namespace = {"freshwire": freshwire, "choice": choice, "sender": sender, "aiohttp": aiohttp}
            exec(block("async def state(request):"), namespace)
            app = aiohttp.web.Application()
            app.router.add_get("/state", namespace["state"])
            runner = aiohttp.web.AppRunner(app)
            await runner.setup()
            site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = site._server.sockets[0].getsockname()[1]
            async with aiohttp.ClientSession() as session:
                async with session.ws_connect(f"http://127.0.0.1:{port}/state") as client:
                    await client.ping()
                    await client.close()
                    assert client.close_code == 1000
            await runner.cleanup()

    asyncio.run(asyncio.wait_for(conversation(), TIMEOUT))


def test_departures_are_those_that_are_known(capsys):
    times = [(c, s, d) for c in (None, 10) for s in (None, 13) for d in (None, 20)]
    fates = [SimpleNamespace(committed_at=c, scheduled_at=s, departed_at=d) for c, s, d in times]
    sink = SimpleNamespace(push=lambda _payload: 0, fates=lambda: fates)
    sender = SimpleNamespace(add_sink=lambda *_, **options: sink)
    names = {"freshwire": freshwire, "choice": choice, "sender": sender, "stream": None}
    exec(block("network = freshwire.NetworkQos("), names)
    assert capsys.readouterr().out == "3 7\n"


def test_a_reader_with_a_gate_has_few_old_records():
    """Beside it a reader with asyncio's own limit, which takes whole buffers of old ones."""
    counts = asyncio.run(asyncio.wait_for(old_records(), 3 * TIMEOUT))
    # Those that the gate lets out, and the present value of each key.
    assert counts["gate"] <= 16 + 50 and counts["gate"] * 4 < counts["plain"], counts


async def old_records():
    """Count the records that a reader still gets after the newest value was set, with and without the gate."""
    counts = {}
    namespace = {"asyncio": asyncio, "choice": choice, "freshwire": freshwire}
    exec(block("async def follow(host, port, use):"), namespace)

    async def plain_serve(sender, reader, writer, keep):
        sink = sender.add_sink(writer.get_extra_info("socket"), choice.latest(), keys=50, max_unread=None)
        keep(sink)
        while await reader.read(4096):
            pass
        sink.close(freshwire.Close.Abort)

    async def plain_follow(host, port, use):
        reader, _writer = await asyncio.open_connection(host, port)
        async for line in reader:
            await use(line)

    for name, follow, serve in (
        ("gate", namespace["follow"], namespace["serve"]),
        ("plain", plain_follow, plain_serve),
    ):
        with freshwire.Engine() as engine:
            sender = freshwire.Sender(engine, freshwire.Ring.for_clients(clients=1, keys=50, bytes=128))
            kept = asyncio.get_running_loop().create_future()
            handle = lambda reader, writer: serve(sender, reader, writer, kept.set_result)  # noqa: E731, B023
            server = await asyncio.start_server(handle, "127.0.0.1", 0)
            go, newest, seen = asyncio.Event(), asyncio.Event(), []

            async def use(line):
                await go.wait()  # noqa: B023
                seen.append(line)  # noqa: B023
                if b"newest" in line:
                    newest.set()  # noqa: B023

            reading = asyncio.ensure_future(follow(*server.sockets[0].getsockname(), use))
            sink = await kept
            for number in range(4000):
                sink.replace(f"value {number} {'x' * 80}\n".encode(), key=1 + number % 50)
                # The engine sends, and the reader's loop takes what it would.
                await asyncio.sleep(0)
            sink.replace(b"newest\n", key=7)
            go.set()
            await newest.wait()
            counts[name] = len(seen)
            reading.cancel()
            server.close()
    return counts
