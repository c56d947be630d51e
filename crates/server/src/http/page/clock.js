// The server's time, and the time at which a picture was made there.

const PINGS_KEPT = 12;

export class ServerClock {
  #samples = [];
  #origin = null;
  #media = null;

  // An answer to a ping: the fastest of the last ones has the least doubtful middle.
  answered(pong) {
    const now = performance.now();
    const trip = now - pong.at;
    this.#samples.push({ trip, offset: pong.wall_ms - (now + pong.at) / 2 });
    if (this.#samples.length > PINGS_KEPT) this.#samples.shift();
    this.learn(pong.clock);
  }

  // A place of the stream's clock and its wall time.
  learn(clock) {
    if (clock) this.#media = clock;
  }

  // A connection began, with this media time at 0 of its own timeline; null: it ended.
  begin(originMs) {
    this.#origin = originMs;
  }

  // Milliseconds since 1970 at the server; null if not known yet.
  now(at = performance.now()) {
    if (this.#samples.length === 0) return null;
    const best = this.#samples.reduce((a, b) => (b.trip < a.trip ? b : a));
    return at + best.offset;
  }

  // The age, in seconds, of what is at this time of the player's timeline; null if not known yet.
  age(playerSeconds, at = performance.now()) {
    const now = this.now(at);
    if (now === null || this.#origin === null || this.#media === null) return null;
    const made = this.#media.wall_ms + this.#origin + playerSeconds * 1000 - this.#media.media_ms;
    return (now - made) / 1000;
  }

  // The same of the picture with this RTP timestamp: 90,000 ticks a second of the stream's clock, 32 bits of them.
  ageOfTimestamp(timestamp, at = performance.now()) {
    const now = this.now(at);
    if (now === null || this.#media === null) return null;
    const ticks = BigInt.asIntN(32, BigInt(timestamp) - BigInt(Math.round(this.#media.media_ms * 90)));
    return (now - this.#media.wall_ms - Number(ticks) / 90) / 1000;
  }

  get roundTrip() {
    return this.#samples.length ? Math.min(...this.#samples.map((sample) => sample.trip)) / 1000 : null;
  }
}
