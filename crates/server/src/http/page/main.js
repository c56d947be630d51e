// The player's page: joins the connection, the player and the drawings.

import { Lines, Stacks } from "./charts.js";
import { ServerClock } from "./clock.js";
import { Feed } from "./feed.js";
import { Peer } from "./peer.js";
import { Player } from "./player.js";

const LAYERS = ["--layer0", "--layer1", "--layer2", "--layer3", "--layer4"];
const DRAW_MS = 250;
const SHOWN_DROPS = 4;
// The first burst to a new viewer says nothing about the rates.
const SETTLED_MS = 3000;
// Rates are means over this number of seconds: on a slow path a report waits behind a picture, so their distances differ.
const MEAN = 2;
// A server that is started again has WebRTC after this time, or not at all.
const RESTART_MS = 20_000;
const RESTART_STEP_MS = 1000;
// The code of a close frame that says that the page may not have the stream (RFC 6455).
const REFUSED = 1008;

const id = (name) => document.getElementById(name);
const video = id("video");
const stage = id("stage");
const clock = new ServerClock();
const player = new Player(video);
let peer = null;
// Until when WebRTC is tried again.
let hopeful = 0;
// By which protocol the address wants it: `webrtc`, `websocket`, or whichever is better.
const asked = new URLSearchParams(location.search).get("via");
const seconds = (value) => (value === null ? "–" : `${value.toFixed(2)} s`);
const rate = (bits) => (bits >= 1e6 ? `${(bits / 1e6).toFixed(1)} Mbit/s` : `${Math.round(bits / 1e3)} kbit/s`);

const charts = {
  delay: new Lines(id("delay-chart"), (value) => `${value} s`, 0.5, ["--accent"]),
  layers: new Stacks(id("layers-chart"), (value) => String(value), LAYERS),
  link: new Lines(id("link-chart"), rate, 1e5, ["--accent", "--warm"]),
};

// The present state; tests read it.
const metrics = {
  connected: false,
  connections: 0,
  // By which protocol, and why not by the other one.
  via: null,
  fallback: null,
  timestamp: null,
  delay: null,
  mediaTime: null,
  frames: 0,
  error: null,
  stats: null,
  get currentTime() {
    return video.currentTime;
  },
  get lead() {
    return player.lead;
  },
  get stalls() {
    return peer?.stalls ?? player.stalls;
  },
  get jumps() {
    return player.jumps;
  },
  // The age, in seconds, of the picture that is on the screen now.
  get screenAge() {
    return age();
  },
  // The age, in seconds, of what is at a time of the player's timeline.
  age: (time) => clock.age(time),
};
globalThis.freshwire = metrics;

function status(text, kind = "") {
  id("status").textContent = text;
  id("status").className = `state ${kind}`;
}

function message(text) {
  id("message").textContent = text ?? "";
  id("message").hidden = !text;
}

// Statistics of the server: totals turn into rates.
let reports = [];
let opened = 0;
function report(stats) {
  const at = performance.now() / 1000;
  metrics.stats = stats;
  clock.learn(stats.clock);
  if (stats.kinds) {
    if (!peer) player.expect(stats.kinds);
    id("mute").hidden = !stats.kinds.includes("audio");
  }
  if (at * 1000 - opened > SETTLED_MS) reports.push({ at, stats });
  while (reports.length > 2 && reports[1].at < at - MEAN) reports.shift();
  if (reports.length > 1) {
    const [before] = reports;
    const elapsed = at - before.at;
    const perSecond = (now, then) => now.map((value, layer) => (value - (then[layer] ?? 0)) / elapsed);
    const offered = perSecond(stats.offered, before.stats.offered);
    // Sound counts among what was sent in the lowest layer, but not among the pictures on offer.
    const sent = perSecond(stats.sent, before.stats.sent).map((value, layer) => Math.min(value, offered[layer]));
    charts.layers.add(at, { offered, sent });
    const used = ((stats.path.acked_bytes - before.stats.path.acked_bytes) * 8) / elapsed;
    const carries = stats.path.rate_bps ?? stats.path.carries?.bps;
    charts.link.add(at, [carries, used]);
    const sum = (list) => Math.round(list.reduce((total, one) => total + one, 0));
    id("layers-now").textContent = `${sum(sent)} of ${sum(offered)}`;
    id("estimate").textContent = carries ? `carries ${rate(carries)}` : "";
    id("used").textContent = `used ${rate(used)}`;
  }
  // A stream of which WebRTC carries some pictures only is better by WebSocket.
  const missing = stats.left_out.find((what) => what.startsWith("pictures"));
  if (peer && missing && asked !== "webrtc") {
    leavePeer(missing);
    return;
  }
  const drops = stats.drops.toSorted((a, b) => b[1] - a[1]).slice(0, SHOWN_DROPS);
  list(id("drops"), drops.length ? drops : [["nothing", 0]]);
  list(id("path"), [
    ["round trip", `${stats.path.rtt_ms.toFixed(0)} ms`],
    ["committed, not sent", `${stats.path.horizon_bytes} B`],
    ["age when sent, mean", `${stats.path.age_at_commit_mean_ms.toFixed(0)} ms`],
    ["stalls of the picture", metrics.stalls.length],
    ["carried by", metrics.via],
    ...(metrics.fallback ? [["not by WebRTC", metrics.fallback]] : []),
    ...stats.left_out.map((what) => ["left out", what]),
    ...(stats.renditions > 1 ? [["rendition", rendition(stats)]] : []),
  ]);
}

// Which rendition it is, and why, in words.
const REASONS = {
  start: "to begin with",
  carries: "the path carries it",
  slow: "the path became slower",
  late: "pictures came late",
  gone: "the other one is gone",
};
function rendition(stats) {
  const next = stats.wanted ? `, ${stats.wanted} next` : "";
  return `${stats.rendition ?? "none"}${next}: ${REASONS[stats.why] ?? stats.why}`;
}

function list(element, entries) {
  element.replaceChildren(
    ...entries.flatMap(([name, value]) => {
      const term = document.createElement("dt");
      const detail = document.createElement("dd");
      term.textContent = String(name).replaceAll("_", " ").replaceAll("-", " ");
      detail.textContent = value;
      return [term, detail];
    }),
  );
}

// The age of the picture that is shown.
function age(at) {
  if (metrics.timestamp !== null) return clock.ageOfTimestamp(metrics.timestamp, at);
  return metrics.mediaTime === null ? null : clock.age(metrics.mediaTime, at);
}

// The delay of each picture when it is shown.
function watchFrames() {
  if (!video.requestVideoFrameCallback) return;
  const shown = (_, frame) => {
    metrics.frames += 1;
    metrics.mediaTime = frame.mediaTime;
    metrics.timestamp = peer ? (frame.rtpTimestamp ?? peer.timestamp ?? null) : null;
    metrics.delay = age(frame.expectedDisplayTime);
    peer?.shown();
    video.requestVideoFrameCallback(shown);
  };
  video.requestVideoFrameCallback(shown);
}

function draw() {
  const now = performance.now() / 1000;
  if (!video.requestVideoFrameCallback) metrics.delay = clock.age(video.currentTime);
  // While a picture is frozen it gets older.
  const delay = metrics.mediaTime === null ? metrics.delay : age();
  charts.delay.add(now, [metrics.connected && !player.paused ? delay : null]);
  id("delay").textContent = id("delay-now").textContent = seconds(delay);
  if (document.hidden) return;
  for (const [name, chart] of Object.entries(charts)) {
    chart.draw(now);
    chart.canvas.setAttribute("aria-label", `${name}: ${id(`${name}-now`).textContent}`);
  }
}

function connect() {
  const isServed = document.body.dataset.webrtc === "on";
  if (asked === "websocket" || !isServed || !Peer.isPossible) connectSocket();
  else connectPeer();
}

function started(via) {
  metrics.via = via;
  metrics.connected = true;
  metrics.connections += 1;
  reports = [];
  opened = performance.now();
  message(null);
  status("waiting for a keyframe");
}

// With the server's reason, if it gave one; it stays until the stream is back.
function interrupted(reason) {
  metrics.connected = false;
  clock.begin(null);
  if (reason) message(`${reason[0].toUpperCase()}${reason.slice(1)}.`);
  status("reconnecting", "away");
}

// By WebRTC. Where it does not work, or not again for some time after it was lost, WebSocket takes over.
function connectPeer() {
  peer = new Peer(document.body.dataset.path, video);
  peer.addEventListener("opened", () => started("WebRTC"));
  peer.addEventListener("told", ({ detail }) => {
    if (detail.type === "pong") clock.answered(detail);
    else if (detail.type === "stats") report(detail);
  });
  peer.addEventListener("lost", ({ detail: { why, last } }) => {
    // One more request would have the browser ask for a password. A WebSocket does not, and waits until the page may view again.
    if (last?.code === REFUSED) {
      leavePeer(why, last);
      return;
    }
    interrupted(last?.reason);
    hopeful = performance.now() + RESTART_MS;
    peer.connect();
  });
  peer.addEventListener("blocked", () => setPaused(true));
  peer.addEventListener("failed", ({ detail: { why, last, isAway } }) => {
    if (isAway && performance.now() < hopeful) setTimeout(() => peer?.connect(), RESTART_STEP_MS);
    else leavePeer(why, last);
  });
  peer.connect();
}

function leavePeer(why, last = null) {
  metrics.fallback = why;
  metrics.timestamp = metrics.mediaTime = null;
  peer.close();
  peer = null;
  video.srcObject = null;
  interrupted(last?.reason);
  connectSocket();
}

function connectSocket() {
  const feed = new Feed(document.body.dataset.path);
  feed.addEventListener("opened", () => started("WebSocket"));
  feed.addEventListener("lost", ({ detail }) => interrupted(detail));
  feed.addEventListener("told", ({ detail }) => {
    if (detail.type === "origin") {
      clock.begin(detail.media_ns / 1e6);
      player.begin();
    } else if (detail.type === "track") player.describe(detail.kind, detail.mime);
    else if (detail.type === "pong") clock.answered(detail);
    else if (detail.type === "stats") report(detail);
  });
  feed.addEventListener("media", ({ detail }) => player.append(detail));
  player.addEventListener("restart", () => feed.connect());
  player.addEventListener("failed", ({ detail }) => {
    metrics.error = detail;
    feed.connect();
  });
}

function listen() {
  player.addEventListener("unsupported", ({ detail }) => {
    metrics.error = `this browser does not play ${detail.mime}`;
    if (detail.kind === "video") message(`This browser does not play ${detail.mime}. Another player may: see the list of streams.`);
  });
  player.addEventListener("blocked", () => setPaused(true));
  video.addEventListener("error", () => {
    metrics.error = video.error?.message ?? "the picture failed";
  });
  video.addEventListener("playing", () => {
    // The rest of what had come may still be played.
    if (!metrics.connected) return;
    message(null);
    status("live", "live");
  });
  id("play").addEventListener("click", () => setPaused(!player.paused));
  id("mute").addEventListener("click", toggleMute);
  id("full").addEventListener("click", toggleFull);
  video.addEventListener("click", () => (video.muted && !id("mute").hidden ? toggleMute() : setPaused(!player.paused)));
  const keys = { " ": () => setPaused(!player.paused), k: () => setPaused(!player.paused), m: toggleMute, f: toggleFull };
  document.addEventListener("keydown", (event) => {
    const isOnButton = event.target.closest("button, a");
    if (event.ctrlKey || event.metaKey || event.altKey || (isOnButton && event.key === " ")) return;
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}

function setPaused(paused) {
  if (peer) {
    player.paused = paused;
    if (paused) video.pause();
    else video.play().catch(() => setPaused(true));
  } else player.setPaused(paused);
  label("play", paused ? "Play" : "Pause");
  if (paused) status("paused");
}

function toggleMute() {
  // Sound that WebRTC does not carry comes by WebSocket.
  const missing = metrics.stats?.left_out.find((what) => what.startsWith("sound"));
  if (peer && video.muted && missing) leavePeer(missing);
  video.muted = !video.muted;
  label("mute", video.muted ? "Sound on" : "Sound off");
}

function toggleFull() {
  if (document.fullscreenElement) document.exitFullscreen();
  else stage.requestFullscreen?.();
}

function label(button, text) {
  id(button).textContent = text;
  id(button).setAttribute("aria-label", text);
}

if (Player.isPossible) {
  listen();
  watchFrames();
  setInterval(draw, DRAW_MS);
  connect();
} else {
  message("This browser has no Media Source Extensions. Use another one, or another player: see the list of streams.");
}
