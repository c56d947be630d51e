"""CPU and delay of `freshwiresink`, with `rtspclientsink` and a separate server beside it.

    /usr/bin/python3 bench.py --freshwire target/release/freshwire --plugins target/release [--rounds 5] [--seconds 10]

CPU: a file of H.264 at its pace into each, with viewers that copy the stream; seconds of processor time of the pipeline, and of the
server where that is a process of its own. Delay: pictures with a number inside, pushed into each pipeline by this process and
fetched by it as `.fw`; the time from the push to the arrival. The two alternate, and medians over the rounds are printed.
Needs Debian's python3-gi and gir1.2-gst-plugins-base-1.0, and ffmpeg with libx264.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile
import threading
import time

RTSP, HTTP = 18554, 18080
URL = f"rtsp://127.0.0.1:{RTSP}/live"
SERVED = f"listen-rtsp=127.0.0.1:{RTSP} listen-http=127.0.0.1:{HTTP}"
SINKS = {"freshwiresink": f"freshwiresink {SERVED}", "rtspclientsink": f"rtspclientsink protocols=tcp location={URL}"}
FPS = 30
MARK = re.compile(rb"FRESHWIRE-BENCH-(\d{8})")
DELIMITER = b"\0\0\0\1\x09"
START_LIMIT = 20


def clip(folder, seconds, form):
    """Encode a test picture without B pictures, 1280x720, 4 Mbit/s, a keyframe a second."""
    path = folder / f"clip.{form}"
    command = [
        *"ffmpeg -v error -y -f lavfi -i".split(), f"testsrc2=size=1280x720:rate={FPS}:duration={seconds}",
        *"-c:v libx264 -preset veryfast -tune zerolatency -b:v 4M".split(),
        "-x264-params", f"keyint={FPS}:aud=1", str(path),
    ]
    subprocess.run(command, check=True)
    return path


def wait_for_port(port):
    """Wait until somebody listens."""
    give_up = time.monotonic() + START_LIMIT
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if time.monotonic() > give_up:
            raise TimeoutError(f"nobody listens on port {port}")
        time.sleep(0.05)


@contextlib.contextmanager
def process(command, **options):
    """Run a program, and end it."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        yield running
    finally:
        running.terminate()
        running.wait()


@contextlib.contextmanager
def server(arguments, sink):
    """Run the server where the sink has none."""
    if sink == "freshwiresink":
        yield None
        return
    listen = f"--listen-rtsp 127.0.0.1:{RTSP} --listen-http 127.0.0.1:{HTTP} --listen-internal none"
    with process([arguments.freshwire, "serve", *listen.split(), "live=publish"]) as running:
        wait_for_port(RTSP)
        yield running


def processor_time(running):
    """Return the seconds of processor time that a process has used."""
    fields = pathlib.Path(f"/proc/{running.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_cpu(arguments, sink, video, viewers):
    """Return the seconds of processor time of the pipeline and of the server, per second."""
    environment = {**os.environ, "GST_PLUGIN_PATH": arguments.plugins}
    source = f"filesrc location={video} ! matroskademux ! h264parse ! identity sync=true"
    with server(arguments, sink) as serving:
        launch = ["gst-launch-1.0", "-q", *f"{source} ! {SINKS[sink]}".split()]
        with process(launch, env=environment) as pipeline, contextlib.ExitStack() as stack:
            wait_for_port(RTSP)
            time.sleep(1)
            for _ in range(viewers):
                view = f"ffmpeg -v quiet -rtsp_transport tcp -i {URL} -c copy -f null -"
                stack.enter_context(process(view.split(), stdin=subprocess.DEVNULL))
            time.sleep(3)
            measured = [running for running in (pipeline, serving) if running]
            before = [processor_time(running) for running in measured]
            time.sleep(arguments.seconds)
            if pipeline.poll() is not None:
                raise RuntimeError(f"the pipeline into {sink} has ended")
            used = [processor_time(running) - start for running, start in zip(measured, before, strict=True)]
    return [seconds / arguments.seconds for seconds in used]


def numbered(path):
    """Split the stream into its pictures, with room for a number in each."""
    pictures = path.read_bytes().split(DELIMITER)[1:]
    # A delimiter has one byte of payload.
    return [(DELIMITER + picture[:1], picture[1:]) for picture in pictures]


def supplement(number):
    """Return user data with a number, as a NAL unit (H.264, D.1.6)."""
    text = b"0123456789abcdef" + b"FRESHWIRE-BENCH-%08d" % number
    return b"\0\0\0\1\x06\x05" + bytes([len(text)]) + text + b"\x80"


def fetch(arrivals, until):
    """Fetch the stream and note when each number arrives."""
    with socket.create_connection(("127.0.0.1", HTTP), 1) as stream:
        stream.sendall(b"GET /live.fw HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        tail = b""
        while time.monotonic() < until:
            data = b""
            with contextlib.suppress(TimeoutError):
                data = stream.recv(1 << 16)
            now = time.monotonic()
            tail += data
            for found in MARK.finditer(tail):
                arrivals.setdefault(int(found[1]), now)
            tail = tail[-64:]


def measure_delay(arguments, gst, sink, pictures):
    """Return the delays of all pictures in milliseconds."""
    caps = f"video/x-h264,stream-format=byte-stream,alignment=au,width=1280,height=720,framerate={FPS}/1"
    source = f"appsrc name=source is-live=true do-timestamp=true format=time caps={caps}"
    with server(arguments, sink):
        pipeline = gst.parse_launch(f"{source} ! h264parse ! {SINKS[sink]}")
        pipeline.set_state(gst.State.PLAYING)
        appsrc = pipeline.get_by_name("source")
        pushed, arrivals = {}, {}
        begin = time.monotonic()
        until = begin + arguments.seconds
        reader = None
        for number in range(arguments.seconds * FPS):
            delimiter, picture = pictures[number % len(pictures)]
            buffer = gst.Buffer.new_wrapped(delimiter + supplement(number) + picture)
            time.sleep(max(0, begin + number / FPS - time.monotonic()))
            pushed[number] = time.monotonic()
            appsrc.emit("push-buffer", buffer)
            if number == 2 * FPS:
                reader = threading.Thread(target=fetch, args=(arrivals, until))
                reader.start()
        reader.join()
        pipeline.set_state(gst.State.NULL)
    # The first second of a viewer is its catching up.
    first = min(arrivals) + FPS
    return [1000 * (at - pushed[number]) for number, at in arrivals.items() if number >= first]


def quantile(values, share):
    """Return the value below which this share of the values is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    """Measure and print one JSON line for each sink."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--freshwire", required=True, help="the command")
    parser.add_argument("--plugins", required=True, help="the folder of libgstfreshwire.so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--viewers", type=int, nargs="+", default=[1, 8])
    arguments = parser.parse_args()
    os.environ["GST_PLUGIN_PATH"] = arguments.plugins
    import gi

    gi.require_version("Gst", "1.0")
    from gi.repository import Gst

    Gst.init(None)
    cpu = {(sink, viewers): [] for viewers in arguments.viewers for sink in SINKS}
    delays = {sink: [] for sink in SINKS}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        video = clip(folder, arguments.seconds + 10, "mkv")
        pictures = numbered(clip(folder, 5, "h264"))
        for _ in range(arguments.rounds):
            for sink, viewers in cpu:
                cpu[sink, viewers].append(measure_cpu(arguments, sink, video, viewers))
            for sink in SINKS:
                delays[sink].append(measure_delay(arguments, Gst, sink, pictures))
    for (sink, viewers), rounds in cpu.items():
        names = ["pipeline", "server"]
        parts = {name: round(statistics.median(values), 4) for name, values in zip(names, zip(*rounds))}
        total = round(statistics.median(sum(used) for used in rounds), 4)
        print(json.dumps({"sink": sink, "viewers": viewers, "cpu": total, **parts}))
    for sink, rounds in delays.items():
        p50 = [quantile(values, 0.5) for values in rounds]
        p95 = [quantile(values, 0.95) for values in rounds]
        medians = {"p50_ms": round(statistics.median(p50), 2), "p95_ms": round(statistics.median(p95), 2)}
        print(json.dumps({"sink": sink, **medians, "pictures": sum(map(len, rounds))}))
    print(json.dumps({"load": os.getloadavg(), "rounds": arguments.rounds, "seconds": arguments.seconds}))


if __name__ == "__main__":
    main()
