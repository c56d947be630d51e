"""Robot state in any browser: an HTTP server of asyncio hands its sockets over at the upgrade.

    python browser.py --port 8000        # then open http://127.0.0.1:8000/ in several tabs

Fifty times a second twelve joints move. Each tab gets the newest position of each joint at its own pace. A real application has
an HTTP library of its own: what it needs from this file is `hand_over`.
"""

import argparse
import asyncio
import json
import math
import time

import freshwire
from freshwire import choice

JOINTS = 12
PAGE = b"""<!doctype html><meta charset=utf-8><title>Robot</title><pre id=out>connecting</pre><script>
const joints = {};
const socket = new WebSocket(`ws://${location.host}/state`);
socket.onmessage = ({ data }) => {
  const { joint, angle } = JSON.parse(data);
  joints[joint] = angle;
  out.textContent = JSON.stringify(joints, null, 1);
};
socket.onclose = () => (out.textContent += "\\nclosed");
</script>"""


class Http(asyncio.Protocol):
    """As much of HTTP as the example needs."""

    def __init__(self, robot):
        self.robot = robot
        self.received = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        head, end, leftover = self.received.partition(b"\r\n\r\n")
        if not end:
            return
        lines = head.decode("latin-1").split("\r\n")
        headers = [(name, value) for name, _, value in (line.partition(":") for line in lines[1:])]
        if any(name.lower() == "upgrade" for name, _ in headers):
            try:
                self.robot.hand_over(self.transport, headers, leftover)
            except ValueError as error:  # no WebSocket, or a wrong version
                self.transport.write(f"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n{error}\n".encode())
                self.transport.close()
        else:
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\nConnection: close\r\n\r\n"
            self.transport.write(head.encode() + PAGE)
            self.transport.close()


class Robot:
    """Joints that move, and those who watch them."""

    def __init__(self, sender):
        self.sender = sender
        self.viewers = {}
        self.joints = {}

    def hand_over(self, transport, headers, leftover):
        """Serve a browser: the connection is Freshwire's from here on."""
        viewer = freshwire.WebSocket.accept(
            self.sender, transport, headers, choice.latest(), leftover=leftover, keys=JOINTS
        )
        for joint, record in self.joints.items():
            viewer.sink.push(record, key=joint + 1)
        self.viewers[viewer] = asyncio.ensure_future(self.listen(viewer))

    async def listen(self, viewer):
        """Wait until the browser leaves."""
        async for message in viewer:
            print("a browser says", message)
        print("a browser has left with code", viewer.code, flush=True)
        del self.viewers[viewer]

    def move(self):
        """Tell each browser of each joint."""
        now = time.monotonic()
        for joint in range(JOINTS):
            angle = round(90 * math.sin(now + joint), 2)
            record = self.joints[joint] = json.dumps({"joint": joint, "angle": angle}).encode()
            self.sender.replace_to_all([viewer.sink for viewer in self.viewers], record, key=joint + 1)


async def main(port):
    """Serve until the program is stopped."""
    with freshwire.Engine() as engine:
        robot = Robot(freshwire.Sender(engine, freshwire.Ring.for_clients(clients=300, keys=JOINTS, bytes=64)))
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Http(robot), "127.0.0.1", port)
        print("open http://127.0.0.1:%d/" % server.sockets[0].getsockname()[1], flush=True)
        while True:
            robot.move()
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    try:
        asyncio.run(main(parser.parse_args().port))
    except KeyboardInterrupt:
        pass
