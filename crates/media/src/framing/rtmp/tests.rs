use std::collections::BTreeMap;

use super::super::clip::{self, Random};
use super::*;
use crate::unit::{AudioCodec, Unit};

const STREAM: u32 = 1;

/// A message as the reader finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    kind: u8,
    at: u32,
    body: Vec<u8>,
}

/// A reader that accepts nothing unusual.
#[derive(Default)]
struct Reader {
    open: BTreeMap<u8, (Found, usize, bool)>,
    found: Vec<Found>,
}

impl Reader {
    fn read(bytes: &[u8]) -> Vec<Found> {
        let mut reader = Self::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = reader.chunk(rest);
        }
        assert!(reader.open.is_empty(), "messages are whole");
        reader.found
    }

    fn chunk<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let number = |at: usize, len: usize| {
            bytes[at..at + len].iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
        };
        let (form, stream) = (bytes[0] >> 6, bytes[0] & 63);
        let mut at = 1;
        if form == 0 {
            let (time, len) = (number(1, 3), number(4, 3) as usize);
            assert_eq!(bytes[8..12], STREAM.to_le_bytes());
            at = 12;
            let extended = time == 0xff_ffff;
            let time = if extended { number(12, 4) } else { time };
            let message = Found { kind: bytes[7], at: time, body: Vec::new() };
            let before = self.open.insert(stream, (message, len, extended));
            assert!(before.is_none(), "a message that is not whole");
        } else {
            assert_eq!(form, 3, "headers are full, or say nothing");
        }
        let (message, len, extended) = self.open.get_mut(&stream).expect("a message begins first");
        if *extended {
            assert_eq!(number(at, 4), message.at);
            at += 4;
        }
        let count = (*len - message.body.len()).min(CHUNK_BYTES as usize);
        message.body.extend_from_slice(&bytes[at..at + count]);
        if message.body.len() == *len {
            let (message, ..) = self.open.remove(&stream).expect("it was there");
            self.found.push(message);
        }
        &bytes[at + count..]
    }
}

fn write(units: &[Unit], share: u8, seed: u64) -> (Vec<u8>, Vec<&Unit>) {
    let mut random = Random(seed);
    let mut framer = Rtmp::new(clip::catalog(units), STREAM);
    let kept = clip::kept(units, share, &mut random);
    let bytes =
        kept.iter().flat_map(|&index| clip::framed(&mut framer, index, &units[index], &mut random)).collect();
    (bytes, kept.into_iter().map(|index| &units[index]).collect())
}

/// The bytes of a unit with lengths for start codes.
fn with_lengths(unit: &Unit) -> Vec<u8> {
    let mut bytes = unit.bytes.clone();
    for nal in nals(&unit.head) {
        let at = nal.start as usize;
        bytes[at - 4..at].copy_from_slice(&(nal.end - nal.start).to_be_bytes());
    }
    bytes
}

fn is_sequence(message: &Found) -> bool {
    let first = message.body[0];
    let is_extended = match message.kind {
        8 => first >> 4 == 9,
        _ => first & 0x80 != 0,
    };
    (if is_extended { first & 15 } else { message.body[1] }) == 0
}

/// Every unit that was sent is there, whole and in its time.
fn check(bytes: &[u8], units: &[&Unit]) -> Vec<Found> {
    let found = Reader::read(bytes);
    let media: Vec<_> = found.iter().filter(|message| message.kind != 18 && !is_sequence(message)).collect();
    assert_eq!(media.len(), units.len());
    let origin = units[0].head.dts.as_nanos() - 1_000_000_000;
    let ticks = |time: MediaTime| MediaTime::from_nanos(time.as_nanos() - origin).ticks(1000) as u32;
    for (message, unit) in media.into_iter().zip(units) {
        let kind = if unit.head.kind == Kind::Video { 9 } else { 8 };
        assert_eq!((message.kind, message.at), (kind, ticks(unit.head.dts)));
        let body = with_lengths(unit);
        let (tag, payload) = message.body.split_at(message.body.len() - body.len());
        assert_eq!(payload, body);
        if kind == 9 {
            assert_eq!(tag[0] >> 4 & 7, if unit.head.key { 1 } else { 2 });
            let is_reordered = matches!(
                unit.head.tracks.video.as_ref().map(|video| &video.codec),
                Some(VideoCodec::H264 { .. } | VideoCodec::H265 { .. })
            );
            let offset = if is_reordered { &tag[tag.len() - 3..] } else { &[0; 3] };
            let offset = u32::from_be_bytes([0, offset[0], offset[1], offset[2]]);
            assert!(message.at.abs_diff(ticks(unit.head.pts) - offset) <= 1, "shown at its time");
        }
    }
    found
}

/// A file of the messages, as FLV 10.1 has it.
fn flv(messages: &[Found]) -> Vec<u8> {
    let mut file = b"FLV\x01\x05\0\0\0\x09\0\0\0\0".to_vec();
    for Found { kind, at, body } in messages {
        let skipped = if *kind == 18 { 3 + b"@setDataFrame".len() } else { 0 };
        let body = &body[skipped..];
        file.push(*kind);
        file.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
        file.extend_from_slice(&at.to_be_bytes()[1..]);
        file.extend_from_slice(&[at.to_be_bytes()[0], 0, 0, 0]);
        file.extend_from_slice(body);
        file.extend_from_slice(&(body.len() as u32 + 11).to_be_bytes());
    }
    file
}

#[test]
fn the_stream_is_whole_despite_drops() {
    for video in [clip::h264(), clip::h265(), clip::av1(), clip::vp9()] {
        let Some(video) = video else { continue };
        for sound in [clip::aac(), clip::opus()] {
            let (_, units) = clip::stream(Some(video.clone()), Some(sound));
            for seed in 0..20 {
                let (bytes, units) = write(&units, (seed * 12) as u8, seed);
                check(&bytes, &units);
            }
        }
    }
}

#[test]
fn sound_may_come_between_the_chunks_of_a_picture() {
    let Some((track, mut units)) = clip::h264() else { return };
    // Each picture has several chunks.
    for unit in &mut units {
        let len = unit.bytes.len() as u32;
        let filler = vec![12; 9000];
        unit.bytes.extend_from_slice(&[0, 0, 0, 1]);
        unit.bytes.extend(filler);
        unit.head.nals.push(len + 4..len + 9004);
        unit.head.nal_headers.push([12, 12]);
        unit.head.len = len + 9004;
    }
    let (_, units) = clip::stream(Some((track, units)), Some(clip::aac()));
    let mut overtook = 0;
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut framer = Rtmp::new(clip::catalog(&units), STREAM);
        let kept = clip::kept(&units, (seed * 9) as u8, &mut random);
        let framed = clip::framed_mixed(&mut framer, &units, &kept, &mut random);
        overtook += framed.iter().map(|(with, _)| with.len() - 1).sum::<usize>();
        let bytes: Vec<u8> = framed.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let found = Reader::read(&bytes);
        for (kind, number) in [(Kind::Video, 9), (Kind::Audio, 8)] {
            let payloads = found.iter().filter(|message| message.kind == number && !is_sequence(message));
            let sent = kept.iter().map(|&index| &units[index]).filter(|unit| unit.head.kind == kind);
            let (mut payloads, mut sent) = (payloads.map(|message| &message.body), sent.map(with_lengths));
            assert!(payloads.by_ref().zip(sent.by_ref()).all(|(body, unit)| body.ends_with(&unit)));
            assert!(payloads.next().is_none() && sent.next().is_none(), "{kind:?}");
        }
    }
    assert!(overtook > 20, "{overtook}");
}

#[test]
fn ffmpeg_plays_the_rest() {
    let Some(video) = clip::h264() else { return };
    let (_, units) = clip::stream(Some(video), Some(clip::aac()));
    for share in [0, 40, 70] {
        let (bytes, units) = write(&units, share, share.into());
        let file = flv(&check(&bytes, &units));
        for (kind, specifier) in [(Kind::Video, "v"), (Kind::Audio, "a")] {
            let units = units.iter().filter(|unit| unit.head.kind == kind);
            let count = units.clone().count();
            assert!(count > 4, "{count}");
            let Some(mut times) = clip::probed(&file, "flv", specifier) else { return };
            let expected: Vec<_> = units.map(|unit| unit.head.pts.as_nanos() as f64 / 1e9).collect();
            let shift = times[0] - expected[0];
            times.iter_mut().zip(&expected).for_each(|(time, expected)| *time -= expected + shift);
            assert_eq!(times.len(), count);
            assert!(times.iter().all(|error| error.abs() <= 2.1e-3), "{times:?}");
            assert_eq!(clip::decoded(&file, "flv", &format!("0:{specifier}")), Some(count));
        }
    }
}

#[test]
fn new_tracks_are_described_before_their_key_unit() {
    let (Some((first, one)), Some((_, two))) = (clip::h264(), clip::h264()) else { return };
    let (_, mut units) = clip::stream(Some((first, [one, two].concat())), None);
    let half = units.len() / 2;
    let mut other = (*units[0].head.tracks).clone();
    other.video.as_mut().expect("pictures").width = 64;
    let other = Arc::new(other);
    for (index, unit) in units.iter_mut().enumerate() {
        if index >= half {
            unit.head.tracks = Arc::clone(&other);
        }
        unit.head.dts = MediaTime::from_ticks(index as i64, 25);
        unit.head.pts = MediaTime::from_ticks(index as i64 + 2, 25);
    }
    let (bytes, _) = write(&units, 0, 1);
    let found = Reader::read(&bytes);
    let is_video_sequence = |message: &Found| message.kind == 9 && is_sequence(message);
    let places: Vec<_> = found.iter().enumerate().filter(|(_, message)| is_video_sequence(message)).collect();
    let [(1, _), (at, sequence)] = places[..] else { panic!("{places:?}") };
    assert_eq!(at, half + 3, "behind the metadata of each");
    assert_eq!(sequence.at, found[at + 1].at);
    assert_eq!(found[at + 1].body[0], 0x17, "a key follows");
    let width = |message: &Found| {
        let name = message.body.windows(5).position(|name| name == b"width").expect("a width");
        f64::from_be_bytes(message.body[name + 6..name + 14].try_into().expect("eight bytes"))
    };
    assert_eq!((found[0].kind, found[at - 1].kind), (18, 18));
    assert_ne!(width(&found[0]), width(&found[at - 1]));
    assert_eq!(width(&found[at - 1]), 64.0);
}

#[test]
fn repetitions_take_the_place_of_pictures_that_are_dropped() {
    let Some(video) = clip::h264() else { return };
    for sent in [1, 2, 5] {
        let (_, units) = clip::stream(Some(video.clone()), None);
        let mut framer = Rtmp::new(clip::catalog(&units), STREAM);
        let (bytes, pictures, replaced) =
            clip::framed_beginnings(&mut framer, &units, sent, &mut Random(sent as u64));
        assert_eq!(pictures, sent * 4);
        assert!((20..=4 * (16 - sent)).contains(&replaced), "{replaced} for {sent} of each group");
        let found = Reader::read(&bytes);
        assert_eq!(found.len(), 2 + pictures + replaced);
        assert_eq!(clip::decoded(&flv(&found), "flv", "0:v"), Some(pictures + replaced));
    }
}

/// Sound of these sizes that begins at this time.
fn filled(sizes: &[u32], begin_ms: i64) -> Vec<Unit> {
    let audio = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels: 2 };
    let tracks = Arc::new(Tracks { video: None, audio: Some(audio) });
    let unit = |(index, &len): (usize, &u32)| {
        let at = MediaTime::from_ticks(begin_ms + index as i64 * 20, 1000);
        let head = UnitHead {
            kind: Kind::Audio,
            pts: at,
            dts: at,
            duration_ns: 20_000_000,
            key: true,
            len,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: None,
            tracks: Arc::clone(&tracks),
        };
        Unit { head, layer: 0, group: 0, refs: [0, 0], bytes: vec![index as u8; len as usize] }
    };
    sizes.iter().enumerate().map(unit).collect()
}

#[test]
fn units_of_any_size_are_whole_messages() {
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(Vec<u16>, u8)>().for_each(
        |(sizes, share)| {
            let sizes: Vec<_> = sizes.iter().take(20).map(|&size| u32::from(size % 13_000) + 1).collect();
            let units = filled(&sizes, 0);
            let (bytes, units) = write(&units, *share, 1);
            if !units.is_empty() {
                check(&bytes, &units);
            }
        },
    );
}

#[test]
fn times_beyond_24_bits_have_a_field_of_their_own() {
    // 4 h 39 min 37 s, in two steps: the origin is that of the first unit.
    let mut units = filled(&[5, 9000, 9000], 0);
    for (unit, ms) in units.iter_mut().zip([0, 0xff_ffff - 1000 - 1, 0xff_ffff - 1000]) {
        (unit.head.pts, unit.head.dts) = (MediaTime::from_ticks(ms, 1000), MediaTime::from_ticks(ms, 1000));
    }
    let (bytes, written) = write(&units, 0, 1);
    let found = check(&bytes, &written);
    assert_eq!(found.last().map(|message| message.at), Some(0xff_ffff));
}

#[test]
fn units_that_cannot_be_carried_are_skipped() {
    let mut units = filled(&[10; 3], 0);
    let surround = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels: 6 };
    units[1].head.tracks = Arc::new(Tracks { video: None, audio: Some(surround) });
    units[2].head.len = 0x0100_0000;
    let mut random = Random(1);
    let mut framer = Rtmp::new(clip::catalog(&units), STREAM);
    let mut written = |seq: usize| !clip::framed(&mut framer, seq, &units[seq], &mut random).is_empty();
    assert!(written(0));
    assert!(!written(1), "channels that need a mapping");
    assert!(!written(2), "too long");
    let Some(video) = clip::h264() else { return };
    let (_, mut units) = clip::stream(Some(video), None);
    units[0].head.nals.pop();
    let mut framer = Rtmp::new(clip::catalog(&units), STREAM);
    let mut written = |seq: usize| !clip::framed(&mut framer, seq, &units[seq], &mut random).is_empty();
    assert!(!written(0), "bytes of no NAL unit");
    assert!(!written(1), "needs the key before it");
}
