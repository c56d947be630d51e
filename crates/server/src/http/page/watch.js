// The page of a stream's values: a fast and a slow reader, each in a worker of its own, as two tabs would be.

import { Lines } from "./charts.js";

const DRAW_MS = 250;
const SHOWN_KEYS = 100;
const SHOWN_CHARACTERS = 200;

const path = document.body.dataset.path;
const id = (name) => document.getElementById(name);

// The present state; tests read it.
const metrics = { readers: [], published: 0, error: null };
globalThis.freshwire = metrics;

function address(end, query = {}) {
  const url = new URL(path + end + location.search, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

function worker(role, settings) {
  const thread = new Worker(new URL("./watch-worker.js", import.meta.url), { type: "module" });
  thread.postMessage({ role, ...settings });
  thread.onerror = (event) => {
    metrics.error = event.message;
  };
  return thread;
}

// Milliseconds, in seconds: as many digits as say something.
function seconds(ms) {
  if (ms === null) return "–";
  const value = Math.max(0, ms) / 1000;
  const digits = value < 1 ? 3 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return `${value.toFixed(digits)} s`;
}

// How old what was set at this time of the server is now; null if that is not known.
function age(at, offset) {
  if (at === null || offset === null || offset === undefined) return null;
  return performance.timeOrigin + performance.now() + offset - at;
}

const HELD_BY = {
  acknowledgements: "until it acknowledges",
  unread: "until it reads",
  "advertised-window": "until it reads, by its window",
  path: "by the path",
};

function held(stats) {
  if (!stats?.held_by) return "no";
  const time = stats.held_unread_s === null ? "" : `, for ${stats.held_unread_s.toFixed(0)} s`;
  return `${HELD_BY[stats.held_by] ?? stats.held_by}${time}`;
}

function rows(list, entries) {
  list.replaceChildren(
    ...entries.flatMap(([name, value]) => {
      const term = document.createElement("dt");
      const detail = document.createElement("dd");
      term.textContent = name;
      detail.textContent = value;
      return [term, detail];
    }),
  );
}

const readers = [...document.querySelectorAll("#readers figure")].map((figure, at) => {
  const work = Number(figure.dataset.work);
  const chart = new Lines(figure.querySelector("canvas"), (value) => `${Number(value.toPrecision(2))} s`, 0.02, ["--accent"]);
  const reader = { figure, chart, state: null };
  // As many values on the way as a reader has to ask for: none waits in the browser.
  const thread = worker("read", { url: address("/values", { window: 4, reports: 1 }), work });
  figure.querySelector("input")?.addEventListener("input", ({ target }) => {
    if (target.validity.valid) thread.postMessage({ work: Number(target.value) });
  });
  thread.onmessage = ({ data }) => {
    reader.state = metrics.readers[at] = data;
  };
  return reader;
});

let publisher = null;
id("publish").addEventListener("change", ({ target }) => {
  publisher?.terminate();
  publisher = null;
  if (!target.checked) return;
  publisher = worker("publish", { url: address("/push") });
  publisher.onmessage = ({ data }) => {
    metrics.published = data.published;
    if (data.refused) {
      target.checked = false;
      status(`publishing failed: ${data.refused}`, "away");
    }
  };
});

function status(text, kind = "") {
  id("status").textContent = text;
  id("status").className = `state ${kind}`;
}

function table(values) {
  const entries = Object.entries(values).sort(([a], [b]) => a.localeCompare(b));
  id("count").textContent = `${entries.length} keys`;
  id("values").replaceChildren(
    ...entries.slice(0, SHOWN_KEYS).map(([key, { text, count, at }]) => {
      const row = document.createElement("tr");
      const shown = [key, text.slice(0, SHOWN_CHARACTERS), count, seconds(age(at, metrics.readers[0]?.offset))];
      for (const cell of shown) row.insertCell().textContent = cell;
      return row;
    }),
  );
}

setInterval(() => {
  const now = performance.now() / 1000;
  const first = readers[0].state;
  if (first) status(first.connected ? "live" : "reconnecting", first.connected ? "live" : "away");
  for (const { figure, chart, state } of readers) {
    if (!state) continue;
    // The screen gets older while nothing comes.
    state.age = age(state.newest, state.offset);
    chart.add(now, [state.age === null ? null : state.age / 1000]);
    rows(figure.querySelector("dl"), [
      ["newest value on the screen, age", seconds(state.age)],
      ["largest age when handled", seconds(state.worst)],
      ["values received", state.received],
      ["values skipped", state.skipped],
      ["values a second", state.rate.toFixed(1)],
      ["round trip", seconds(state.trip)],
      ["held back", held(state.stats)],
    ]);
    if (!document.hidden) chart.draw(now);
  }
  if (first) table(first.values);
}, DRAW_MS);
