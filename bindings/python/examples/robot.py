"""Robot state to many viewers: each gets the newest value of every joint, at its own pace.

Run it, and look with as many `nc 127.0.0.1 5000` as you like. A slow viewer gets fewer values, but fresh ones, and does not
slow down the others.
"""

import argparse
import asyncio
import json
import math
import time

import freshwire
from freshwire import choice

JOINTS = 12


async def serve(port, seconds, rate):
    """Serve viewers, and move the joints."""
    with freshwire.Engine() as engine:
        sender = freshwire.Sender(engine, freshwire.Ring.for_clients(clients=64, keys=JOINTS, bytes=128))
        viewers = []

        async def welcome(reader, writer):
            # The sink has a duplicate of the socket; only the sink writes to it.
            viewer = sender.add_sink(writer.get_extra_info("socket"), choice.latest(), keys=JOINTS)
            viewers.append(viewer)
            await reader.read()
            viewers.remove(viewer)
            viewer.close(freshwire.Close.Abort)
            writer.close()

        server = await asyncio.start_server(welcome, "127.0.0.1", port)
        print("viewers connect to", server.sockets[0].getsockname()[1], flush=True)
        end = time.monotonic() + seconds
        tick = 0
        while time.monotonic() < end:
            for joint in range(1, JOINTS + 1):
                angle = round(math.sin(tick / rate + joint), 4)
                line = json.dumps({"joint": joint, "tick": tick, "angle": angle}).encode() + b"\n"
                for viewer in list(viewers):
                    try:
                        viewer.replace(line, key=joint)
                    except freshwire.Closed:
                        pass  # It leaves; `welcome` takes it off the list.
            tick += 1
            await asyncio.sleep(1 / rate)
        for viewer in viewers:
            await asyncio.get_running_loop().run_in_executor(None, viewer.close)
        server.close()


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--rate", type=float, default=50.0, help="ticks a second")
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.seconds, options.rate))


if __name__ == "__main__":
    main()
