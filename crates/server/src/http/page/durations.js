// How long each picture lasts in the browser's buffer, which is not how long it is shown: that is until the next one.
//
// Pictures may be left out or late, and a clock of playback that reaches the end of the last one stops, with the sound. So
// the server lets pictures last long, past those behind them. Firefox minds: it decodes QUEUE pictures ahead, and one leaves
// that queue at its own end. If they last longer than the queue, what is new waits until they end: with 1.5 s at 25 pictures a
// second, what is shown is 1.1 s behind the clock. If they last shorter, the decoder runs dry at the live edge; then Firefox
// empties it, and decodes again from the keyframe for each picture. So there they last a little longer than the queue,
// and longer only where gaps were seen.

const IS_FIREFOX = /Gecko\/\d/.test(navigator.userAgent);
const QUEUE = 10;
// The queue, and what the decoder holds back.
const LENGTHS = QUEUE + 1.5;
// Between the newest pictures some may still come that are shown before them.
const UNSETTLED = 4;
// Before it is known how often pictures come, in seconds: where none has to be waited for longer than QUICK, and elsewhere.
const FIRST = 0.46;
const LONGEST = 1.5;
const QUICK = 0.2;
// For how long a gap is held against the path, in seconds, and how much longer the next one may be.
const WINDOW = 6;
const GAP_MARGIN = 1.2;

export class Durations {
  // The pictures of the last seconds: when they came and when they are due, in the order in which they are shown.
  #pictures = [];
  #before = null;
  // The last one's place, in ticks.
  #end = null;

  // The first picture is on its way.
  expect(at) {
    this.#before ??= at;
  }

  // Changes the duration of a sample that comes `at` and is shown at `due`, both in seconds.
  stretch(sample, scale, at, due) {
    if (!IS_FIREFOX) return;
    sample.duration = Math.round(this.#next(at, due) * scale);
    // With a jump beyond the last one's end, browsers take nothing more up to the next keyframe.
    if (this.#end !== null && sample.decode > this.#end) {
      sample.offset += Number(sample.decode - this.#end);
      sample.decode = this.#end;
    }
    this.#end = sample.decode + BigInt(sample.duration);
  }

  #next(at, due) {
    const pictures = this.#pictures;
    const wait = at - (this.#before ?? at);
    this.#before = at;
    let place = pictures.length;
    while (place > 0 && pictures[place - 1].due > due) place -= 1;
    pictures.splice(place, 0, { at, due, wait });
    while (pictures[0].at < at - WINDOW) pictures.shift();
    const gaps = pictures.map((one, index) => Math.max(one.wait, index > 0 ? one.due - pictures[index - 1].due : 0));
    const longest = Math.max(...gaps);
    const settled = pictures.slice(0, -UNSETTLED);
    if (settled.length <= QUEUE) return longest > QUICK ? LONGEST : FIRST;
    const span = settled.at(-1).due - settled.at(-1 - QUEUE).due;
    return Math.min(Math.max((span * LENGTHS) / QUEUE, longest * GAP_MARGIN), LONGEST);
  }
}
