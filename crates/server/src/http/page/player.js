// Plays what arrives at the live edge, through Media Source Extensions.
//
// The playhead follows the clock at a steady distance: as late as the latest pictures of the last seconds arrive, so that
// each can be shown when it is due, but never more than MOST_WAIT later than the earliest. It does not wait for pictures
// that are left out: the one before them is frozen meanwhile. Small errors are corrected by the playback rate, large
// ones by a jump.

import { Durations } from "./durations.js";
import { fragment, sample, shownAt, timescale } from "./mp4.js";

// Safari on an iPhone has the managed one only: the browser says when it takes something.
const Source = globalThis.MediaSource ?? globalThis.ManagedMediaSource;

// Messages with initializations have odd types, those with samples even ones. A picture may come in parts, which the
// message with its end follows.
const KINDS = { 1: "video", 2: "video", 3: "audio", 4: "audio", 6: "video" };
const PART = 6;
const TRACKS = { video: 1, audio: 2 };

const TICK_MS = 50;
// Arrivals that say how regular the path is, in seconds.
const WINDOW = 6;
const MARGIN = 0.05;
const MOST_WAIT = 0.35;
// An error beyond which the playhead jumps, in seconds. A jump stops the picture for a moment.
const JUMP = 0.9;
const SLOWEST = 0.88;
const FASTEST = 1.12;
// A jump that takes longer was to where nothing came.
const JUMP_MS = 500;
// Played data that is kept, in seconds.
const KEPT = 10;
// How long the other track's description is waited for.
const PATIENCE_MS = 1500;
// Fragments that may wait for the browser.
const MOST_QUEUED = 1000;
// Sound without pictures that is kept for a browser that takes nothing, in seconds.
const KEPT_SOUND = 1;
// The shortest stall, in seconds.
const STALL = 0.15;
// This number of halts in a short time is not due to what arrives. Chromium counts how often each picture of an even stream
// has to be drawn, and when the stream becomes uneven it halts after every single one until it begins anew.
const HALTS = 2;
const HALTS_MS = 1000;
// And one that lasts so long.
const LONG_HALT_MS = 200;

function joined(parts) {
  if (parts.length === 1) return parts[0];
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export class Player extends EventTarget {
  stalls = [];
  jumps = 0;
  paused = false;
  #video;
  #source = null;
  #tracks = new Map();
  #durations = new Durations();
  #expected = null;
  #begun = 0;
  // The newest that has arrived, in seconds of the timeline.
  #newest = null;
  #jumped = 0;
  // When playback halted without a jump.
  #halts = [];
  #progress = { time: 0, at: performance.now(), stalled: false };

  constructor(video) {
    super();
    this.#video = video;
    setInterval(() => this.#tick(), TICK_MS);
    video.addEventListener("waiting", () => video.seeking || this.#halts.push(performance.now()));
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
    this.#durations = new Durations();
    this.#begun = performance.now();
    source.addEventListener("sourceopen", () => this.#open(), { once: true });
    source.addEventListener("startstreaming", () => this.#feedAll());
    // A managed source stays closed where the picture might go to another device.
    this.#video.disableRemotePlayback = true;
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
      track = { kind, mime, buffer: null, queue: [], parts: [], scale: null, samples: 0, arrivals: [] };
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
    if (type === PART) {
      track.parts.push(bytes);
      return;
    }
    if (type % 2 === 1) {
      track.scale = timescale(bytes);
      if (track.kind === "video") this.#durations.expect(performance.now() / 1000);
      track.queue.push({ bytes });
    } else {
      const one = sample(joined([...track.parts.splice(0), bytes]));
      track.samples += 1;
      const due = shownAt(one) / track.scale;
      this.#note(track, due);
      if (this.#isHeld) this.#dropOlder(track, one.isKey, due);
      if (track.kind === "video") this.#durations.stretch(one, track.scale, performance.now() / 1000, due);
      track.queue.push({ due, bytes: fragment(track.samples, TRACKS[track.kind], one) });
    }
    if (track.queue.length > MOST_QUEUED) this.#say("restart");
    else this.#feed(track);
  }

  // Seconds from the playhead to the newest that has arrived; null before there is anything.
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
    this.#feedAll();
  }

  // Between `endstreaming` and `startstreaming` a managed source takes nothing.
  get #isHeld() {
    return this.#source?.streaming === false;
  }

  // With a keyframe, what came before it is not worth sending any more, and neither is the sound of that time.
  #dropOlder({ kind }, isKey, due) {
    const isAlone = !this.#tracks.has("video");
    if (kind === "video" ? !isKey : !isAlone) return;
    const oldest = isAlone ? due - KEPT_SOUND : due;
    for (const track of this.#tracks.values()) {
      const isDropped = (one) => one.due !== undefined && (track.kind === "video" || one.due < oldest);
      track.queue = track.queue.filter((one) => !isDropped(one));
    }
  }

  #feedAll() {
    for (const track of this.#tracks.values()) this.#feed(track);
  }

  #feed(track) {
    const { buffer, queue } = track;
    if (!buffer || buffer.updating || this.#source?.readyState !== "open" || this.#isHeld) return;
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

  // A picture or sound arrives, to be played at this time of the timeline.
  #note({ arrivals }, due) {
    const at = performance.now() / 1000;
    arrivals.push({ at, reach: due - at });
    while (arrivals[0].at < at - WINDOW) arrivals.shift();
    this.#newest = Math.max(this.#newest ?? due, due);
  }

  // Where the playhead should be, so that neither track is too late; null before anything arrived.
  #goal() {
    let goal = null;
    for (const { arrivals } of this.#tracks.values()) {
      if (arrivals.length === 0) continue;
      const reaches = arrivals.map(({ reach }) => reach);
      const worst = Math.max(Math.min(...reaches), Math.max(...reaches) - MOST_WAIT);
      const due = performance.now() / 1000 + worst - MARGIN;
      goal = Math.min(goal ?? due, due);
    }
    return goal;
  }

  #tick() {
    this.#open();
    this.#watch();
    const video = this.#video;
    const ranges = video.buffered;
    if (!this.#source || this.#isHeld || ranges.length === 0 || this.#newest === null || this.paused) return;
    const last = ranges.length - 1;
    const isLost = performance.now() - this.#jumped > JUMP_MS && video.currentTime < ranges.start(last);
    if (video.seeking && !isLost) return;
    const goal = Math.max(this.#goal() ?? this.#newest, ranges.start(last));
    if (video.paused) {
      this.#jump(goal);
      return;
    }
    const time = video.currentTime;
    const isInside = this.#rangeAt(ranges, time) !== null;
    const isBehindGap = isInside && ranges.length > 1 && this.#rangeAt(ranges, time) < last && this.#isStalled();
    const isHalting = this.#isHalting() && goal < ranges.end(last);
    if ((!isInside && time < ranges.start(last)) || isBehindGap || goal - time > JUMP || isHalting) {
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
    this.#jumped = performance.now();
    this.#video.currentTime = Math.min(Math.max(time, ranges.start(last)), ranges.end(last));
    this.#video.playbackRate = 1;
    this.#halts = [];
    // A browser that does not let it begin says so by a rejection; the person's next click begins it. A new timeline interrupts it too.
    if (!this.paused) this.#video.play().catch(({ name }) => name === "NotAllowedError" && this.#say("blocked"));
  }

  #isHalting() {
    const since = performance.now() - HALTS_MS;
    this.#halts = this.#halts.filter((at) => at > since);
    const isOften = this.#halts.length >= HALTS;
    const isLong = this.#halts.length > 0 && performance.now() - this.#progress.at > LONG_HALT_MS;
    return isOften || isLong;
  }

  #isStalled() {
    return performance.now() - this.#progress.at > 100;
  }

  // Notes when pictures stand still although nobody stopped them.
  #watch() {
    const now = performance.now();
    const time = this.#video.currentTime;
    const progress = this.#progress;
    const runs = this.#source && !this.#isHeld && !this.paused && this.#video.readyState > 0 && !document.hidden;
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

  // Former measurements are of no use: another timeline, or timers that slept.
  #forget() {
    for (const track of this.#tracks.values()) track.arrivals = [];
    this.#progress = { time: this.#video.currentTime, at: performance.now(), stalled: false };
  }

  #say(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
