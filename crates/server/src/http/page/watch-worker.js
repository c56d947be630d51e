// A reader or a publisher of values.

const REPORT_MS = 250;
const PING_MS = 1000;
const PINGS_KEPT = 12;
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5000;
const PUBLISH_MS = 20;
// Beyond this, the connection does not take what is published: nothing is added to the queue in the browser.
const MOST_BUFFERED = 4096;

const clock = () => performance.timeOrigin + performance.now();

class Reader {
  #url;
  #samples = [];
  #counts = new Map();
  #taken = 0;
  #wait = FIRST_WAIT_MS;
  #recent = [];
  state = { connected: false, connections: 0, received: 0, skipped: 0, newest: null, worst: null, offset: null, trip: null, rate: 0, stats: null, values: {} };

  constructor(url, work) {
    this.#url = url;
    this.work = work;
    this.connect();
    setInterval(() => this.report(), REPORT_MS);
    setInterval(() => this.ping(), PING_MS);
  }

  connect() {
    const socket = (this.socket = new WebSocket(this.#url));
    socket.binaryType = "arraybuffer";
    this.#taken = 0;
    socket.onopen = () => {
      this.#wait = FIRST_WAIT_MS;
      this.state.connected = true;
      this.state.connections += 1;
      // A new connection begins with the current values, which are no changes.
      this.#counts.clear();
      this.state.values = {};
      this.state.newest = null;
      this.ping();
    };
    socket.onmessage = ({ data }) => this.take(data);
    socket.onclose = () => {
      this.state.connected = false;
      setTimeout(() => this.connect(), this.#wait * (0.5 + Math.random() / 2));
      this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT_MS);
    };
  }

  take(data) {
    const text = typeof data === "string" ? data : new TextDecoder().decode(data).split("\n", 1)[0];
    const message = JSON.parse(text);
    if (message.type === "pong") return this.answered(message);
    if (message.type === "stats") {
      this.state.stats = message;
      return;
    }
    const { state } = this;
    this.#taken += 1;
    state.received += 1;
    const before = this.#counts.get(message.key);
    if (before !== undefined && message.count > before) state.skipped += message.count - before - 1;
    if (message.deleted) {
      this.#counts.delete(message.key);
      delete state.values[message.key];
    } else {
      this.#counts.set(message.key, message.count);
      const shown = typeof data === "string" ? JSON.stringify(message.value) : `${data.byteLength - text.length - 1} bytes`;
      state.values[message.key] = { text: shown, count: message.count, at: message.at };
    }
    state.newest = Math.max(state.newest ?? 0, message.at);
    // The current values of a newcomer are as old as they are.
    if (state.offset !== null && before !== undefined) {
      state.worst = Math.max(state.worst ?? 0, clock() + state.offset - message.at);
    }
    this.#recent.push(performance.now());
    // A program that has something to do.
    const until = performance.now() + this.work;
    while (performance.now() < until);
    this.socket.send(JSON.stringify({ type: "ack", received: this.#taken }));
  }

  ping() {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type: "ping", at: clock() }));
  }

  // The fastest of the last answers has the least doubtful middle.
  answered(pong) {
    const now = clock();
    this.#samples.push({ trip: now - pong.at, offset: pong.wall_ms - (now + pong.at) / 2 });
    if (this.#samples.length > PINGS_KEPT) this.#samples.shift();
    const best = this.#samples.reduce((a, b) => (b.trip < a.trip ? b : a));
    this.state.offset = best.offset;
    this.state.trip = best.trip;
  }

  report() {
    const now = performance.now();
    this.#recent = this.#recent.filter((at) => at > now - 2000);
    this.state.rate = this.#recent.length / 2;
    postMessage(this.state);
  }
}

function publish(url) {
  const socket = new WebSocket(url);
  let published = 0;
  let timer;
  socket.onopen = () => {
    timer = setInterval(() => {
      if (socket.bufferedAmount > MOST_BUFFERED) return;
      published += 1;
      socket.send(JSON.stringify({ key: "test", value: { number: published, time: new Date().toISOString() } }));
      postMessage({ published });
    }, PUBLISH_MS);
  };
  socket.onclose = ({ reason }) => {
    clearInterval(timer);
    postMessage({ published, refused: reason || "the server refuses it" });
  };
}

let reader = null;
onmessage = ({ data }) => {
  if (data.role === "read") reader = new Reader(data.url, data.work);
  else if (data.role === "publish") publish(data.url);
  else if (reader) reader.work = data.work;
};
