"""Fresh WebSockets in ASGI applications, such as those of FastAPI and Starlette.

A server of ASGI buffers what an application sends, so that a slow client receives old messages. With this module the connection
is taken from the server at the upgrade, on the server's own port:

    app = fastapi.FastAPI()
    app.add_middleware(freshwire.asgi.Middleware)       # after all others: it has to be the outermost

    @app.websocket("/state")
    async def state(websocket: fastapi.WebSocket):
        async with await freshwire.asgi.accept(websocket, sender, choice.latest(), keys=12) as viewer:
            viewers.add(viewer)
            async for message in viewer:
                ...
            viewers.discard(viewer)

The server is Uvicorn with asyncio or uvloop, but not with the deprecated `--ws websockets`, or Hypercorn with asyncio; over HTTP/1.1
and TCP, without TLS.
"""

from ._websocket import WebSocket

_EXTENSION = "freshwire"

# From the server's `send` to the object with the transport: Hypercorn has four steps.
_MOST_STEPS = 8

# Around the whole application with --log-level trace, so that no middleware can be outside.
_LOGGER = "uvicorn.middleware.message_logger"

# "Service restart", as Uvicorn's own WebSockets say when it stops.
_RESTART = 1012


class _Server:
    """What the server gave the application."""

    def __init__(self, receive, send):
        self.receive = receive
        self._send = send
        # The object whose method `send` is: the server's protocol.
        self.protocol = getattr(send, "__self__", None)

    def is_logged(self):
        """Whether Uvicorn logs each message, for which it has its own function in place of `send`."""
        return getattr(self._send, "__module__", None) == _LOGGER

    def transport(self):
        """Find the transport behind the server's `send`; None if there is none."""
        send = self._send
        for _ in range(_MOST_STEPS):
            owner = getattr(send, "__self__", None)
            if owner is None:
                return None
            for holder in (owner, getattr(owner, "writer", None)):
                transport = getattr(holder, "transport", None)
                if hasattr(transport, "get_extra_info"):
                    return transport
            send = getattr(owner, "send", None)
        return None


class Middleware:
    """Keeps the way to the server's connection for `accept`. It has to be around all other middleware: add it last."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        """Serve a connection."""
        if scope["type"] == "websocket":
            extensions = {**(scope.get("extensions") or {}), _EXTENSION: _Server(receive, send)}
            scope = {**scope, "extensions": extensions}
        await self.app(scope, receive, send)


async def accept(websocket, sender, policy, *, subprotocol=None, binary=False, max_message=65536, keepalive=15.0, keepalive_timeout=30.0, **options):
    """Accept a client's WebSocket in place of the framework, and return a `freshwire.WebSocket`.

    `websocket` is that of FastAPI or Starlette, or an ASGI scope; do not call its own `accept`. The other arguments are those of
    `freshwire.WebSocket.accept`. Close what is returned before the endpoint returns, best with `async with`.

    Raises `RuntimeError` without `Middleware`, and under another server; `ValueError` for TLS, HTTP/2 and a Unix socket. Nothing was
    sent then, as after `NoFreeRing`: the framework can accept the client, or refuse it.
    """
    scope = getattr(websocket, "scope", websocket)
    server = (scope.get("extensions") or {}).get(_EXTENSION)
    if server is None:
        raise RuntimeError("the application has no freshwire.asgi.Middleware: app.add_middleware(freshwire.asgi.Middleware)")
    if scope.get("http_version", "1.1") != "1.1":
        raise ValueError(f"HTTP/{scope['http_version']}: only a WebSocket over HTTP/1.1 has a connection to hand over")
    transport = server.transport()
    if hasattr(server.protocol, "handshake_started_event"):
        raise RuntimeError("Uvicorn's deprecated --ws websockets cannot hand a connection over: use --ws auto")
    if transport is None and server.is_logged():
        raise RuntimeError("Uvicorn's --log-level trace hides the connection from the application: use --log-level debug")
    if transport is None:
        raise RuntimeError(
            "the server's connection was not found: add freshwire.asgi.Middleware last, so that it is around all others; "
            "Uvicorn, and Hypercorn with asyncio are supported"
        )
    options.update(subprotocol=subprotocol, binary=binary, max_message=max_message)
    options.update(keepalive=keepalive, keepalive_timeout=keepalive_timeout)
    # Some servers take this header out.
    offered = ", ".join(scope.get("subprotocols") or []).encode("latin-1")
    headers = [*scope["headers"], (b"sec-websocket-protocol", offered)]
    taken = WebSocket.accept(sender, transport, headers, policy, **options)
    _close_with(server.protocol, taken)
    # The server sees a client that has left. Until then it may take the endpoint's return for a missing answer.
    try:
        while (await server.receive())["type"] != "websocket.disconnect":
            pass
    except BaseException:
        taken.close(1011)
        raise
    return taken


def _close_with(protocol, websocket):
    """End the WebSocket when Uvicorn stops, which calls `shutdown` of each connection and waits for its endpoint."""
    connections = getattr(protocol, "connections", None)
    if not isinstance(connections, set):
        return
    stand_in = _StandIn(websocket)
    connections.add(stand_in)
    websocket._at_end.append(lambda: connections.discard(stand_in))


class _StandIn:
    def __init__(self, websocket):
        self._websocket = websocket

    def shutdown(self):
        self._websocket.close(_RESTART)
