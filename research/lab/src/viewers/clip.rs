//! The stream that every server is fed with: encoded once, each picture carrying its number, handed over in real time.
//!
//! ```text
//!  0        80       160                       1280
//!  ├─ bit 0 ─┼─ bit 1 ─┼── ... ──┼─ bit 15 ─┤ 0      white is 1
//!  ├─ not 0 ─┼─ not 1 ─┼── ... ──┼─ not 15 ─┤ 40     the complement: a damaged picture has no number
//!  │ moving test picture                    │ 80
//! ```

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use freshwire_record::Timestamp;

use crate::coded::{pes_packets, slices};
use crate::ffmpeg;
use crate::scenario::wait_until;

/// Pictures a second.
pub(crate) const FPS: u32 = 25;
/// Width of the pictures.
pub(super) const WIDTH: u32 = 1280;
/// Rows at the top of a picture that carry its number.
pub(super) const CODE_ROWS: u32 = 2 * CELL_HEIGHT;
/// Rows of a picture.
pub(super) const HEIGHT: u32 = 720;
/// The size of the number's rows that [`number`] reads; players scale them down to it.
pub(super) const CODE_SIZE: (usize, usize) = (BITS * 2, 4);

const BITS: usize = 16;
const CELL_WIDTH: u32 = WIDTH / BITS as u32;
const CELL_HEIGHT: u32 = 40;
const KEY_INTERVAL: u32 = 50;
/// Ticks of the clock of MPEG-TS, and of RTP.
pub(super) const TICKS_PER_PICTURE: u64 = 90_000 / FPS as u64;

/// An H.264 stream in MPEG-TS, by access units.
#[derive(Debug)]
pub(crate) struct Clip {
    bytes: Vec<u8>,
    units: Vec<Unit>,
    /// By how many pictures the first access unit is handed over after its picture was due, so that none is early.
    reorder: u32,
    by_slices: BTreeMap<Vec<u8>, u32>,
}

/// One access unit, in decoding order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unit {
    packets: Range<usize>,
    /// Its picture's number.
    picture: u32,
    key: bool,
    /// Bytes of the elementary stream.
    bytes: usize,
}

impl Clip {
    /// Reads the clip at `path`, after encoding it where it is missing.
    pub(crate) fn prepare(path: &Path, duration: Duration, rate_bps: u64) -> anyhow::Result<Self> {
        if !path.exists() {
            let unfinished = path.with_extension("part");
            encode(&unfinished, duration, rate_bps)?;
            std::fs::rename(&unfinished, path)
                .with_context(|| format!("cannot name the stream {}", path.display()))?;
        }
        Self::read(path)
    }

    /// Reads the clip at `path`.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(bytes).with_context(|| format!("{} is not the stream; remove it", path.display()))
    }

    fn parse(bytes: Vec<u8>) -> anyhow::Result<Self> {
        let mut units: Vec<Unit> = Vec::new();
        let mut by_slices = BTreeMap::new();
        let mut first_ticks = None;
        for pes in pes_packets(&bytes)? {
            let ticks = u64::try_from(pes.pts - *first_ticks.get_or_insert(pes.pts)).unwrap_or(0);
            let picture = u32::try_from(ticks / TICKS_PER_PICTURE)?;
            let slices = slices(&pes.payload, is_slice);
            let key = slices.first().is_some_and(|header| header & 31 == IDR);
            units.push(Unit { packets: pes.packets, picture, key, bytes: pes.payload.len() });
            by_slices.insert(slices, picture);
        }
        ensure!(by_slices.len() == units.len() && !units.is_empty(), "access units are missing or repeat");
        let ahead = units.iter().zip(0u32..).map(|(unit, place)| unit.picture.saturating_sub(place));
        Ok(Self { bytes, reorder: ahead.max().unwrap_or(0), units, by_slices })
    }

    /// Hands the stream over, each access unit at its time, the first at `start`; returns by how much the latest was
    /// late. Ends quietly when nobody reads any more.
    pub(crate) fn feed(&self, mut to: impl Write, start: Timestamp) -> Duration {
        let mut worst = Duration::ZERO;
        for (unit, place) in self.units.iter().zip(0u32..) {
            let due = start + Duration::from_secs(1) * place / FPS;
            wait_until(due);
            let Some(packets) = self.bytes.get(unit.packets.clone()) else { break };
            if to.write_all(packets).and_then(|()| to.flush()).is_err() {
                break;
            }
            worst = worst.max(freshwire_io::now().saturating_since(due));
        }
        worst
    }

    /// From the first access unit to that of a picture: when [`Self::feed`] hands it over.
    pub(crate) fn handed_over(&self, picture: u32) -> Option<Duration> {
        let place = self.units.iter().position(|unit| unit.picture == picture)?;
        Some(Duration::from_secs(1) * u32::try_from(place).ok()? / FPS)
    }

    /// Bytes of each access unit, without what MPEG-TS adds.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.units.iter().map(|unit| unit.bytes).collect()
    }

    /// When a picture was captured, in nanoseconds from the first one: the instant in a live encoder's life that its
    /// age counts from.
    pub(crate) fn captured_ns(picture: u32) -> u64 {
        u64::from(picture) * 1_000_000_000 / u64::from(FPS)
    }

    /// From the first capture to the first access unit: the encoder's reordering.
    pub(crate) fn reorder(&self) -> Duration {
        Duration::from_secs(1) * self.reorder / FPS
    }

    /// The numbers of all key pictures, rising.
    pub(super) fn keys(&self) -> Vec<u32> {
        self.units.iter().filter(|unit| unit.key).map(|unit| unit.picture).collect()
    }

    /// The number of the picture that `access_unit` (Annex B) is of; `None` unless all its slices are as they were
    /// encoded.
    pub(super) fn identify(&self, access_unit: &[u8]) -> Option<u32> {
        self.by_slices.get(&slices(access_unit, is_slice)).copied()
    }
}

/// Whether an access unit that is not of the clip repeats the picture before it: one slice in which every macroblock is skipped.
pub(super) fn is_repetition(access_unit: &[u8]) -> bool {
    let [0, 0, 0, 1, header, slice @ ..] = access_unit else { return false };
    let before = slice.strip_suffix(&ALL_SKIPPED).filter(|before| before.len() <= MOST_HEADER_BYTES);
    header & 31 == NON_IDR && before.is_some()
}

/// Reads the number in a picture's top rows, scaled to [`CODE_SIZE`].
pub(super) fn number(luma: &[u8]) -> Option<u32> {
    let (width, height) = CODE_SIZE;
    let cell = |row: usize, bit: usize| -> Option<bool> {
        let rows = luma.chunks_exact(width).skip(row * height / 2).take(height / 2);
        let sum: u32 =
            rows.flat_map(|row| row.iter().skip(bit * 2).take(2)).map(|luma| u32::from(*luma)).sum();
        // Mean levels from 96 to 160 are neither black nor white.
        match sum / 4 {
            0..96 => Some(false),
            161.. => Some(true),
            _ => None,
        }
    };
    if luma.len() != width * height {
        return None;
    }
    let mut value = 0;
    for bit in 0..BITS {
        let set = cell(0, bit)?;
        if cell(1, bit)? == set {
            return None;
        }
        value |= u32::from(set) << bit;
    }
    Some(value)
}

fn is_slice(header: u8) -> bool {
    matches!(header & 31, NON_IDR | IDR)
}

const NON_IDR: u8 = 1;
const IDR: u8 = 5;
/// The data of a slice, coded arithmetically, in which all of the clip's 3600 macroblocks are skipped.
const ALL_SKIPPED: [u8; 25] = [0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 0, 4, 0x9c];
const MOST_HEADER_BYTES: usize = 12;

/// A closed ladder of I, P, B and b pictures in real time's shape: the rate is kept over half a second.
fn encode(path: &Path, duration: Duration, rate_bps: u64) -> anyhow::Result<()> {
    let mut command = ffmpeg::command();
    command.args(["-y", "-f", "lavfi", "-i", &pattern(), "-t", &duration.as_secs().to_string()]);
    let encoder = format!(
        "-c:v libx264 -preset veryfast -b:v {rate_bps} -maxrate {rate_bps} -bufsize {} -x264-params \
         keyint={KEY_INTERVAL}:min-keyint={KEY_INTERVAL}:scenecut=0:bframes=3:b-pyramid=strict:b-adapt=0:aud=1 \
         -f mpegts -omit_video_pes_length 0 -muxdelay 0 -muxpreload 0",
        rate_bps / 2
    );
    ffmpeg::run(command.args(encoder.split(' ')).arg(ffmpeg::file(path)), "encode the stream")?;
    Ok(())
}

fn pattern() -> String {
    let mut filters = format!(
        "testsrc2=size={WIDTH}x{HEIGHT}:rate={FPS},format=yuv420p,drawbox=w={WIDTH}:h={CODE_ROWS}:color=black:t=fill"
    );
    for bit in 0..BITS {
        let (x, is_set) = (bit as u32 * CELL_WIDTH, format!("mod(floor(n/{})\\,2)", 1 << bit));
        for (y, when) in [(0, is_set.clone()), (CELL_HEIGHT, format!("1-{is_set}"))] {
            filters += &format!(
                ",drawbox=x={x}:y={y}:w={CELL_WIDTH}:h={CELL_HEIGHT}:color=white:t=fill:enable='{when}'"
            );
        }
    }
    filters
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn code(value: u32) -> Vec<u8> {
        let row = |invert: bool| {
            (0..BITS).flat_map(move |bit| [if (value >> bit & 1 == 1) != invert { 235 } else { 16 }; 2])
        };
        [false, false, true, true].into_iter().flat_map(row).collect()
    }

    #[test]
    fn numbers_are_read_and_damage_is_seen() {
        for value in [0, 1, 0x5a5a, 65_535] {
            assert_eq!(number(&code(value)), Some(value));
        }
        let with_complement = |luma: u8| {
            let mut code = code(7);
            code[64..66].fill(luma);
            code[96..98].fill(luma);
            code
        };
        assert_eq!(number(&with_complement(235)), None, "a bit that equals its complement");
        assert_eq!(number(&with_complement(128)), None, "neither black nor white");
        assert_eq!(number(&[0; 100]), None);
    }

    const PACKET_BYTES: usize = 188;

    /// A packet of the video's PID with a whole access unit of one slice in it.
    fn packet(ticks: u64, slice: &[u8]) -> Vec<u8> {
        let mut pes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5, 0x21 | (ticks >> 29) as u8 & 0x0e];
        pes.extend([
            (ticks >> 22) as u8,
            (ticks >> 14) as u8 | 1,
            (ticks >> 7) as u8,
            (ticks << 1) as u8 | 1,
        ]);
        pes.extend([0, 0, 0, 1, 9, 0xf0, 0, 0, 1]);
        pes.extend(slice);
        let stuffing = PACKET_BYTES - 5 - pes.len();
        let mut packet = vec![0x47, 0x41, 0, 0x30, stuffing as u8];
        packet.resize(5 + stuffing, 0xff);
        packet.extend(pes);
        packet
    }

    /// Five pictures, displayed 0, 3, 1, 2, 4; the first is a key picture. All slices differ.
    pub(in super::super) fn small_clip() -> Clip {
        let order = [(0u64, 0x65), (3, 0x41), (1, 0x21), (2, 0x01), (4, 0x41)];
        let table = [vec![0x47, 0x40, 0, 0x10], vec![0; PACKET_BYTES - 4]].concat();
        let packets =
            order.map(|(picture, head)| packet(7200 + picture * 3600, &[head, 0x80 + picture as u8]));
        Clip::parse([table, packets.concat()].concat()).unwrap()
    }

    #[test]
    fn access_units_keep_their_times_and_tables() {
        let clip = small_clip();
        let pictures: Vec<_> = clip.units.iter().map(|unit| unit.picture).collect();
        assert_eq!(pictures, [0, 3, 1, 2, 4]);
        assert_eq!(clip.units[0].packets, 0..2 * PACKET_BYTES, "the table goes with the first unit");
        assert_eq!((clip.reorder, clip.keys()), (2, vec![0]));
        assert_eq!(Clip::captured_ns(3), 120_000_000);
        assert_eq!(clip.handed_over(1), Some(Duration::from_millis(80)));
        assert_eq!((clip.handed_over(5), clip.sizes().len()), (None, 5));
    }

    #[test]
    fn an_access_unit_is_known_by_its_slices_alone() {
        let clip = small_clip();
        assert_eq!(clip.identify(&[0, 0, 1, 0x41, 0x83]), Some(3));
        assert_eq!(clip.identify(&[0, 0, 0, 1, 0x67, 1, 2, 0, 0, 0, 1, 0x41, 0x83, 0]), Some(3));
        assert_eq!(clip.identify(&[0, 0, 1, 0x41]), None, "torn");
        assert_eq!(clip.identify(&[]), None);
    }

    #[test]
    fn a_repetition_is_distinguished_from_a_torn_picture() {
        let repetition = [&[0, 0, 0, 1, 0x41, 0x9a, 0x21, 0xff][..], &ALL_SKIPPED].concat();
        assert!(is_repetition(&repetition));
        let torn = (5..repetition.len()).find(|&end| is_repetition(&repetition[..end]));
        assert_eq!(torn, None, "at any byte");
        let long = [&[0, 0, 0, 1, 0x41][..], &[0x9a; 13], &ALL_SKIPPED].concat();
        assert!(!is_repetition(&long), "more than a slice header before the data");
        assert!(!is_repetition(&[&[0, 0, 0, 1, 0x65, 0xff][..], &ALL_SKIPPED].concat()), "a key picture");
    }

    #[test]
    fn the_stream_is_handed_over_whole_and_in_time() {
        let clip = small_clip();
        let (begin, mut out) = (freshwire_io::now(), Vec::new());
        clip.feed(&mut out, begin);
        assert_eq!(out, clip.bytes);
        assert!(freshwire_io::now().saturating_since(begin) >= Duration::from_millis(160));
    }
}
