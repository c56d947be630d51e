"""Camera frames with deadlines: frames that would come too late are not sent.

Encodes a moving picture (or a file or camera that PyAV opens, with `--source`) to H.264, and sends each frame with its place in
the group of pictures, so that the policy knows which frames need which. The receiver counts. `--rate` limits how fast it reads.
"""

import argparse
import fractions
import socket
import threading
import time

import av

import freshwire
from freshwire import choice

GROUP = 30
"""Frames from keyframe to keyframe."""


def pictures(source, frames, rate):
    """Yield pictures of a file or camera, or of a moving bar."""
    if source:
        with av.open(source) as container:
            for number, frame in enumerate(container.decode(video=0)):
                if number == frames:
                    return
                yield frame.reformat(width=640, height=360, format="yuv420p")
        return
    for number in range(frames):
        frame = av.VideoFrame(640, 360, "yuv420p")
        for plane, value in zip(frame.planes, (16, 128, 128)):
            plane.update(bytes([value]) * plane.buffer_size)
        luma = bytearray([16]) * frame.planes[0].buffer_size
        at = number * 8 % 600
        for row in range(0, 360):
            start = row * frame.planes[0].line_size + at
            luma[start : start + 40] = b"\xeb" * 40
        frame.planes[0].update(bytes(luma))
        yield frame


def encoded(source, frames, rate):
    """Yield H.264 access units, with whether each is a keyframe."""
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 640, 360, "yuv420p"
    encoder.time_base = fractions.Fraction(1, rate)
    encoder.gop_size = GROUP
    encoder.options = {"preset": "ultrafast", "tune": "zerolatency", "x264-params": "scenecut=0"}
    for number, frame in enumerate(pictures(source, frames, rate)):
        frame.pts, frame.time_base = number, encoder.time_base
        for packet in encoder.encode(frame):
            yield bytes(packet), packet.is_keyframe
    for packet in encoder.encode(None):
        yield bytes(packet), packet.is_keyframe


def main():
    """Send for a while."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", help="a file, or a device such as /dev/video0")
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--fps", type=int, default=30)
    parser.add_argument("--deadline", type=float, default=0.3, help="seconds for which a frame has value")
    options = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as server, freshwire.Engine() as engine:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        received = []
        reader = threading.Thread(target=lambda: received.extend(freshwire.Receiver(far)))
        reader.start()
        ring = freshwire.Ring(slots=256, block_bytes=16384, blocks=512)
        sink = freshwire.Sender(engine, ring).add_sink(near, choice.frames(), framing="chunked")
        group, number, start = 0, 0, time.monotonic()
        for unit, is_key in encoded(options.source, options.frames, options.fps):
            group += is_key
            # Each frame but a keyframe needs the one before it.
            refs = (0, 0) if is_key else (1, 0)
            try:
                sink.push(unit, seq=number, layer=0 if is_key else 1, group=group, refs=refs, expires_in=options.deadline)
            except freshwire.Full:
                print(f"frame {number}: no room")
            number += 1
            time.sleep(max(0.0, start + number / options.fps - time.monotonic()))
        ended = sink.close()
        near.close()
        reader.join()
        print(f"encoded {number}, received {len(received)}, dropped {sum(sink.stats().drops.values())}, {ended}")


if __name__ == "__main__":
    main()
