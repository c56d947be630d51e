"""The far end of the link: both servers, and one encoder that publishes the same pictures to both.

`python3 -m freshwire_lab.livekit.far FOLDER FRESHWIRE LIVEKIT PUBLISHER [send-side]` runs until it is ended, or one of
them ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from .plan import (
    FAR,
    FPS,
    GROUP,
    HTTP,
    LIVEKIT,
    LIVEKIT_TCP,
    LIVEKIT_UDP,
    RENDITIONS,
    RTSP,
    WEBRTC,
    Folder,
    token,
)

CLOCK_CELLS = 47
CLOCK_BITS = 44
START_S = 20.0
SETTINGS = (
    "bframes=0:scenecut=0:open-gop=0:keyint={group}:min-keyint={group}:ref=2:weightp=0:mbtree=0:rc-lookahead=0:"
    "sync-lookahead=0:sliced-threads=1:repeat-headers=1:vbv-maxrate={most}:vbv-bufsize={buffer}:ipratio=1.1"
)


def clock_cells(millis: int) -> bytes:
    """Return the cells of the strip with the time: white, black, the bits (the highest first) and their parity."""
    bits = [millis >> (CLOCK_BITS - 1 - at) & 1 for at in range(CLOCK_BITS)]
    return bytes(255 * cell for cell in (1, 0, *bits, sum(bits) % 2))


def encoder() -> list[str]:
    """Return the encoder's command line: a moving scene above the strip, coded once for each rendition.

    The strip comes through standard input, a picture of one line for each picture of the scene.
    """
    largest = RENDITIONS[-1]
    strip = largest.height // 16 // 2 * 2 + 2
    scene = f"testsrc2=size={largest.width}x{largest.height}:rate={FPS}"
    names = "".join(f"[raw{at}]" for at in range(len(RENDITIONS)))
    graph = f"{scene},noise=alls=6:allf=t,format=yuv420p[scene];[0:v]scale={largest.width}:{strip}:flags=neighbor,"
    graph += f"format=yuv420p[strip];[scene][strip]overlay=0:{largest.height - strip}:shortest=1,"
    graph += f"split={len(RENDITIONS)}{names}"
    for at, one in enumerate(RENDITIONS):
        graph += f";[raw{at}]scale={one.width}:{one.height}[pictures{at}]"
    command = ["ffmpeg", "-hide_banner", "-loglevel", "warning", "-nostats", "-fflags", "nobuffer"]
    command += ["-probesize", "32", "-analyzeduration", "0", "-f", "rawvideo", "-pix_fmt", "gray"]
    command += ["-s", f"{CLOCK_CELLS}x1", "-r", str(FPS), "-i", "pipe:0", "-filter_complex", graph]
    for at, one in enumerate(RENDITIONS):
        settings = SETTINGS.format(group=GROUP, most=one.kbit * 11 // 10, buffer=one.kbit * 3 // 10)
        command += ["-map", f"[pictures{at}]", "-c:v", "libx264", "-preset", "veryfast", "-profile:v", "baseline"]
        command += ["-b:v", f"{one.kbit}k", "-x264-params", settings, "-f", "tee"]
        rtsp = f"[f=rtsp:rtsp_transport=tcp]rtsp://127.0.0.1:{RTSP}/{one.address}"
        command.append(f"{rtsp}|[f=rtp]rtp://127.0.0.1:{one.port}?pkt_size=1200")
    return command


def servers(freshwire: str, livekit: str, *, send_side: bool) -> dict[str, list[str]]:
    """Return the servers' command lines."""
    ours = [freshwire, "serve", "clock=publish", "--open", "--log-level", "warn", "--listen-rtmp", "none"]
    ours += ["--listen-rtsp", f"127.0.0.1:{RTSP}", "--listen-http", f"{FAR}:{HTTP}"]
    ours += ["--listen-webrtc", f"{FAR}:{WEBRTC}", "--listen-internal", "none"]
    body = f"port: {LIVEKIT}\nlog_level: info\nrtc:\n  tcp_port: {LIVEKIT_TCP}\n  udp_port: {LIVEKIT_UDP}\n"
    body += "  congestion_control:\n    use_send_side_bwe: true\n" if send_side else ""
    theirs = [livekit, "--dev", "--bind", "0.0.0.0", "--node-ip", FAR, "--config-body", body]
    return {"freshwire": ours, "livekit": theirs}


class Programs:
    """Programs that have to run until the end, and what they say."""

    def __init__(self, folder: Folder) -> None:
        """Begin with none."""
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str], *, fed: bool = False) -> IO[bytes] | None:
        """Start one. Return its standard input if it is fed."""
        with self.log(name).open("wb") as log:
            stdin = subprocess.PIPE if fed else subprocess.DEVNULL
            process = subprocess.Popen(command, stdin=stdin, stdout=log, stderr=log)
        self._running[name] = process
        return process.stdin

    def log(self, name: str) -> Path:
        """Return the file with what a program says."""
        return self._folder.path / f"{name}.log"

    def check(self) -> None:
        """End if one has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                said = self.log(name).read_text(encoding="utf-8", errors="replace")[-2000:]
                raise SystemExit(f"{name} ended with {process.returncode}:\n{said}")

    def wait_for(self, name: str, text: str) -> None:
        """Wait until a program says this."""
        end = time.monotonic() + START_S
        while text not in (said := self.log(name).read_text(encoding="utf-8", errors="replace")):
            self.check()
            if time.monotonic() > end:
                raise SystemExit(f"{name} did not say {text!r} in {START_S:g} s, but:\n{said[-2000:]}")
            time.sleep(0.1)

    def end(self) -> None:
        """End all."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()


def feed(strip: IO[bytes], programs: Programs, folder: Folder) -> None:
    """Write a line of the clock at each picture's time, without end."""
    begun = time.monotonic()
    number = 0
    while True:
        delay = begun + number / FPS - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        elif delay < -1:
            raise SystemExit("the encoder is more than a second behind: the machine is too busy")
        try:
            strip.write(clock_cells(time.time_ns() // 1_000_000))
            strip.flush()
        except BrokenPipeError:
            time.sleep(0.5)
        programs.check()
        number += 1
        if number == 2 * FPS:
            programs.wait_for("publisher", "published")
            folder.ready.touch()


def main() -> None:
    """Run from the command line."""
    path, freshwire, livekit, publisher, *more = sys.argv[1:]
    folder = Folder(Path(path))
    programs = Programs(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for name, command in servers(freshwire, livekit, send_side=more == ["send-side"]).items():
            programs.start(name, command)
        programs.wait_for("livekit", "starting LiveKit server")
        places = [f"{one.port}:{one.width}x{one.height}@{one.kbit}" for one in RENDITIONS]
        programs.start("publisher", [publisher, f"ws://127.0.0.1:{LIVEKIT}", token("publisher"), *places])
        programs.wait_for("publisher", "published")
        strip = programs.start("encoder", encoder(), fed=True)
        assert strip is not None
        feed(strip, programs, folder)
    except SystemExit as reason:
        # 0 is the end that was asked for.
        if reason.code:
            folder.fail(f"far end: {reason.code}")
            sys.exit(1)
    finally:
        programs.end()


if __name__ == "__main__":
    main()
