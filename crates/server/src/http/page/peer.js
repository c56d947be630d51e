// The stream by WebRTC (WHEP): an offer, an answer, and a channel for the same messages as over WebSocket.

const PING_MS = 1000;
// A server that has no such stream or no place for one may be starting.
const STARTING = [404, 503];
// Without a picture by then something on the way keeps datagrams back, and WebSocket is used. Without an answer by then the browser
// may be asking for a password, which a WebSocket does not have it do.
const PATIENCE_MS = 5000;
// The server says something twice a second; a path that is silent for so long does not come back by itself.
const SILENCE_MS = 6000;
// A picture that stands still for so long is a stall.
const STALL_S = 0.5;
const MOST_STALLS = 1000;

export class Peer extends EventTarget {
  stalls = [];
  #url;
  #video;
  #peer = null;
  #channel = null;
  #session = null;
  #asking = null;
  #stream = null;
  #timer = null;
  #begun = 0;
  #heard = 0;
  #shownAt = null;

  static get isPossible() {
    return typeof RTCPeerConnection === "function" && "requestVideoFrameCallback" in HTMLVideoElement.prototype;
  }

  constructor(path, video) {
    super();
    this.#url = new URL(`${path}/whep${location.search}`, location.href);
    this.#video = video;
    addEventListener("pagehide", () => this.close());
  }

  // Begins. `failed` says why it does not work, `lost` that it worked and why it has ended, both with the server's last words if there
  // were any (the code and the reason of a close frame), and whether the server or the stream is away.
  async connect() {
    this.close();
    const peer = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
    const stream = new MediaStream();
    this.#peer = peer;
    this.#begun = this.#heard = performance.now();
    this.#shownAt = null;
    for (const kind of ["video", "audio"]) {
      const { receiver } = peer.addTransceiver(kind, { direction: "recvonly" });
      // The picture is shown as soon as it is there.
      receiver.jitterBufferTarget = 0;
    }
    peer.ontrack = ({ track }) => {
      if (peer !== this.#peer) return;
      stream.addTrack(track);
      this.#stream = stream;
      if (this.#video.srcObject !== stream) this.#video.srcObject = stream;
      // An end of the session interrupts it too; only the browser's refusal is for the person.
      this.#video.play().catch(({ name }) => name === "NotAllowedError" && this.#say("blocked"));
    };
    peer.onconnectionstatechange = () => {
      if (peer !== this.#peer) return;
      if (peer.connectionState === "connected") this.#say("opened");
      else if (["failed", "closed"].includes(peer.connectionState)) this.#end("the connection failed");
    };
    this.#channel = peer.createDataChannel("freshwire", { ordered: true });
    this.#channel.onopen = () => this.#ping();
    this.#channel.onmessage = ({ data }) => {
      if (peer !== this.#peer) return;
      this.#heard = performance.now();
      const message = JSON.parse(data);
      if (message.type === "end") this.#end(message.reason, message);
      else this.#say("told", message);
    };
    // The connection itself notices the end of the session only after many seconds.
    this.#channel.onclose = () => peer === this.#peer && this.#end("the server has ended the session");
    this.#timer = setInterval(() => this.#tick(), PING_MS);
    try {
      await this.#negotiate(peer);
    } catch (error) {
      // `fetch` throws a TypeError where nobody listens.
      const isAway = error instanceof TypeError || STARTING.includes(error.status);
      if (peer === this.#peer) this.#end(error.message, null, isAway);
    }
  }

  async #negotiate(peer) {
    await peer.setLocalDescription();
    if (peer !== this.#peer) return;
    const asking = new AbortController();
    this.#asking = asking;
    const late = setTimeout(() => asking.abort(new Error("the server did not answer in time")), PATIENCE_MS);
    let reply;
    let text;
    try {
      const headers = { "content-type": "application/sdp" };
      const { signal } = asking;
      reply = await fetch(this.#url, { method: "POST", headers, body: peer.localDescription.sdp, signal });
      text = await reply.text();
    } finally {
      clearTimeout(late);
    }
    if (reply.status !== 201) {
      throw Object.assign(new Error(text.trim() || `status ${reply.status}`), { status: reply.status });
    }
    const session = new URL(reply.headers.get("location"), reply.url);
    if (peer !== this.#peer) {
      this.#leave(session);
      return;
    }
    this.#session = session;
    await peer.setRemoteDescription({ type: "answer", sdp: text });
  }

  // A picture is shown. It may be the last one of the connection before.
  shown() {
    if (!this.#stream || this.#video.srcObject !== this.#stream) return;
    const now = performance.now() / 1000;
    this.#note(now);
    this.#shownAt = now;
  }

  // The timestamp of the newest picture, for browsers that do not say it with the picture.
  get timestamp() {
    const receiver = this.#peer?.getReceivers().find(({ track }) => track.kind === "video");
    return receiver?.getSynchronizationSources()[0]?.rtpTimestamp;
  }

  close() {
    clearInterval(this.#timer);
    this.#asking?.abort();
    if (this.#session) this.#leave(this.#session);
    this.#session = null;
    this.#peer?.close();
    this.#peer = this.#channel = this.#asking = this.#stream = null;
  }

  #leave(session) {
    fetch(session, { method: "DELETE", keepalive: true }).catch(() => {});
  }

  #end(why, last = null, isAway = false) {
    const worked = this.#shownAt !== null;
    this.close();
    this.#say(worked ? "lost" : "failed", { why, last, isAway });
  }

  #note(now) {
    if (this.#shownAt === null || now - this.#shownAt < STALL_S || document.hidden) return;
    const last = this.stalls.at(-1);
    if (last?.at === this.#shownAt) last.seconds = now - last.at;
    else this.stalls.push({ at: this.#shownAt, seconds: now - this.#shownAt });
    if (this.stalls.length > MOST_STALLS) this.stalls.shift();
  }

  #tick() {
    const now = performance.now();
    if (this.#shownAt === null && !document.hidden && now - this.#begun > PATIENCE_MS) this.#end("no picture came");
    else if (this.#channel?.readyState === "open" && now - this.#heard > SILENCE_MS) this.#end("the server is silent");
    else this.#ping();
    if (!this.#video.paused) this.#note(now / 1000);
  }

  #ping() {
    if (this.#channel?.readyState === "open") {
      this.#channel.send(JSON.stringify({ type: "ping", at: performance.now() }));
    }
  }

  #say(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
