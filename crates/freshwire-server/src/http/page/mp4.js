// Reads the times in MP4 boxes (ISO 14496-12): what the browser's buffer says about its end is not when a picture is
// shown, because the last picture's duration may be stretched.

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

// When the first sample of a fragment is shown, in ticks; null if it does not say.
export function shownAt(bytes) {
  const view = viewOf(bytes);
  const decode = find(view, ["moof", "traf", "tfdt"]);
  const run = find(view, ["moof", "traf", "trun"]);
  if (!decode || !run) return null;
  const isLong = view.getUint8(decode.start) === 1;
  const time = isLong ? Number(view.getBigUint64(decode.start + 4)) : view.getUint32(decode.start + 4);
  const flags = view.getUint32(run.start) & 0xffffff;
  if (!(flags & 0x800)) return time;
  // The fields that are there come in the order of their flags: offset and flags of the first, then of each sample
  // duration, size, flags and composition offset.
  const before = [0x1, 0x4, 0x100, 0x200, 0x400].filter((flag) => flags & flag).length;
  return time + view.getInt32(run.start + 8 + 4 * before);
}
