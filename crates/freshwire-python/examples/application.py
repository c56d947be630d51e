"""A FastAPI application whose state many programs follow: posted over HTTP, read over TCP, fresh for each.

    uvicorn application:app
    curl -X PUT -d '{"temperature": 21}' 127.0.0.1:8000/state/7     # sets object 7
    nc 127.0.0.1 5001                                               # follows all, one JSON line for each change
    curl 127.0.0.1:8000/followers                                   # what each follower got
"""

import asyncio
import contextlib
import json
import os

import fastapi

import freshwire
from freshwire import choice

KEYS = 100
PORT = int(os.environ.get("FOLLOW_PORT", "5001"))

state = {}
followers = []


@contextlib.asynccontextmanager
async def lifespan(app):
    """Serve followers as long as the application runs."""
    with freshwire.Engine() as engine:
        sender = freshwire.Sender(engine, freshwire.Ring.for_clients(clients=100, keys=KEYS, bytes=512))

        async def follow(reader, writer):
            sink = sender.add_sink(writer.get_extra_info("socket"), choice.latest(), keys=KEYS)
            followers.append(sink)
            for key, line in state.items():
                sink.replace(line, key=key)
            await reader.read()
            followers.remove(sink)
            sink.close(freshwire.Close.Abort)
            writer.close()

        server = await asyncio.start_server(follow, "127.0.0.1", PORT)
        yield
        server.close()


app = fastapi.FastAPI(lifespan=lifespan)


@app.put("/state/{key}")
async def put(key: int, value: dict):
    """Set an object, and tell every follower."""
    if not 1 <= key <= KEYS:
        raise fastapi.HTTPException(422, f"key {key}: 1 to {KEYS} is wanted")
    state[key] = json.dumps({"key": key, "value": value}).encode() + b"\n"
    for sink in list(followers):
        with contextlib.suppress(freshwire.Closed):
            sink.replace(state[key], key=key)
    return {"followers": len(followers)}


@app.get("/followers")
async def following():
    """Tell what each follower got."""
    stats = [sink.stats() for sink in followers]
    return [{"sent": one.finished, "superseded": one.drops.get("superseded", 0), "rtt": one.rtt} for one in stats]
