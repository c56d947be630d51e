"""The near end of the link: a browser that watches one server after the other, and reads the clock on its screen.

`python3 -m freshwire_lab.livekit.near FOLDER CLIENT REPETITIONS WARM SECONDS` writes `results.json` into the folder.
"""

from __future__ import annotations

import http.server
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from .chromium import Chromium
from .far import CLOCK_CELLS
from .plan import FAR, HTTP, LIVEKIT, Folder, token

SYSTEMS = ("freshwire", "livekit")
SAMPLE_S = 0.1
START_S = 30.0
# The share of the samples in which the clock has to be read: a mean of fewer would say little.
READABLE = 0.8
# The servers measure their renditions.
SETTLE_S = 6.0
# A page that leaves says so to its server.
LEAVE_S = 2.0

# A page with LiveKit's client. As in Freshwire's page, a picture is shown as soon as it is there.
PAGE = """<!doctype html><meta charset="utf-8"><title>LiveKit</title>
<video muted autoplay playsinline></video><script src="client.js"></script><script>
const room = globalThis.room = new LivekitClient.Room({ adaptiveStream: false });
const video = document.querySelector("video");
room.on("trackSubscribed", (track) => {
  if (track.kind !== "video") return;
  track.receiver.jitterBufferTarget = 0;
  track.attach(video);
});
globalThis.failure = null;
room.connect("URL", "TOKEN").catch((error) => { globalThis.failure = String(error); });
room.on("disconnected", (reason) => { globalThis.failure = `disconnected: ${reason}`; });
</script>"""

# Counts the pictures on the screen and the longest time without one.
COUNT = """(() => {
    const video = document.querySelector("video");
    if (!video) return false;
    const seen = globalThis.seen = { frames: 0, at: performance.now(), longest: 0 };
    const shown = (now) => {
        seen.frames += 1;
        seen.longest = Math.max(seen.longest, now - seen.at);
        seen.at = now;
        video.requestVideoFrameCallback(shown);
    };
    video.requestVideoFrameCallback(shown);
    return true;
})()"""

# How old the picture on the screen is in seconds, by the clock in it (null if that cannot be read), and its width.
AGE = """(() => {
    const video = document.querySelector("video");
    const width = video.videoWidth;
    const pen = new OffscreenCanvas(width, 1).getContext("2d", { willReadFrequently: true });
    pen.drawImage(video, 0, Math.round(video.videoHeight * 31 / 32), width, 1, 0, 0, width, 1);
    const now = Date.now() / 1e3;
    const line = pen.getImageData(0, 0, width, 1).data;
    const cells = Array.from({ length: CELLS }, (_, at) =>
        Number(line[4 * Math.floor((at + 0.5) * width / CELLS) + 1] > 128));
    const [white, black, ...bits] = cells;
    const parity = bits.pop();
    const isValid = white && !black && bits.reduce((sum, bit) => sum + bit, 0) % 2 === parity;
    return { age: isValid ? now - bits.reduce((sum, bit) => 2 * sum + bit, 0) / 1e3 : null, width };
})()""".replace("CELLS", str(CLOCK_CELLS))

# Runs before the page's own scripts: keeps its connections.
KEEP = """globalThis.peers = [];
globalThis.RTCPeerConnection = class extends RTCPeerConnection {
    constructor(...all) { super(...all); peers.push(this); }
};"""

# The browser's counts of the pictures that came by WebRTC, and of what carries them; null without WebRTC.
COUNTS = """(async () => {
    for (const peer of peers) {
        const all = await peer.getStats();
        const find = (is) => [...all.values()].find(is);
        const video = find(({ type, kind }) => type === "inbound-rtp" && kind === "video");
        const transport = find(({ type }) => type === "transport");
        const pair = transport && all.get(transport.selectedCandidatePairId);
        if (!video?.framesReceived || !pair) continue;
        return {
            protocol: all.get(pair.remoteCandidateId).protocol,
            bytes: transport.bytesReceived, trips: pair.totalRoundTripTime, answers: pair.responsesReceived,
            buffered: video.jitterBufferDelay, emitted: video.jitterBufferEmittedCount,
            lost: video.packetsLost, asked: video.nackCount, keys: video.pliCount,
        };
    }
    return null;
})()"""


class Site(http.server.BaseHTTPRequestHandler):
    """LiveKit's page and client, at the near end: they do not use the link."""

    client = b""

    def do_GET(self) -> None:
        """Answer with one of them."""
        is_script = self.path == "/client.js"
        page = PAGE.replace("URL", f"ws://{FAR}:{LIVEKIT}").replace("TOKEN", token("viewer"))
        body = self.client if is_script else page.encode()
        self.send_response(200)
        self.send_header("content-type", "text/javascript" if is_script else "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def wait_for_picture(browser: Chromium, system: str, folder: Folder) -> None:
    """Wait until the first picture is on the screen, and its clock can be read."""
    end = time.monotonic() + START_S
    is_sized = "(document.querySelector('video')?.videoWidth ?? 0) > 0"
    while not (browser.evaluate(is_sized) and browser.evaluate(AGE)["age"]):
        folder.check()
        failure = browser.evaluate("globalThis.failure ?? null")
        if failure or time.monotonic() > end:
            raise SystemExit(f"{system}: no picture: {failure or f'none in {START_S:g} s'}")
        time.sleep(SAMPLE_S)


def sample(browser: Chromium, system: str, seconds: float) -> dict[str, Any]:
    """Read the screen again and again: ages of the pictures, and their widths."""
    ages: list[float] = []
    widths: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(SAMPLE_S)
        seen = browser.evaluate(AGE)
        widths.append(seen["width"])
        if seen["age"] is not None:
            ages.append(seen["age"])
    if len(ages) < len(widths) * READABLE:
        raise SystemExit(f"{system}: the clock could be read in {len(ages)} of {len(widths)} samples only")
    return {"ages": ages, "widths": widths}


def measure(system: str, address: str, folder: Folder, warm: float, seconds: float) -> dict[str, Any]:
    """Watch one server, and return what was on the screen."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, Chromium(profile) as browser:
        begun = time.monotonic()
        browser.before_each_page(KEEP)
        browser.go(address)
        wait_for_picture(browser, system, folder)
        first = time.monotonic() - begun
        beginning = sample(browser, system, warm)
        browser.evaluate(COUNT)
        before = browser.evaluate(COUNTS)
        begun = time.monotonic()
        settled = sample(browser, system, seconds)
        took = time.monotonic() - begun
        seen = browser.evaluate("({ ...seen, longest: Math.max(seen.longest, performance.now() - seen.at) })")
        after = browser.evaluate(COUNTS)
        # The page takes its leave: a server that believes it there would send to it beside the next.
        browser.go("about:blank")
        time.sleep(LEAVE_S)
        folder.check()
    if not before or not after or after.pop("protocol") != "udp":
        raise SystemExit(f"{system}: the pictures did not come by WebRTC over UDP: {before}, {after}")
    came = {name: count - before[name] for name, count in after.items()}
    return {
        "system": system,
        "first": first,
        "beginning": beginning,
        "settled": settled,
        "rate": seen["frames"] / took,
        "longest": seen["longest"] / 1e3,
        "buffered": came["buffered"] / max(1, came["emitted"]),
        "trip": came["trips"] / max(1, came["answers"]),
        "kbit": came["bytes"] * 8 / 1e3 / took,
        "counts": came,
    }


def main() -> None:
    """Run from the command line."""
    path, client, repetitions, warm, seconds = sys.argv[1:]
    folder = Folder(Path(path))
    Site.client = Path(client).read_bytes()
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    addresses = {
        "freshwire": f"http://{FAR}:{HTTP}/clock",
        "livekit": f"http://127.0.0.1:{site.server_port}/",
    }
    try:
        end = time.monotonic() + 2 * START_S
        while not folder.ready.exists():
            folder.check()
            if time.monotonic() > end:
                raise SystemExit("the far end does not start")
            time.sleep(SAMPLE_S)
        time.sleep(SETTLE_S)
        results: list[dict[str, Any]] = []
        for repetition in range(int(repetitions)):
            # Each is first as often as the other.
            for system in SYSTEMS if repetition % 2 == 0 else SYSTEMS[::-1]:
                result = measure(system, addresses[system], folder, float(warm), float(seconds))
                results.append(result)
                early, late = (statistics.fmean(result[part]["ages"]) for part in ("beginning", "settled"))
                said = f"{system}: mean age {early:.3f} s at first, {late:.3f} s then; {result['rate']:.1f} pictures/s"
                print(said, file=sys.stderr, flush=True)
        folder.results.write_text(json.dumps(results), encoding="utf-8")
    except SystemExit as reason:
        folder.fail(f"near end: {reason.code}")
        sys.exit(1)


if __name__ == "__main__":
    main()
