// MP4 boxes (ISO 14496-12): the clock of an initialization, and fragments from the samples that come. What the browser's
// buffer says about its end is not when a picture is shown, because the last picture's duration may be stretched.

function* boxes(view, start, end) {
  while (start + 8 <= end) {
    const size = view.getUint32(start);
    if (size < 8 || start + size > end) return;
    const type = String.fromCharCode(...new Uint8Array(view.buffer, view.byteOffset + start + 4, 4));
    yield { type, start: start + 8, end: start + size };
    start += size;
  }
}

function find(view, path) {
  let place = { start: 0, end: view.byteLength };
  for (const type of path) {
    place = [...boxes(view, place.start, place.end)].find((box) => box.type === type);
    if (!place) return null;
  }
  return place;
}

const viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

// Ticks per second of the first track of an initialization; null if there is none.
export function timescale(bytes) {
  const view = viewOf(bytes);
  const header = find(view, ["moov", "trak", "mdia", "mdhd"]);
  if (!header) return null;
  const isLong = view.getUint8(header.start) === 1;
  return view.getUint32(header.start + (isLong ? 20 : 12));
}

// A sample as it comes from the server: 17 bytes about it, then its own.
export function sample(bytes) {
  const view = viewOf(bytes);
  return {
    isKey: view.getUint8(0) === 1,
    decode: view.getBigUint64(1),
    duration: view.getUint32(9),
    offset: view.getInt32(13),
    bytes: bytes.subarray(17),
  };
}

// When it is shown, in ticks.
export const shownAt = ({ decode, offset }) => Number(decode) + offset;

const MOOF_BYTES = 104;
const DEFAULT_BASE_IS_MOOF = 0x020000;
const VERSION_1 = 0x01000000;
// Data offset, then of the sample duration, size, flags and composition offset.
const HAS_ALL = 0xf01;
const SAMPLE_IS_SYNC = 0x02000000;
const SAMPLE_DEPENDS = 0x01010000;

// A fragment with this one sample: what the server leaves out of its messages.
export function fragment(number, track, { isKey, decode, duration, offset, bytes }) {
  const out = new Uint8Array(MOOF_BYTES + 8 + bytes.length);
  const view = viewOf(out);
  let at = 0;
  const words = (...values) => {
    for (const value of values) view.setUint32((at += 4) - 4, value);
  };
  const box = (size, type) => {
    words(size);
    for (const letter of type) out[at++] = letter.charCodeAt(0);
  };
  box(MOOF_BYTES, "moof");
  box(16, "mfhd");
  words(0, number);
  box(80, "traf");
  box(16, "tfhd");
  words(DEFAULT_BASE_IS_MOOF, track);
  box(20, "tfdt");
  words(VERSION_1, Number(decode >> 32n), Number(decode & 0xffffffffn));
  box(36, "trun");
  words(VERSION_1 | HAS_ALL, 1, MOOF_BYTES + 8);
  words(duration, bytes.length, isKey ? SAMPLE_IS_SYNC : SAMPLE_DEPENDS, offset);
  box(8 + bytes.length, "mdat");
  out.set(bytes, at);
  return out;
}
