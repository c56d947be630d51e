use bolero::{check, produce};

use super::*;
use crate::demux::{Demux, tests::check_promises};
use crate::rtmp::amf0::{self, object};
use crate::testing::{ITERATIONS, ivf, made};
use crate::unit::{Kind, Unit, VideoCodec};

/// An hour before 32 bits of milliseconds are full.
const LATE: u32 = u32::MAX - 1000;

/// The tags of an FLV file: type, time, body.
fn tags(file: &[u8]) -> Vec<(u8, u32, &[u8])> {
    let mut rest = &file[13..];
    let mut tags = Vec::new();
    while let [kind, a, b, c, d, e, f, g, _, _, _, after @ ..] = rest {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        tags.push((*kind, u32::from_be_bytes([*g, *d, *e, *f]), &after[..len]));
        rest = &after[len + 4..];
    }
    tags
}

fn push(flv: &mut Flv, (kind, time, body): (u8, u32, &[u8])) {
    match kind {
        8 => flv.audio(time, body),
        9 => flv.video(time, body),
        _ => flv.data(&amf0::read_all(body).expect("metadata")),
    }
}

fn read(tags: &[(u8, u32, &[u8])]) -> (Vec<Event>, Flv) {
    let mut flv = Flv::new(Config::default(), MediaTime::from_nanos(0));
    tags.iter().for_each(|tag| push(&mut flv, *tag));
    flv.finish();
    let events: Vec<Event> = flv.by_ref().collect();
    check_promises(&events);
    (events, flv)
}

fn units<'a>(events: &'a [Event], kind: Kind) -> Vec<&'a Unit> {
    let unit = |event: &'a Event| match event {
        Event::Unit(unit) if unit.head.kind == kind => Some(unit),
        Event::Unit(_) | Event::Tracks(_) => None,
    };
    events.iter().filter_map(unit).collect()
}

/// The same pictures and sound in a container, by ffmpeg: B pictures and AAC.
fn clip(muxer: &str) -> Option<Vec<u8>> {
    let video = ["-f", "lavfi", "-i", "testsrc2=size=96x64:rate=25"];
    let audio = ["-f", "lavfi", "-i", "sine=sample_rate=44100", "-t", "3"];
    let coded = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "3", "-g", "25", "-c:a", "aac"];
    made(&[&video[..], &audio, &coded, &["-flags", "+bitexact", "-f", muxer, "-"]].concat())
}

#[test]
fn ffmpegs_tags_give_what_its_transport_stream_gives() {
    let (Some(flv), Some(ts)) = (clip("flv"), clip("mpegts")) else { return };
    let (events, reader) = read(&tags(&flv));
    let mut demux = Demux::new(Config::default());
    demux.push(&ts);
    demux.finish();
    let expected: Vec<Event> = demux.map(|event| event.expect("readable")).collect();
    assert!(matches!(&events[0], Event::Tracks(tracks) if tracks.audio.is_some() && tracks.video.is_some()));
    assert_eq!((reader.faults(), reader.skipped()), (Faults::default(), &[][..]));
    // One origin for both tracks, so that they stay together.
    let start = |events: &[Event]| units(events, Kind::Video)[0].head.pts.as_nanos();
    let (first, other) = (start(&events), start(&expected));
    for (kind, count) in [(Kind::Video, 75), (Kind::Audio, 131)] {
        let (ours, theirs) = (units(&events, kind), units(&expected, kind));
        assert_eq!((ours.len(), theirs.len()), (count, count), "{kind:?}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(
                (&ours.bytes, ours.head.key, ours.refs),
                (&theirs.bytes, theirs.head.key, theirs.refs)
            );
            let distance = (ours.head.pts.as_nanos() - first) - (theirs.head.pts.as_nanos() - other);
            assert!(distance.abs() <= 2_000_000, "{distance}");
        }
    }
}

#[test]
fn times_go_on_where_32_bits_end() {
    let Some(file) = clip("flv") else { return };
    let mut late = tags(&file);
    late.iter_mut().for_each(|(_, time, _)| *time = time.wrapping_add(LATE));
    let (ours, theirs) = (read(&late), read(&tags(&file)));
    assert_eq!(ours.0, theirs.0);
    assert_eq!(ours.1.faults().jumps, 0);
}

#[test]
fn another_size_in_mid_stream_changes_the_track() {
    let Some(file) = clip("flv") else { return };
    let larger = made(&[
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=192x128:rate=25",
        "-frames:v",
        "30",
        "-c:v",
        "libx264",
        "-pix_fmt",
        "yuv420p",
        "-f",
        "flv",
        "-",
    ]);
    let Some(larger) = larger else { return };
    let mut both = tags(&file);
    both.extend(tags(&larger).into_iter().map(|(kind, time, body)| (kind, time + 3000, body)));
    let (events, flv) = read(&both);
    let widths = events.iter().filter_map(|event| match event {
        Event::Tracks(tracks) => tracks.video.as_ref().map(|video| video.width),
        Event::Unit(_) => None,
    });
    assert_eq!(widths.collect::<Vec<_>>(), [96, 192]);
    assert_eq!((units(&events, Kind::Video).len(), flv.faults().undecodable), (105, 0));
}

/// Enhanced tags of AV1 and VP9, in the times of [`LATE`].
#[test]
fn enhanced_tags_give_units() {
    let av1 = include_bytes!("../../video/fixtures/hierarchical.av1.ivf");
    let vp9 = include_bytes!("../../video/fixtures/layers.vp9.ivf");
    for (file, code) in [(&av1[..], b"av01"), (&vp9[..], b"vp09")] {
        let frames = ivf(file);
        let mut bodies: Vec<Vec<u8>> = vec![[&[0x90][..], code, &[0x81, 0, 0, 0]].concat()];
        bodies.extend(frames.iter().map(|frame| [&[0x91][..], code, frame].concat()));
        let tags: Vec<_> =
            bodies.iter().zip(0..).map(|(body, at)| (9, LATE.wrapping_add(40 * at), &body[..])).collect();
        let (events, flv) = read(&tags);
        let units = units(&events, Kind::Video);
        assert_eq!((units.len(), flv.faults().undecodable), (frames.len(), 0));
        assert!(
            units
                .windows(2)
                .all(|pair| pair[1].head.pts.as_nanos() - pair[0].head.pts.as_nanos() == 40_000_000)
        );
        let codec = &events.iter().find_map(|event| match event {
            Event::Tracks(tracks) => tracks.video.clone(),
            Event::Unit(_) => None,
        });
        let codec = &codec.as_ref().expect("announced").codec;
        assert_eq!(matches!(codec, VideoCodec::Av1 { .. }), code == b"av01");
    }
}

#[test]
fn a_stream_without_headers_says_what_it_lacks() {
    let Some(file) = clip("flv") else { return };
    let all = tags(&file);
    let (events, flv) =
        read(&all.iter().copied().filter(|(_, _, body)| body.get(1) != Some(&0)).collect::<Vec<_>>());
    assert!(events.is_empty());
    assert_eq!(flv.complaint(), "no sequence header has come");
    let keyless =
        all.iter().copied().filter(|(kind, _, body)| *kind == 9 && (body[0] >> 4 == 2 || body[1] == 0));
    let (events, flv) = read(&keyless.collect::<Vec<_>>());
    assert!(events.is_empty() && flv.complaint().starts_with("no keyframe has come; 72 pictures"), "{flv:?}");
    let (_, flv) = read(&[(8, 0, &[0x2f, 1, 2]), (8, 20, &[0x2f, 1, 2])]);
    assert_eq!(flv.complaint(), "no sequence header has come; sound in MP3");
}

#[test]
fn damage_costs_pictures_and_not_the_stream() {
    let Some(file) = clip("flv") else { return };
    let all = tags(&file);
    let at = all
        .iter()
        .rposition(|(kind, _, body)| *kind == 9 && body[0] >> 4 == 1 && body[1] == 1)
        .expect("a key");
    let mut bodies: Vec<Vec<u8>> = all.iter().map(|(_, _, body)| body.to_vec()).collect();
    // A length beyond the end, in the picture before the last key picture.
    let before = all[..at].iter().rposition(|(kind, ..)| *kind == 9).expect("a picture");
    bodies[before][5..9].fill(0xff);
    let tags: Vec<_> =
        all.iter().zip(&bodies).map(|((kind, time, _), body)| (*kind, *time, &body[..])).collect();
    let (events, flv) = read(&tags);
    assert_eq!((units(&events, Kind::Video).len(), flv.faults().damaged), (74, 1));
}

#[test]
fn metadata_says_which_tracks_to_wait_for() {
    let metadata = object([("videocodecid", 7.0.into()), ("audiocodecid", "mp4a".into())]);
    let mut flv = Flv::new(Config::default(), MediaTime::from_nanos(0));
    flv.data(&["onMetaData".into(), metadata]);
    flv.audio(0, &[0xaf, 0, 0x12, 0x10]);
    (0..20).for_each(|at| flv.audio(at * 23, &[0xaf, 1, 0x21, 0x10]));
    assert!(flv.next().is_none(), "pictures come as well");
    for (codec, format) in [(12.0, Format::H265), (f64::from(u32::from_be_bytes(*b"av01")), Format::Av1)] {
        assert_eq!(announced(&codec.into()), Some(format));
    }
    assert_eq!((announced(&f64::NAN.into()), announced(&"VP6".into())), (None, None));
}

/// Any tags keep the promises of units.
#[test]
fn any_tags() {
    let starts: [&[u8]; 12] = [
        b"\x17\0\0\0\0\x01\x42\xc0\x1e\xff\xe1",
        b"\x17\x01\0\0\0\0\0\0\x01",
        b"\x27\x01\0\0\x28\0\0\0\x04",
        b"\x90hvc1\x01",
        b"\x91av01\x12\0\x0a\x0a",
        b"\x90av01\x81\0\0\0",
        b"\x91vp09\x82\x49\x83\x42",
        b"\x97\0\0\x11avc1",
        b"\xaf\0\x12\x10",
        b"\xaf\x01\x21",
        b"\x90OpusOpusHead\x01\x02",
        b"\x91Opus\xfc",
    ];
    let tags = produce::<Vec<(u8, u32, Vec<u8>)>>().with().len(0..12usize);
    check!().with_iterations(ITERATIONS).with_generator(tags).for_each(|tags| {
        let mut flv =
            Flv::new(Config { max_unit_bytes: 4096, ..Config::default() }, MediaTime::from_nanos(0));
        for (choice, time, rest) in tags {
            let start = starts.get(usize::from(choice % 16)).copied().unwrap_or_default();
            let body = [start, rest].concat();
            if choice & 16 == 0 { flv.video(*time, &body) } else { flv.audio(*time, &body) }
        }
        flv.finish();
        check_promises(&flv.collect::<Vec<_>>());
    });
}
