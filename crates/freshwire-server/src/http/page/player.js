// Plays what arrives at the live edge, through Media Source Extensions.
//
// How far behind the newest data the playhead stays follows from how regularly data arrives: far enough that it does not
// run dry, and never farther than MOST_BEHIND. Small errors are corrected by the playback rate, large ones by a jump.

import { shownAt, timescale } from "/_/mp4.js";

const Source = globalThis.ManagedMediaSource ?? globalThis.MediaSource;

const KINDS = { 1: "video", 2: "video", 3: "audio", 4: "audio" };

const TICK_MS = 50;
// Arrivals that say how regular the path is, in seconds.
const WINDOW = 6;
const MARGIN = 0.08;
const MOST_BEHIND = 1.0;
// An error beyond which the playhead jumps, in seconds.
const JUMP = 0.9;
const SLOWEST = 0.92;
const FASTEST = 1.25;
// Played data that is kept, in seconds.
const KEPT = 10;
// How long the other track's description is waited for.
const PATIENCE_MS = 1500;
// Fragments that may wait for the browser.
const MOST_QUEUED = 1000;
// What counts as a stall, in seconds.
const STALL = 0.15;

export class Player extends EventTarget {
  stalls = [];
  jumps = 0;
  paused = false;
  #video;
  #source = null;
  #tracks = new Map();
  #expected = null;
  #begun = 0;
  #arrivals = [];
  // The newest picture that has arrived, in seconds of the timeline.
  #newest = null;
  #progress = { time: 0, at: performance.now(), stalled: false };

  constructor(video) {
    super();
    this.#video = video;
    setInterval(() => this.#tick(), TICK_MS);
    document.addEventListener("visibilitychange", () => this.#forget());
  }

  static get isPossible() {
    return Boolean(Source);
  }

  // A new timeline begins; `expected` tracks are known later.
  begin() {
    this.end();
    const source = new Source();
    this.#source = source;
    this.#begun = performance.now();
    source.addEventListener("sourceopen", () => this.#open(), { once: true });
    this.#video.src = URL.createObjectURL(source);
  }

  end() {
    if (!this.#source) return;
    this.#source = null;
    this.#tracks.clear();
    this.#expected = null;
    this.#newest = null;
    this.#forget();
    URL.revokeObjectURL(this.#video.src);
    this.#video.removeAttribute("src");
    this.#video.load();
  }

  // Which tracks the stream has. A browser takes no further one once the first data is in.
  expect(kinds) {
    const late = kinds.some((kind) => this.#isOpen && this.#tracks.size > 0 && !this.#tracks.has(kind));
    if (late && performance.now() - this.#begun > 2 * PATIENCE_MS) this.#say("restart");
    this.#expected = kinds;
    this.#open();
  }

  describe(kind, mime) {
    if (!Source.isTypeSupported(mime)) {
      this.#say("unsupported", { kind, mime });
      return;
    }
    let track = this.#tracks.get(kind);
    if (!track) {
      track = { kind, mime, buffer: null, queue: [], scale: null };
      this.#tracks.set(kind, track);
      this.#open();
    } else if (track.mime !== mime) {
      track.mime = mime;
      track.queue.push({ mime });
    }
  }

  append(message) {
    const type = new Uint8Array(message, 0, 1)[0];
    const track = this.#tracks.get(KINDS[type]);
    if (!track) return;
    const bytes = new Uint8Array(message, 1);
    const scale = timescale(bytes);
    if (scale) track.scale = scale;
    // Sound paces the playhead only where there are no pictures.
    else if (track.kind === "video" || !this.#tracks.has("video")) this.#note(shownAt(bytes) / track.scale);
    track.queue.push({ bytes });
    if (track.queue.length > MOST_QUEUED) this.#say("restart");
    else this.#feed(track);
  }

  // Seconds from the playhead to the newest picture that has arrived; null before there is one.
  get lead() {
    return this.#newest === null ? null : this.#newest - this.#video.currentTime;
  }

  setPaused(paused) {
    this.paused = paused;
    if (paused) this.#video.pause();
    else this.#jump(this.#goal());
  }

  get #isOpen() {
    return this.#source?.readyState === "open" && [...this.#tracks.values()].some((track) => track.buffer);
  }

  // Creates the buffers, once it is known which: all of them before the first data.
  #open() {
    if (this.#source?.readyState !== "open" || this.#isOpen || this.#tracks.size === 0) return;
    const waits = performance.now() - this.#begun < PATIENCE_MS;
    const all = this.#expected?.every((kind) => this.#tracks.has(kind)) ?? false;
    if (!all && waits) return;
    for (const track of this.#tracks.values()) {
      track.buffer = this.#source.addSourceBuffer(track.mime);
      track.buffer.addEventListener("updateend", () => this.#feed(track));
    }
    for (const track of this.#tracks.values()) this.#feed(track);
  }

  #feed(track) {
    const { buffer, queue } = track;
    if (!buffer || buffer.updating || this.#source?.readyState !== "open") return;
    if (this.#trim(buffer)) return;
    const next = queue.shift();
    if (!next) return;
    if (next.mime) {
      buffer.changeType(next.mime);
      this.#feed(track);
      return;
    }
    try {
      buffer.appendBuffer(next.bytes);
    } catch (error) {
      if (error.name !== "QuotaExceededError") {
        this.#say("failed", error.message);
        return;
      }
      queue.unshift(next);
      buffer.remove(0, Math.max(this.#video.currentTime - 1, 0.1));
    }
  }

  // Removes what was played long ago; true if that keeps the buffer busy.
  #trim(buffer) {
    const { buffered } = buffer;
    if (buffered.length === 0) return false;
    // While it is stopped, the playhead does not say what is still needed.
    const needed = this.paused ? buffered.end(buffered.length - 1) : this.#video.currentTime;
    const until = needed - KEPT;
    if (buffered.start(0) > until - KEPT) return false;
    buffer.remove(0, until);
    return true;
  }

  // A picture arrives: how far had those before it reached, against the clock?
  #note(shown) {
    const at = performance.now() / 1000;
    if (this.#newest !== null) {
      this.#arrivals.push({ at, reach: this.#newest - at });
      while (this.#arrivals[0].at < at - WINDOW) this.#arrivals.shift();
    }
    this.#newest = Math.max(this.#newest ?? shown, shown);
  }

  // Where the playhead should be; null before anything arrived.
  #goal() {
    if (this.#newest === null) return null;
    const reaches = this.#arrivals.map((arrival) => arrival.reach);
    if (reaches.length === 0) return this.#newest;
    const best = Math.max(...reaches);
    // An interruption longer than MOST_BEHIND is not waited for the next time.
    const worst = Math.min(...reaches.filter((reach) => reach > best - MOST_BEHIND));
    return performance.now() / 1000 + worst - MARGIN;
  }

  #tick() {
    this.#open();
    this.#watch();
    const video = this.#video;
    const ranges = video.buffered;
    if (!this.#source || ranges.length === 0 || this.#newest === null || this.paused || video.seeking) return;
    const last = ranges.length - 1;
    const goal = Math.max(this.#goal(), ranges.start(last));
    if (video.paused) {
      this.#jump(goal);
      return;
    }
    const time = video.currentTime;
    const isInside = this.#rangeAt(ranges, time) !== null;
    const isBehindGap = isInside && ranges.length > 1 && this.#rangeAt(ranges, time) < last && this.#isStalled();
    if ((!isInside && time < ranges.start(last)) || isBehindGap || goal - time > JUMP) {
      this.jumps += 1;
      this.#jump(goal);
      return;
    }
    const rate = Math.min(Math.max(1 + (goal - time) * 0.5, SLOWEST), FASTEST);
    // Each change costs work in the browser, so small ones are left out.
    if (Math.abs(rate - video.playbackRate) > 0.02) video.playbackRate = Math.abs(rate - 1) < 0.03 ? 1 : rate;
  }

  #rangeAt(ranges, time) {
    for (let index = 0; index < ranges.length; index += 1) {
      if (time >= ranges.start(index) && time < ranges.end(index)) return index;
    }
    return null;
  }

  #jump(time) {
    const ranges = this.#video.buffered;
    if (time === null || ranges.length === 0) return;
    const last = ranges.length - 1;
    this.#video.currentTime = Math.min(Math.max(time, ranges.start(last)), ranges.end(last));
    this.#video.playbackRate = 1;
    // A browser that does not let it begin says so by a rejection; the person's next click begins it.
    if (!this.paused) this.#video.play().catch(() => this.#say("blocked"));
  }

  #isStalled() {
    return performance.now() - this.#progress.at > 100;
  }

  // Notes when pictures stand still although nobody stopped them.
  #watch() {
    const now = performance.now();
    const time = this.#video.currentTime;
    const progress = this.#progress;
    const runs = this.#source && !this.paused && this.#video.readyState > 0 && !document.hidden;
    if (time === progress.time && runs) {
      if (now - progress.at > STALL * 1000 && !progress.stalled) {
        progress.stalled = true;
        this.stalls.push({ at: progress.at / 1000, seconds: 0 });
        if (this.stalls.length > 1000) this.stalls.shift();
      }
    } else {
      progress.stalled = false;
      progress.at = now;
    }
    if (progress.stalled) this.stalls.at(-1).seconds = (now - progress.at) / 1000;
    progress.time = time;
  }

  // What was measured before is of no use: another timeline, or timers that slept.
  #forget() {
    this.#arrivals = [];
    this.#progress = { time: this.#video.currentTime, at: performance.now(), stalled: false };
  }

  #say(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
