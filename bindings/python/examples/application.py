"""A FastAPI application whose state many browsers follow: set over HTTP, followed over WebSocket on the same port, fresh for each.

    uvicorn application:app
    python -m websockets ws://127.0.0.1:8000/state                  # follows all: one JSON message for each change
    curl -X PUT -d '{"temperature": 21}' 127.0.0.1:8000/state/7     # sets object 7
    curl 127.0.0.1:8000/followers                                   # what each follower got
"""

import contextlib
import json

import fastapi

import freshwire
from freshwire import choice

KEYS = 100

state = {}
followers = set()


@contextlib.asynccontextmanager
async def lifespan(app):
    """Have an engine for as long as the application runs."""
    with freshwire.Engine() as engine:
        app.state.sender = freshwire.Sender(engine, freshwire.Ring.for_clients(clients=100, keys=KEYS, bytes=512))
        yield


app = fastapi.FastAPI(lifespan=lifespan)
app.add_middleware(freshwire.asgi.Middleware)


@app.websocket("/state")
async def follow(websocket: fastapi.WebSocket):
    """Send a follower what is there, and then what changes."""
    sender = websocket.app.state.sender
    async with await freshwire.asgi.accept(websocket, sender, choice.latest(), keys=KEYS) as follower:
        for key, record in state.items():
            follower.sink.replace(record, key=key)
        followers.add(follower)
        try:
            async for _ in follower:
                pass
        finally:
            followers.discard(follower)


@app.put("/state/{key}")
async def put(key: int, value: dict):
    """Set an object, and tell every follower."""
    if not 1 <= key <= KEYS:
        raise fastapi.HTTPException(422, f"key {key}: 1 to {KEYS} is wanted")
    state[key] = json.dumps({"key": key, "value": value}).encode()
    _, missed = app.state.sender.replace_to_all([one.sink for one in followers], state[key], key=key)
    return {"followers": len(followers) - len(missed)}


@app.get("/followers")
async def following():
    """Tell what each follower got."""
    stats = [one.sink.stats() for one in followers]
    return [{"sent": one.finished, "overwritten": one.overwritten, "rtt": one.rtt} for one in stats]
