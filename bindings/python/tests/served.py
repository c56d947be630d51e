"""Applications that hand their WebSockets over, for test_servers.py: FastAPI as `app`, and aiohttp when it is run."""

import contextlib
import sys

import freshwire
from freshwire import choice

KEYS = 4
VALUES = 3000

engine = freshwire.Engine()
sender = freshwire.Sender(engine, freshwire.Ring.for_clients(clients=4, keys=KEYS, bytes=1024))
few = freshwire.Sender(engine)
floods = []


async def converse(viewer):
    """Say hello, and answer until the client leaves or wants to."""
    viewer.sink.push(b'{"hello": 1}', key=1)
    async for message in viewer:
        if message == "close":
            break
        viewer.sink.push(b"heard " + message.encode(), key=2)


async def flood(viewer):
    """Set a value many times, for a client that does not read yet."""
    for number in range(VALUES):
        viewer.sink.replace(b"value %d " % number + b"x" * 1000, key=3)
    floods.append(viewer)
    async for _ in viewer:
        pass


def flooded(viewer):
    viewer.sink.push(b"all %d values were set" % VALUES, key=4)


def make_app():
    """Make the application of FastAPI."""
    import asyncio

    import fastapi

    app = fastapi.FastAPI()
    app.add_middleware(freshwire.asgi.Middleware)
    # Held for as long as the process runs: its only ring is in use.
    held = []

    @app.websocket("/state")
    async def state(websocket: fastapi.WebSocket):
        viewer = await freshwire.asgi.accept(websocket, sender, choice.latest(), subprotocol="state.v1", keys=KEYS)
        async with viewer:
            await converse(viewer)

    @app.websocket("/flood")
    async def flood_endpoint(websocket: fastapi.WebSocket):
        async with await freshwire.asgi.accept(websocket, sender, choice.latest(), subprotocol="state.v1") as viewer:
            await flood(viewer)

    @app.websocket("/flooded")
    async def flooded_endpoint(websocket: fastapi.WebSocket):
        while not floods:
            await asyncio.sleep(0.01)
        async with await freshwire.asgi.accept(websocket, sender, choice.latest(), subprotocol="state.v1") as viewer:
            flooded(viewer)
            async for _ in viewer:
                pass

    @app.websocket("/echo")
    async def echo(websocket: fastapi.WebSocket):
        await websocket.accept()
        with contextlib.suppress(fastapi.WebSocketDisconnect):
            while True:
                await websocket.send_text(await websocket.receive_text())

    async def told(websocket, call):
        """Tell the client what a refused hand-over raises: the framework can still answer."""
        try:
            held.append(await call())
        except Exception as error:
            await websocket.accept(subprotocol="state.v1")
            await websocket.send_text(f"{type(error).__name__}: {error}")
            await websocket.close()

    @app.websocket("/no-ring")
    async def no_ring(websocket: fastapi.WebSocket):
        import socket

        near, far = socket.socketpair()
        with near, far, socket.create_server(("127.0.0.1", 0)) as server:
            held.append(socket.create_connection(server.getsockname()))
            held.append(server.accept()[0])
            held.append(few.add_sink(held[-1], choice.latest()))
        await told(websocket, lambda: freshwire.asgi.accept(websocket, few, choice.latest()))

    @app.websocket("/no-protocol")
    async def no_protocol(websocket: fastapi.WebSocket):
        await told(websocket, lambda: freshwire.asgi.accept(websocket, sender, choice.latest(), subprotocol="other"))

    @app.websocket("/bare")
    async def bare(websocket: fastapi.WebSocket):
        scope = {**websocket.scope, "extensions": {}}
        await told(websocket, lambda: freshwire.asgi.accept(scope, sender, choice.latest()))

    @app.websocket("/refused")
    async def refused(websocket: fastapi.WebSocket):
        await told(websocket, lambda: freshwire.asgi.accept(websocket, sender, choice.latest()))

    return app


def serve_aiohttp(port):
    """Serve the same with aiohttp."""
    import asyncio

    from aiohttp import web

    def endpoint(use):
        async def handle(request):
            async with freshwire.WebSocket.accept(
                sender, request.transport, request.headers, choice.latest(), subprotocol="state.v1"
            ) as viewer:
                await use(viewer)
            # Nobody gets it: aiohttp wants a response.
            return web.Response()

        return handle

    async def tell_flooded(viewer):
        while not floods:
            await asyncio.sleep(0.01)
        flooded(viewer)
        async for _ in viewer:
            pass

    app = web.Application()
    app.router.add_get("/state", endpoint(converse))
    app.router.add_get("/flood", endpoint(flood))
    app.router.add_get("/flooded", endpoint(tell_flooded))
    web.run_app(app, host="127.0.0.1", port=port)


if __name__ == "__main__":
    serve_aiohttp(int(sys.argv[1]))
else:
    app = make_app()
