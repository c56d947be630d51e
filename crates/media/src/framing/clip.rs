//! Small real streams for the tests of framings, and programs that judge what framings wrote.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::{Framer, Piece};
use crate::h264::AccessUnits;
use crate::testing::{PICTURES, encode, ivf, nals, run};
use crate::unit::{
    AudioCodec, AudioTrack, Catalog, Kind, MediaTime, Tracks, Unit, UnitHead, VideoCodec, VideoTrack,
};
use crate::video::{Format, Parser, Repeat};

/// How many frames ffmpeg decodes of the stream with this specifier, without any complaint.
pub(super) fn decoded(bytes: &[u8], format: &str, specifier: &str) -> Option<usize> {
    let arguments =
        ["-f", format, "-i", "-", "-map", specifier, "-vsync", "passthrough", "-f", "framecrc", "-"];
    let output = run("ffmpeg", &arguments, bytes)?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{complaints}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().filter(|line| !line.starts_with('#')).count())
}

/// Presentation times of the packets that ffprobe finds in a stream, in seconds.
pub(super) fn probed(bytes: &[u8], format: &str, specifier: &str) -> Option<Vec<f64>> {
    let arguments = [
        "-f",
        format,
        "-select_streams",
        specifier,
        "-show_entries",
        "packet=pts_time",
        "-of",
        "csv=p=0",
        "-",
    ];
    let output = run("ffprobe", &arguments, bytes)?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{complaints}");
    let text = String::from_utf8(output.stdout).unwrap();
    let times = text.lines().map(|line| line.trim_end_matches(',')).filter(|line| !line.is_empty());
    Some(times.map(|time| time.parse().unwrap()).collect())
}

/// Frames a second of the clips.
const RATE: i64 = 25;
const FRAME_NS: u32 = (1_000_000_000 / RATE) as u32;

/// Frames the first `sent` pictures of each group of a stream, with replacements for the others. Returns the
/// bytes, and the numbers of sent and of replaced pictures.
pub(super) fn framed_beginnings(
    framer: &mut dyn Framer,
    units: &[Unit],
    sent: usize,
    random: &mut Random,
) -> (Vec<u8>, usize, usize) {
    let (mut bytes, mut in_full, mut replaced, mut in_group) = (Vec::new(), 0, 0, 0);
    framer.preamble(&mut bytes);
    for (seq, unit) in units.iter().enumerate() {
        in_group = if unit.head.key { 1 } else { in_group + 1 };
        if in_group <= sent {
            bytes.extend(framed(framer, seq, unit, random));
            in_full += 1;
        } else {
            framer.missed(seq as u64);
            if random.next().is_multiple_of(3) {
                replaced += framer.replace(&mut bytes);
            }
        }
        if units.get(seq + 1).is_none_or(|next| next.head.key) {
            replaced += framer.replace(&mut bytes);
        }
    }
    (bytes, in_full, replaced)
}

/// A unit of pictures without layers, which depends on the one before it unless it is a key unit.
fn picture(index: usize, key: bool, bytes: Vec<u8>, nals: Vec<Range<u32>>) -> Unit {
    let at = MediaTime::from_ticks(index as i64, RATE as u32);
    let header = |nal: &Range<u32>| [bytes[nal.start as usize], bytes[nal.start as usize + 1]];
    let head = UnitHead {
        kind: Kind::Video,
        pts: at,
        dts: at,
        duration_ns: FRAME_NS,
        key,
        len: bytes.len() as u32,
        nal_headers: nals.iter().map(header).collect(),
        repeat: None,
        nals,
        tracks: Arc::default(),
    };
    Unit { head, layer: u8::from(!key), group: 0, refs: [u32::from(!key), 0], bytes }
}

/// How repetitions take the places of the pictures of a stream.
fn repeats(stream: &[u8], format: Format) -> impl Iterator<Item = Repeat> {
    let mut parser = Parser::new(format);
    parser.push(stream);
    parser.finish();
    parser.map_while(|unit| unit.unwrap().repeat)
}

/// NAL units in a row with four-byte start codes, and where each is.
fn annex_b(nals: &[&[u8]]) -> (Vec<u8>, Vec<Range<u32>>) {
    let mut bytes = Vec::new();
    let ranges = nals.iter().map(|nal| {
        bytes.extend_from_slice(&[0, 0, 0, 1]);
        let begin = bytes.len() as u32;
        bytes.extend_from_slice(nal);
        begin..bytes.len() as u32
    });
    let ranges = ranges.collect();
    (bytes, ranges)
}

type Pictures = (VideoTrack, Vec<Unit>);

fn track(codec: VideoCodec) -> VideoTrack {
    VideoTrack { codec, width: 192, height: 128 }
}

/// H.264 with a ladder of B pictures, in decoding order.
pub(super) fn h264() -> Option<Pictures> {
    let x264 = "bframes=3:b-pyramid=strict:keyint=16:scenecut=0:threads=1:slices=2";
    let stream = encode(&["-c:v", "libx264", "-x264-params", x264], "h264")?;
    let mut splitter = AccessUnits::new(1 << 20);
    splitter.push(&stream);
    splitter.finish();
    let pictures: Vec<_> = splitter.map(Result::unwrap).collect();
    let mut order: Vec<_> = pictures.iter().map(|unit| unit.display).collect();
    order.sort_unstable();
    let mut repeats = repeats(&stream, Format::H264);
    let nal = |kind| {
        let first = &pictures[0];
        let nal = first.nals.iter().find(|nal| nal.kind == kind).unwrap();
        first.bytes[nal.range.clone()].to_vec()
    };
    let codec = VideoCodec::H264 { sps: nal(7), pps: nal(8) };
    let units = pictures.iter().enumerate().map(|(index, unit)| {
        let nals: Vec<_> = unit.nals.iter().map(|nal| &unit.bytes[nal.range.clone()]).collect();
        let (bytes, ranges) = annex_b(&nals);
        let shown = order.binary_search(&unit.display).unwrap() as i64 + 2;
        let mut picture = picture(index, unit.idr, bytes, ranges);
        picture.head.pts = MediaTime::from_ticks(shown, RATE as u32);
        picture.head.repeat = repeats.next();
        assert!(picture.head.repeat.is_some());
        Unit { layer: unit.layer, group: unit.group, refs: unit.refs, ..picture }
    });
    let units = units.collect();
    Some((track(codec), units))
}

/// H.265, each picture in one slice and from the one before.
pub(super) fn h265() -> Option<Pictures> {
    let x265 = "bframes=0:keyint=16:scenecut=0:slices=1:log-level=error";
    let stream = encode(&["-c:v", "libx265", "-x265-params", x265], "hevc")?;
    let mut open: Vec<&[u8]> = Vec::new();
    let (mut units, mut sets) = (Vec::new(), [const { Vec::new() }; 3]);
    let mut repeats = repeats(&stream, Format::H265);
    for nal in nals(&stream) {
        open.push(nal);
        match nal[0] >> 1 {
            kind @ 0..32 => {
                let (bytes, ranges) = annex_b(&open);
                let mut picture = picture(units.len(), (16..24).contains(&kind), bytes, ranges);
                picture.head.repeat = repeats.next();
                assert!(picture.head.repeat.is_some());
                units.push(picture);
                open.clear();
            }
            kind @ 32..35 => sets[usize::from(kind) - 32] = nal.to_vec(),
            _ => {}
        }
    }
    let [vps, sps, pps] = sets;
    Some((track(VideoCodec::H265 { vps, sps, pps }), units))
}

pub(super) fn vp9() -> Option<Pictures> {
    let options = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-lag-in-frames", "0"];
    let file = encode(&[&options[..], &["-auto-alt-ref", "0", "-g", "16"]].concat(), "ivf")?;
    let frames = ivf(&file).into_iter().enumerate();
    let units =
        frames.map(|(index, frame)| picture(index, frame[0] & 4 == 0, frame.to_vec(), Vec::new())).collect();
    Some((track(VideoCodec::Vp9 { profile: 0, bit_depth: 8 }), units))
}

pub(super) fn av1() -> Option<Pictures> {
    let options = ["-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-lag-in-frames", "0"];
    let file = encode(&[&options[..], &["-g", "16"]].concat(), "ivf")?;
    let mut sequence_header = Vec::new();
    let mut units = Vec::new();
    for frame in ivf(&file) {
        let unit = frame.strip_prefix(&[0x12, 0]).expect("a temporal delimiter");
        let key = unit[0] == 0x0a;
        if key {
            sequence_header = unit[..2 + usize::from(unit[1])].to_vec();
        }
        units.push(picture(units.len(), key, unit.to_vec(), Vec::new()));
    }
    Some((track(VideoCodec::Av1 { sequence_header }), units))
}

/// Silence: the track, a frame's bytes and how many samples it lasts.
pub(super) struct Sound {
    pub(super) track: AudioTrack,
    frame: &'static [u8],
    samples: i64,
}

pub(super) fn aac() -> Sound {
    let codec = AudioCodec::Aac { config: vec![0x11, 0x90] };
    let frame = &[0x21, 0x00, 0x49, 0x90, 0x02, 0x19, 0x00, 0x23, 0x80];
    Sound { track: AudioTrack { codec, rate: 48_000, channels: 2 }, frame, samples: 1024 }
}

pub(super) fn opus() -> Sound {
    let track = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels: 2 };
    Sound { track, frame: &[0xfc, 0xff, 0xfe], samples: 960 }
}

/// The units of both tracks in the order of their decode times. Their first media time is far from zero.
pub(super) fn stream(video: Option<Pictures>, sound: Option<Sound>) -> (Arc<Tracks>, Vec<Unit>) {
    let (video, mut units) = video.unzip();
    let tracks = Arc::new(Tracks { video, audio: sound.as_ref().map(|sound| sound.track.clone()) });
    let units = units.get_or_insert_default();
    for index in 0..sound.as_ref().map_or(0, |sound| PICTURES as i64 * 1920 / sound.samples) {
        let sound = sound.as_ref().unwrap();
        let at = |index| MediaTime::from_ticks(index * sound.samples, 48_000);
        let mut unit = picture(0, true, sound.frame.to_vec(), Vec::new());
        (unit.head.pts, unit.head.dts, unit.head.kind) = (at(index), at(index), Kind::Audio);
        unit.head.duration_ns = (at(index + 1).as_nanos() - at(index).as_nanos()) as u32;
        units.push(unit);
    }
    units.sort_by_key(|unit| unit.head.dts);
    for unit in &mut *units {
        let shifted = |time: MediaTime| MediaTime::from_nanos(time.as_nanos() + BEGIN_NS);
        (unit.head.pts, unit.head.dts) = (shifted(unit.head.pts), shifted(unit.head.dts));
        unit.head.tracks = Arc::clone(&tracks);
    }
    (tracks, std::mem::take(units))
}

const BEGIN_NS: i64 = 12_345_678_901_234;

/// Units by number that a policy lets through which drops about `share` of 256 at random, with all that depends on them.
pub(super) fn kept(units: &[Unit], share: u8, random: &mut Random) -> Vec<usize> {
    let mut lost = BTreeSet::new();
    let mut kept = Vec::new();
    let mut pictures = 0;
    for (index, unit) in units.iter().enumerate() {
        let mut dropped = (random.next() as u8) < share;
        if unit.head.kind == Kind::Video {
            dropped |= unit.refs.iter().any(|&back| back > 0 && lost.contains(&(pictures - back)));
            if dropped {
                lost.insert(pictures);
            }
            pictures += 1;
        }
        if !dropped {
            kept.push(index);
        }
    }
    kept
}

/// A small generator of pseudo-random numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// A catalog with all units, each under its index.
pub(super) fn catalog(units: &[Unit]) -> Arc<Catalog> {
    let catalog = Catalog::new(units.len());
    for (seq, unit) in units.iter().enumerate() {
        catalog.add(seq as u64, Arc::new(unit.head.clone()));
    }
    Arc::new(catalog)
}

/// What a framer makes of one unit, in pieces of random sizes.
pub(super) fn framed(framer: &mut dyn Framer, seq: usize, unit: &Unit, random: &mut Random) -> Vec<u8> {
    framer.begin(seq as u64, unit.head.len);
    pieces(framer, unit, random, |_, _, _| {})
}

/// Likewise, of those `kept`; a unit may overtake the one before it. What each took with it, its own bytes and perhaps those
/// of the one that overtook it.
pub(super) fn framed_mixed(
    framer: &mut dyn Framer,
    units: &[Unit],
    kept: &[usize],
    random: &mut Random,
) -> Vec<(Vec<usize>, Vec<u8>)> {
    let mut framed = Vec::new();
    let mut kept = kept.iter().copied().peekable();
    while let Some(seq) = kept.next() {
        let mut with = vec![seq];
        framer.begin(seq as u64, units[seq].head.len);
        let bytes = pieces(framer, &units[seq], random, |framer, random, bytes| {
            while let Some(other) =
                kept.next_if(|&other| random.next() % 4 == 0 && framer.can_overtake(other as u64))
            {
                assert!(!framer.can_overtake(seq as u64) && units[other].head.kind != units[seq].head.kind);
                framer.begin(other as u64, units[other].head.len);
                bytes.extend(pieces(framer, &units[other], random, |framer, _, _| {
                    assert!(!framer.can_overtake(seq as u64), "a third one");
                }));
                with.push(other);
            }
        });
        assert_eq!(framer.next(1000, &mut Vec::new()), None);
        assert!(!framer.can_overtake(seq as u64), "none is in progress");
        framed.push((with, bytes));
    }
    framed
}

/// The pieces of the unit in progress; `between` them something else may be added.
fn pieces(
    framer: &mut dyn Framer,
    unit: &Unit,
    random: &mut Random,
    mut between: impl FnMut(&mut dyn Framer, &mut Random, &mut Vec<u8>),
) -> Vec<u8> {
    let (mut bytes, mut read) = (Vec::new(), 0);
    loop {
        let mut prefix = b"what was there".to_vec();
        let max = random.next() as usize % 2000 + 1;
        let Piece { payload, last, boundary } = framer.next(max, &mut prefix).expect("until the last");
        let added = prefix.strip_prefix(b"what was there").expect("framers only add");
        assert!(last || added.len() + payload.len() > 0, "no progress");
        assert!(payload.start >= read || payload.is_empty(), "payload in order");
        assert!(boundary || !last);
        read = payload.end.max(read);
        bytes.extend_from_slice(added);
        bytes.extend_from_slice(&unit.bytes[payload.start as usize..payload.end as usize]);
        if last {
            return bytes;
        }
        between(framer, random, &mut bytes);
    }
}
