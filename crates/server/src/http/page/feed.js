// The connection to the server: messages come out, and it comes back after every interruption.

const PING_MS = 1000;
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5000;
// The server says something twice a second; a path that is silent for so long does not come back by itself.
const SILENCE_MS = 12000;

export class Feed extends EventTarget {
  #url;
  #socket = null;
  #wait = FIRST_WAIT_MS;
  #heard = 0;
  #retry = null;

  constructor(path) {
    super();
    const url = new URL(path + "/ws" + location.search, location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    this.#url = url;
    setInterval(() => this.#tick(), PING_MS);
    addEventListener("online", () => this.#soon());
    document.addEventListener("visibilitychange", () => document.hidden || this.#soon());
    this.connect();
  }

  connect() {
    clearTimeout(this.#retry);
    this.#retry = null;
    this.#close();
    const socket = new WebSocket(this.#url);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    this.#heard = performance.now();
    socket.onopen = () => {
      this.#say("opened");
      this.#ping();
    };
    socket.onmessage = ({ data }) => {
      this.#heard = performance.now();
      if (typeof data === "string") {
        this.#say("told", JSON.parse(data));
      } else {
        this.#wait = FIRST_WAIT_MS;
        this.#say("media", data);
      }
    };
    socket.onclose = ({ reason }) => this.#lost(reason);
  }

  #close() {
    if (!this.#socket) return;
    this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket.close();
    this.#socket = null;
  }

  // With the reason, if the server gave one.
  #lost(reason = "") {
    this.#close();
    this.#say("lost", reason);
    const wait = this.#wait * (0.5 + Math.random() / 2);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT_MS);
    this.#retry = setTimeout(() => this.connect(), wait);
  }

  // The person or the network is back: no reason to wait any longer.
  #soon() {
    this.#wait = FIRST_WAIT_MS;
    if (this.#retry !== null) this.connect();
    else this.#tick();
  }

  #tick() {
    if (this.#socket && performance.now() - this.#heard > SILENCE_MS) this.#lost();
    else this.#ping();
  }

  #ping() {
    if (this.#socket?.readyState === WebSocket.OPEN) {
      this.#socket.send(JSON.stringify({ type: "ping", at: performance.now() }));
    }
  }

  #say(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
