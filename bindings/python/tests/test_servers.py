"""WebSockets that HTTP servers hand over at the upgrade: Uvicorn with asyncio and uvloop, Hypercorn, aiohttp."""

import asyncio
import contextlib
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import TIMEOUT, needs, until

import freshwire
from freshwire import choice

needs("websockets")
from websockets.sync import client  # noqa: E402

HERE = Path(__file__).parent
KEYS = 4
SIZE = 1000


def free_port():
    """Find a port that nobody has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


UVICORN = [
    (loop, http, ws)
    for loop in ("asyncio", "uvloop")
    for http, ws in (("h11", "websockets-sansio"), ("httptools", "wsproto"), ("auto", "auto"))
]
SERVERS = {f"uvicorn-{loop}-{http}-{ws}": ["uvicorn", "--loop", loop, "--http", http, "--ws", ws] for loop, http, ws in UVICORN}
SERVERS["hypercorn"] = ["hypercorn"]
SERVERS["aiohttp"] = ["served:aiohttp"]


@contextlib.contextmanager
def served(server, *more, ready=None):
    """Run tests/served.py in a server; yields its port and the process. It is there when its port is, or what `ready` asks for."""
    port = free_port()
    if server == "aiohttp":
        command = [sys.executable, "served.py", str(port)]
    elif server == "hypercorn":
        command = [sys.executable, "-m", "hypercorn", "served:app", "--bind", f"127.0.0.1:{port}", *more]
    else:
        command = [sys.executable, "-m", *SERVERS[server], "--port", str(port), *more, "served:app"]
    with subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            is_ready = ready or (lambda: listens(port))
            until(lambda: is_ready() or process.poll() is not None, "a server that listens")
            assert process.poll() is None, process.stdout.read()
            yield port, process
        finally:
            process.kill()


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def connect(port, path="/state", **options):
    return client.connect(f"ws://127.0.0.1:{port}{path}", open_timeout=TIMEOUT, close_timeout=TIMEOUT, **options)


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_hands_its_websockets_over(server):
    """Both directions, pings, compression declined, a subprotocol, and an endpoint of the framework beside it."""
    with served(server) as (port, process):
        with connect(port, subprotocols=["other", "state.v1"]) as viewer:
            assert viewer.subprotocol == "state.v1"
            assert "Sec-WebSocket-Extensions" not in viewer.response.headers
            assert json.loads(viewer.recv(TIMEOUT)) == {"hello": 1}
            viewer.send("grü")
            assert viewer.recv(TIMEOUT) == "heard grü"
            assert viewer.ping().wait(TIMEOUT)
            if server != "aiohttp":
                with connect(port, "/echo") as beside:
                    beside.send("through the framework")
                    assert beside.recv(TIMEOUT) == "through the framework"
            viewer.send("still there")
            assert viewer.recv(TIMEOUT) == "heard still there"
        with connect(port, subprotocols=["state.v1"]) as viewer:
            assert json.loads(viewer.recv(TIMEOUT)) == {"hello": 1}
            viewer.send("close")
            with pytest.raises(Exception, match="1000"):
                while True:
                    viewer.recv(TIMEOUT)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=TIMEOUT)[0]
        for word in ("Traceback", "Error", "error", "without"):
            assert word not in output, output


@pytest.mark.parametrize("server", ["uvicorn-asyncio-auto-auto", "uvicorn-uvloop-auto-auto", "hypercorn", "aiohttp"])
def test_a_slow_client_gets_the_newest(server):
    """A client that begins to read late finds few old values: those that were on the wire. Plain `send` would queue all."""
    with served(server) as (port, _), socket.create_connection(("127.0.0.1", port)) as far:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        far.sendall(
            b"GET /flood HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: state.v1\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        with connect(port, "/flooded", subprotocols=["state.v1"]) as other:
            assert other.recv(TIMEOUT) == "all 3000 values were set"
        far.settimeout(TIMEOUT)
        received = b""
        while b"value 2999 " not in received:
            part = far.recv(1 << 16)
            assert part, "the newest value comes"
            received += part
        assert received.count(b"value ") < 1500


@pytest.mark.parametrize("server", ["uvicorn-asyncio-auto-auto", "uvicorn-uvloop-auto-auto"])
def test_uvicorn_stops_with_clients(server):
    """Its own WebSockets get the code 1012 then, and its endpoints end."""
    with served(server) as (port, process), connect(port, subprotocols=["state.v1"]) as viewer:
        viewer.recv(TIMEOUT)
        process.send_signal(signal.SIGINT)
        with pytest.raises(Exception, match="1012"):
            while True:
                viewer.recv(TIMEOUT)
        process.wait(TIMEOUT)


@pytest.mark.parametrize("server", ["uvicorn-asyncio-auto-auto", "hypercorn"])
def test_refusals_reach_the_application(server):
    """A missing ring, an unknown subprotocol and a missing middleware are exceptions before anything was sent."""
    with served(server) as (port, _):
        with connect(port, subprotocols=["state.v1"]) as holder:
            holder.recv(TIMEOUT)
            for path, words in (("/no-ring", "NoFreeRing"), ("/no-protocol", "subprotocol='other'"), ("/bare", "add_middleware")):
                with connect(port, path, subprotocols=["state.v1"]) as refused:
                    assert words in refused.recv(TIMEOUT)


def test_the_deprecated_implementation_of_uvicorn_is_refused():
    """It would answer for an endpoint that has not."""
    with served("uvicorn-asyncio-auto-auto", "--ws", "websockets") as (port, _):
        with connect(port, "/refused", subprotocols=["state.v1"]) as refused:
            assert "use --ws auto" in refused.recv(TIMEOUT)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_tls_is_refused(loop, tmp_path):
    """The transport's words say what to do, and the handshake fails."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x"]
        + ["-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    more = ["--ssl-keyfile", str(key), "--ssl-certfile", str(certificate)]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with served(f"uvicorn-{loop}-auto-auto", *more) as (port, _):
        address = f"wss://127.0.0.1:{port}/refused"
        with client.connect(address, ssl=context, open_timeout=TIMEOUT, subprotocols=["state.v1"]) as refused:
            assert "end TLS in a proxy" in refused.recv(TIMEOUT)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_unix_socket_is_refused(loop, tmp_path):
    """The words name the option, and the framework can still answer."""
    path = tmp_path / "uvicorn"
    with served(f"uvicorn-{loop}-auto-auto", "--uds", str(path), ready=path.is_socket):
        uri = "ws://localhost/refused"
        with client.unix_connect(str(path), uri, open_timeout=TIMEOUT, subprotocols=["state.v1"]) as refused:
            words = refused.recv(TIMEOUT)
    assert words.startswith("ValueError: only a TCP connection can be handed over"), words
    assert "uvicorn --port in place of --uds" in words


def test_a_plain_unix_socket_is_refused(engine):
    async def take(near):
        freshwire.WebSocket(freshwire.Sender(engine), near, choice.fifo())

    near, far = socket.socketpair()
    with near, far, pytest.raises(ValueError, match="only a TCP connection can be handed over, and this one is AF_UNIX"):
        asyncio.run(take(near))


def test_the_log_of_each_message_is_named():
    """Uvicorn's logger is around the application, so that advice on the middleware would not help."""
    with served("uvicorn-asyncio-auto-auto", "--log-level", "trace") as (port, process):
        # Its log would fill the pipe.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        with connect(port, "/refused", subprotocols=["state.v1"]) as refused:
            words = refused.recv(TIMEOUT)
        process.kill()
    assert "--log-level trace" in words and "last" not in words, words


def test_a_transport_of_uvloop_is_handed_over():
    """The pseudo-socket is duplicated and the transport closed; the client notices neither."""
    uvloop = needs("uvloop")

    async def conversation():
        loop = asyncio.get_running_loop()
        assert type(loop).__module__.startswith("uvloop")
        made, lost = loop.create_future(), loop.create_future()
        with freshwire.Engine() as engine:
            sender = freshwire.Sender(engine)

            class Http(asyncio.Protocol):
                def connection_made(self, transport):
                    self.transport = transport

                def data_received(self, data):
                    assert not isinstance(self.transport, asyncio.BaseTransport)
                    headers = [line.split(b": ", 1) for line in data.split(b"\r\n")[1:] if line]
                    made.set_result(freshwire.WebSocket.accept(sender, self.transport, headers, choice.fifo()))

                def connection_lost(self, error):
                    lost.set_result(error)

            server = await loop.create_server(Http, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(
                b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            async with await made as websocket:
                assert await lost is None
                head = await reader.readuntil(b"\r\n\r\n")
                assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
                websocket.sink.push(b"state")
                assert await reader.readexactly(7) == b"\x81\x05state"
                writer.write(b"\x81\x83\0\0\0\0two")
                assert await websocket.__anext__() == "two"
            assert await reader.read() == b"\x88\x02\x03\xe8"
            writer.close()
            server.close()

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(conversation(), TIMEOUT))
    finally:
        loop.close()


def test_a_request_that_is_no_upgrade_is_refused(engine, pair):
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    good = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}

    async def refused(words, **changes):
        headers = {**good, **{name.replace("_", "-"): value for name, value in changes.items()}}
        with pytest.raises(ValueError, match=words):
            freshwire.WebSocket.accept(freshwire.Sender(engine), pair[0], headers, choice.fifo())

    async def all_of_them():
        await refused("no header Upgrade", Upgrade="h2c")
        await refused("no header Connection", Connection="close")
        await refused("Sec-WebSocket-Version: 8", Sec_WebSocket_Version="8")
        for wrong in ("", "short", "dGhlIHNhbXBsZSBub25j", key + "!"):
            await refused("Sec-WebSocket-Key", Sec_WebSocket_Key=wrong)
        with pytest.raises(ValueError, match="the client offers none"):
            freshwire.WebSocket.accept(freshwire.Sender(engine), pair[0], good, choice.fifo(), subprotocol="a\r\nb")

    asyncio.run(all_of_them())
    pair[0].close()
    assert pair[1].recv(100) == b""
