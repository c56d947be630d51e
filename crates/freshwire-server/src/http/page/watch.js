// The page of a stream's values: a fast and a slow reader, each in a worker of its own, as two tabs would be.

import { Lines } from "/_/charts.js";

const DRAW_MS = 250;
const SHOWN_KEYS = 100;
const SHOWN_CHARACTERS = 200;

const path = document.body.dataset.path;
const id = (name) => document.getElementById(name);

// What is known at present; tests read it.
const metrics = { readers: [], published: 0, error: null };
globalThis.freshwire = metrics;

function address(end, query = {}) {
  const url = new URL(path + end + location.search, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

function worker(role, settings) {
  const thread = new Worker("/_/watch-worker.js", { type: "module" });
  thread.postMessage({ role, ...settings });
  thread.onerror = (event) => {
    metrics.error = event.message;
  };
  return thread;
}

const ms = (value) => (value === null ? "–" : `${Math.max(0, value).toFixed(0)} ms`);

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
  const chart = new Lines(figure.querySelector("canvas"), ms, 20, ["--accent"]);
  const reader = { figure, chart, state: null };
  // As many values on the way as a reader has to ask for: none waits in the browser.
  const thread = worker("read", { url: address("/values", { window: 4, reports: 1 }), work });
  figure.querySelector("input")?.addEventListener("input", ({ target }) => {
    if (target.validity.valid) thread.postMessage({ work: Number(target.value) });
  });
  thread.onmessage = ({ data }) => {
    reader.state = metrics.readers[at] = data;
    chart.add(performance.now() / 1000, [data.age]);
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
      const now = metrics.readers[0]?.offset;
      const age = now === null || now === undefined ? null : performance.timeOrigin + performance.now() + now - at;
      for (const cell of [key, text.slice(0, SHOWN_CHARACTERS), count, ms(age)]) {
        row.insertCell().textContent = cell;
      }
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
    rows(figure.querySelector("dl"), [
      ["age of the newest value when handled", ms(state.age)],
      ["largest age so far", ms(state.worst)],
      ["values received", state.received],
      ["values skipped", state.skipped],
      ["values a second", state.rate.toFixed(1)],
      ["round trip", ms(state.trip)],
      ["held back", held(state.stats)],
    ]);
    if (!document.hidden) chart.draw(now);
  }
  if (first) table(first.values);
}, DRAW_MS);
