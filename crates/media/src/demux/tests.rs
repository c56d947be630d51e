//! Real streams, whole, cut and damaged.

mod ffmpeg;
mod odd_ts;

use std::sync::Arc;

use super::*;
use crate::rtp::Packets;
use crate::testing::ivf;
use crate::unit::{AudioCodec, AudioTrack, Kind, MediaTime, Tracks, Unit, VideoCodec};

/// 30 pictures of H.264 with B pictures and 52 frames of AAC, made by
/// `ffmpeg -f lavfi -i testsrc=s=64x48:r=25 -f lavfi -i sine=r=44100 -t 1.2 -c:v libx264 -preset veryfast -pix_fmt yuv420p
/// -bf 3 -g 12 -x264-params b-pyramid=strict:scenecut=0 -c:a aac -b:a 24k -f mpegts clip.ts`.
const CLIP: &[u8] = include_bytes!("tests/clip.ts");

/// 20 temporal units, two of them with key frames.
const AV1: &[u8] = include_bytes!("../video/fixtures/hierarchical.av1.ivf");

/// 20 frames of two temporal layers.
const VP9: &[u8] = include_bytes!("../video/fixtures/layers.vp9.ivf");

/// 20 pictures of VP9 and 41 frames of Opus, each in a fragment of its own, made by
/// `ffmpeg -f lavfi -i testsrc=s=64x48:r=25 -f lavfi -i sine=r=48000 -t 0.8 -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -pix_fmt
/// yuv420p -g 12 -b:v 60k -c:a libopus -b:a 16k -movflags delay_moov+default_base_moof -frag_duration 1 clip.mp4`.
const MP4: &[u8] = include_bytes!("tests/clip.mp4");

fn read_in_pieces<'a>(demux: &mut Demux, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Event> {
    let mut events = Vec::new();
    for piece in pieces {
        demux.push(piece);
        events.extend(demux.by_ref().map(|event| event.expect("readable")));
    }
    demux.finish();
    events.extend(demux.by_ref().map(|event| event.expect("readable")));
    events
}

fn read(bytes: &[u8]) -> Vec<Event> {
    read_in_pieces(&mut Demux::new(Config::default()), std::iter::once(bytes))
}

fn units<'a>(events: &'a [Event], kind: Kind) -> Vec<&'a Unit> {
    let unit = |event: &'a Event| match event {
        Event::Unit(unit) if unit.head.kind == kind => Some(unit),
        Event::Unit(_) | Event::Tracks(_) => None,
    };
    events.iter().filter_map(unit).collect()
}

/// Checks what [`Unit`] promises of every stream.
pub(super) fn check_promises(events: &[Event]) {
    assert!(events.is_empty() || matches!(events[0], Event::Tracks(_)));
    let mut tracks = None;
    let mut last = [MediaTime::from_nanos(i64::MIN); 2];
    let (mut counts, mut group) = ([0_u32; 2], None);
    for event in events {
        let unit = match event {
            Event::Tracks(new) => {
                assert!(tracks.as_ref() != Some(new));
                tracks = Some(Arc::clone(new));
                continue;
            }
            Event::Unit(unit) => unit,
        };
        let head = &unit.head;
        assert!(Arc::ptr_eq(tracks.as_ref().expect("announced"), &head.tracks));
        let track = usize::from(head.kind == Kind::Audio);
        assert!(head.dts >= last[track] && head.pts >= head.dts && head.duration_ns >= 1);
        last[track] = head.dts;
        assert!(unit.refs.iter().all(|&distance| distance <= counts[track]));
        counts[track] += 1;
        assert_eq!((head.len as usize, head.nals.len()), (unit.bytes.len(), head.nal_headers.len()));
        for (nal, header) in head.nals.iter().zip(&head.nal_headers) {
            let nal = &unit.bytes[nal.start as usize..nal.end as usize];
            assert_eq!([0, 1].map(|at| nal.get(at).copied().unwrap_or(0)), *header);
        }
        if head.kind == Kind::Video {
            assert!(group.is_none_or(|before| unit.group == before + u32::from(head.key)));
            group = Some(unit.group);
        } else {
            assert_eq!(unit.group, group.unwrap_or(unit.group));
        }
    }
}

#[test]
fn a_transport_stream_gives_both_tracks() {
    let events = read(CLIP);
    check_promises(&events);
    let Event::Tracks(tracks) = &events[0] else { panic!("no tracks first") };
    let video = tracks.video.as_ref().expect("has video");
    assert_eq!((video.width, video.height), (64, 48));
    assert_eq!(tracks.audio.as_ref().map(|audio| (audio.rate, audio.channels)), Some((44_100, 1)));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Tracks(_))).count(), 1);
    let video = units(&events, Kind::Video);
    assert_eq!(video.len(), 30);
    assert_eq!(video.iter().map(|unit| unit.head.key).filter(|key| *key).count(), 3);
    assert!(video.iter().all(|unit| unit.head.duration_ns == 40_000_000));
    assert!(units(&events, Kind::Audio).len() >= 52);
}

#[test]
fn units_are_the_same_however_the_stream_is_cut() {
    let whole = read(CLIP);
    bolero::check!().with_iterations(40).with_type::<(u16, Vec<u16>)>().for_each(|(first, cuts)| {
        let mut rest = CLIP;
        let mut pieces = Vec::new();
        for &cut in std::iter::once(first).chain(cuts) {
            let (piece, after) = rest.split_at(usize::from(cut % 700).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.extend(rest.chunks(usize::from(first % 997) + 1));
        let got = read_in_pieces(&mut Demux::new(Config::default()), pieces.into_iter());
        assert!(got == whole);
    });
}

#[test]
fn a_lost_packet_costs_the_unit_it_belongs_to() {
    let whole = read(CLIP);
    let (all_video, all_audio) = (units(&whole, Kind::Video), units(&whole, Kind::Audio));
    let mut losses = [0; 2];
    for lost in 3..CLIP.len() / 188 - 1 {
        let damaged: Vec<u8> = [&CLIP[..lost * 188], &CLIP[(lost + 1) * 188..]].concat();
        let mut demux = Demux::new(Config::default());
        let events = read_in_pieces(&mut demux, damaged.chunks(188));
        check_promises(&events);
        let (video, audio) = (units(&events, Kind::Video), units(&events, Kind::Audio));
        let same = |unit: &Unit, other: &Unit| unit.bytes == other.bytes && unit.head.pts == other.head.pts;
        assert!(audio.iter().all(|unit| all_audio.iter().any(|other| same(unit, other))), "packet {lost}");
        // A picture may begin with parameter sets that went missing with the one before.
        let ends = |unit: &Unit, other: &Unit| {
            let last = |unit: &Unit| unit.bytes[unit.head.nals.last().unwrap().start as usize..].to_vec();
            last(unit) == last(other) && unit.head.pts == other.head.pts
        };
        assert!(video.iter().all(|unit| all_video.iter().any(|other| ends(unit, other))), "packet {lost}");
        let missing = [all_video.len() - video.len(), all_audio.len() - audio.len()];
        assert!(missing[0] <= 13 && missing[1] <= 16, "packet {lost}: {missing:?}");
        // A loss shows by what comes after it, and not at the begin, which may be anywhere in a stream.
        let shows = audio[0].bytes == all_audio[0].bytes
            && audio.last().unwrap().bytes == all_audio.last().unwrap().bytes
            && video.last().unwrap().bytes == all_video.last().unwrap().bytes;
        let faults = demux.faults();
        assert!(missing == [0; 2] || !shows || faults.damaged + faults.undecodable > 0, "packet {lost}");
        losses = [0, 1].map(|at| losses[at] + usize::from(missing[at] > 0));
    }
    assert!(losses[0] > 20 && losses[1] > 3, "{losses:?}");
}

#[test]
fn bytes_that_are_missing_or_too_many_are_survived() {
    let whole = read(CLIP);
    let damages: [(&[u8], usize); 3] = [(b"", 40), (b"not a packet at all", 0), (&[0x47; 300], 7)];
    for (extra, missing) in damages {
        let at = CLIP.len() / 2 + 50;
        let damaged = [&CLIP[..at], extra, &CLIP[at + missing..]].concat();
        let mut demux = Demux::new(Config::default());
        let events = read_in_pieces(&mut demux, damaged.chunks(100));
        check_promises(&events);
        let newest = |events: &[Event]| units(events, Kind::Video).last().map(|unit| unit.bytes.clone());
        assert_eq!(newest(&events), newest(&whole));
        assert!(units(&events, Kind::Video).len() >= 17);
    }
}

#[test]
fn a_stream_that_is_joined_in_the_middle_begins_with_a_key() {
    let events = read(&CLIP[1000..]);
    check_promises(&events);
    assert!(units(&events, Kind::Video)[0].head.key);
    assert_eq!(units(&events, Kind::Video).len(), 18);
}

#[test]
fn a_stream_that_begins_again_goes_on_in_time() {
    let mut demux = Demux::new(Config::default());
    let events = read_in_pieces(&mut demux, [CLIP, CLIP, CLIP].into_iter());
    check_promises(&events);
    assert_eq!(demux.faults().jumps, 2);
    for (kind, count, span) in [(Kind::Video, 90, 3_600), (Kind::Audio, 156, 3_600)] {
        let units = units(&events, kind);
        assert!(units.len().abs_diff(count) <= 3, "{kind:?}: {}", units.len());
        let times: Vec<_> = units.iter().map(|unit| unit.head.dts.as_nanos() / 1_000_000).collect();
        let whole = times[times.len() - 1] - times[0];
        assert!((whole - span).abs() < 200, "{kind:?}: {whole} ms");
        // The sound of the clip is longer than its pictures, which wait for it.
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] < 200), "{kind:?}: {times:?}");
    }
}

#[test]
fn av1_in_ivf_gives_temporal_units() {
    let events = read(AV1);
    check_promises(&events);
    let Event::Tracks(tracks) = &events[0] else { panic!("no tracks first") };
    let video = tracks.video.as_ref().expect("has video");
    assert!(matches!(&video.codec, VideoCodec::Av1 { sequence_header } if sequence_header[0] == 0x0a));
    assert_eq!((video.width, video.height, &tracks.audio), (96, 64, &None));
    let video = units(&events, Kind::Video);
    let times: Vec<_> = video.iter().map(|unit| (unit.head.pts.ticks(25), unit.head.dts.ticks(25))).collect();
    assert_eq!(times, (0..20).map(|number| (number, number)).collect::<Vec<_>>());
    assert_eq!(video.iter().filter(|unit| unit.head.key).count(), 2);
    for (unit, frame) in video.iter().zip(ivf(AV1)) {
        let mut end = 0;
        for obu in &unit.head.nals {
            assert_eq!(obu.start, end, "one after the other");
            end = obu.end;
        }
        assert_eq!(end, unit.head.len);
        let packets = Packets::new(Arc::new(unit.head.clone()), 0).map(|mut plan| plan.next_packet(1000));
        assert!(matches!(packets, Ok(Some(_))), "it can go over RTP");
        assert_eq!(unit.bytes, frame.strip_prefix(&[0x12, 0]).expect("a temporal delimiter"));
    }
}

#[test]
fn a_fragmented_mp4_gives_pictures_and_sound_as_they_come() {
    let events = read(MP4);
    check_promises(&events);
    let Event::Tracks(tracks) = &events[0] else { panic!("no tracks first") };
    let video = tracks.video.as_ref().expect("has video");
    assert!(matches!(video.codec, VideoCodec::Vp9 { .. }));
    let sound = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels: 1 };
    assert_eq!((video.width, video.height, &tracks.audio), (64, 48, &Some(sound)));
    assert_eq!((units(&events, Kind::Video).len(), units(&events, Kind::Audio).len()), (20, 41));
    let byte_by_byte = read_in_pieces(&mut Demux::new(Config::default()), MP4.chunks(1));
    assert!(byte_by_byte == events);
    // Neither of the two waits for more of the other than belongs to the same time.
    let mut demux = Demux::new(Config::default());
    let mut newest = [MediaTime::from_nanos(0); 2];
    for piece in MP4.chunks(100) {
        demux.push(piece);
        for event in demux.by_ref() {
            if let Event::Unit(unit) = event.expect("readable") {
                newest[unit.head.kind as usize] = unit.head.pts;
            }
        }
        assert!((newest[0].ticks(1000) - newest[1].ticks(1000)).abs() <= 80, "{newest:?}");
    }
}

#[test]
fn faults_of_an_mp4_are_reported() {
    let boxed = |kind: &[u8], body: &[u8]| [&(body.len() as u32 + 8).to_be_bytes(), kind, body].concat();
    let begin = boxed(b"ftyp", b"iso5\0\0\0\0");
    let find = |kind: &[u8]| MP4.windows(4).position(|window| window == kind).expect("there") - 4;
    let (moov, moof) = (find(b"moov"), find(b"moof"));
    let tracks = &MP4[moov..moof];
    let mut beyond = MP4.to_vec();
    // The size of the first sample.
    let size = find(b"tfhd") + 20;
    beyond[size..size + 4].copy_from_slice(&5000_u32.to_be_bytes());
    let mut long = MP4.to_vec();
    let at = moof as u64;
    long[moof..moof + 4].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
    let limit = Config::default().max_unit_bytes;
    let mut other = MP4.to_vec();
    for codec in [b"vp09", b"Opus"] {
        let entry = find(codec) + 4;
        other[entry..entry + 4].copy_from_slice(b"none");
    }
    let (mut open, after) = (MP4.to_vec(), find(b"mdat") as u64);
    open[moof..moof + 4].copy_from_slice(&0_u32.to_be_bytes());
    for (bytes, expected) in [
        ([&begin[..], &boxed(b"mdat", &[0; 100])].concat(), Mp4Error::NotFragmented),
        ([&begin[..], &boxed(b"moov", &[0; 100])].concat(), damaged(16, "a moov that cannot be read")),
        (
            [&begin[..], tracks, &boxed(b"moof", &[9; 9])].concat(),
            damaged(begin.len() as u64 + tracks.len() as u64, "a moof that cannot be read"),
        ),
        (other, Mp4Error::NoTrack),
        (beyond, damaged(after, "a sample outside of its mdat")),
        (long, Mp4Error::TooLarge { at, len: 0x7fff_ffff, limit }),
        (open, damaged(at, "a box that goes on to the end of the file")),
    ] {
        let mut demux = Demux::new(Config::default());
        demux.push(&bytes);
        let error = demux.find_map(Result::err);
        assert_eq!(error, Some(DemuxError::Mp4(expected)));
    }
}

fn damaged(at: u64, what: &'static str) -> Mp4Error {
    Mp4Error::Damaged { at, what }
}

/// The clip with the table that says it has sound, and no packet of it.
fn silent() -> Vec<u8> {
    let is_sound = |packet: &&[u8]| packet[1] & 0x1f == 1 && packet[2] == 1;
    CLIP.chunks(188).filter(|packet| !is_sound(packet)).flatten().copied().collect()
}

#[test]
fn tracks_are_announced_after_a_second_without_sound() {
    let silent = silent();
    let mut demux = Demux::new(Config::default());
    let first: Vec<Event> = silent
        .chunks(188)
        .map(|packet| {
            demux.push(packet);
            demux.by_ref().map(Result::unwrap).collect()
        })
        .find(|events: &Vec<Event>| !events.is_empty())
        .expect("before the end");
    check_promises(&first);
    let Event::Tracks(tracks) = &first[0] else { panic!("no tracks first") };
    assert!(tracks.video.is_some() && tracks.audio.is_none());
    // 26 times 40 ms is the first that is more than a second.
    assert_eq!(units(&first, Kind::Video).len(), 27);

    let late = read_in_pieces(&mut Demux::new(Config::default()), [&silent[..], CLIP].into_iter());
    check_promises(&late);
    let sound: Vec<bool> = late
        .iter()
        .filter_map(
            |event| if let Event::Tracks(tracks) = event { Some(tracks.audio.is_some()) } else { None },
        )
        .collect();
    assert_eq!(sound, [false, true], "sound that comes late is announced");
}

#[test]
fn tracks_are_announced_after_a_while_without_pictures() {
    let sound = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels: 2 };
    let mut assembler = Assembler::new(Config::default(), Some(Format::H264), Some(sound.clone()));
    for number in 0..126 {
        assembler.audio(vec![0xfc, 0xff, 0xfe], MediaTime::from_ticks(number, 50));
        assert_eq!(assembler.next(), None, "frame {number}");
    }
    assembler.audio(vec![0xfc, 0xff, 0xfe], MediaTime::from_ticks(126, 50));
    let events: Vec<Event> = assembler.collect();
    assert_eq!(events[0], Event::Tracks(Arc::new(Tracks { video: None, audio: Some(sound) })));
    assert_eq!(units(&events, Kind::Audio).len(), 127);
}

#[test]
fn another_format_goes_on_with_the_next_group() {
    let sound = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels: 2 };
    let mut assembler = Assembler::new(Config::default(), Some(Format::Vp9), Some(sound));
    let add = |assembler: &mut Assembler, from: i64, frames: &[&[u8]]| {
        for (frame, number) in frames.iter().zip(from..) {
            let at = MediaTime::from_ticks(number, 25);
            assembler.video(frame, Given::Both { pts: at, dts: at });
        }
    };
    let (vp9, av1) = (ivf(VP9), ivf(AV1));
    add(&mut assembler, 0, &vp9[1..2]);
    add(&mut assembler, 1, &vp9);
    assembler.audio(vec![0xfc, 0xff, 0xfe], MediaTime::from_ticks(20, 25));
    assembler.expect_video(Some(Format::Av1));
    assembler.expect_audio(false);
    add(&mut assembler, 21, &av1);
    assert_eq!(
        assembler.faults(),
        Faults { undecodable: 1, ..Faults::default() },
        "the frame before the key"
    );
    let events: Vec<Event> = assembler.collect();
    check_promises(&events);
    assert_eq!(units(&events, Kind::Video).len(), 40);
    let announced = events.iter().filter_map(|event| match event {
        Event::Tracks(tracks) => Some((tracks.video.is_some(), tracks.audio.is_some())),
        Event::Unit(_) => None,
    });
    assert_eq!(announced.collect::<Vec<_>>(), [(true, true), (true, false)]);
}

#[test]
fn other_data_than_a_stream_is_refused() {
    for (bytes, expected) in [
        (&b"<html><body>404 Not Found</body></html>".repeat(30)[..], DemuxError::Unknown),
        (b"", DemuxError::Unknown),
        (&[0; 100], DemuxError::Unknown),
        (&CLIP[..188 * 4], DemuxError::Nothing),
        (b"DKIF", DemuxError::Ivf(IvfError::Cut)),
    ] {
        let mut demux = Demux::new(Config::default());
        demux.push(bytes);
        demux.finish();
        assert_eq!(demux.collect::<Vec<_>>(), [Err(expected)]);
    }
}

#[test]
fn arbitrary_bytes_do_no_harm() {
    bolero::check!().with_iterations(600).with_type::<(u8, Vec<u8>, u16)>().for_each(|(kind, bytes, at)| {
        let is_mp4 = kind % 2 == 1;
        let clip = if is_mp4 { MP4 } else { CLIP };
        let at = usize::from(*at) % clip.len();
        let bytes = match kind / 2 % 6 {
            0 => bytes.clone(),
            1 => [&[0, 0, 0, 1, 0x67], &bytes[..]].concat(),
            2 => [&[0, 0, 1, 0x40, 1], &bytes[..]].concat(),
            3 => [b"DKIF\0\0\x20\0VP90\x40\0\x30\0\x19\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0", &bytes[..]].concat(),
            4 => [&clip[..at], bytes, &clip[at..]].concat(),
            _ => {
                let mut damaged = clip.to_vec();
                for (number, byte) in bytes.iter().enumerate() {
                    let at = (at + number * 577) % clip.len();
                    damaged[at] ^= byte;
                }
                damaged
            }
        };
        let mut demux = Demux::new(Config { max_unit_bytes: 5000, frame_ns: None });
        let mut events = Vec::new();
        for piece in bytes.chunks(at % 3000 + 1) {
            demux.push(piece);
            events.extend(demux.by_ref().filter_map(Result::ok));
        }
        demux.finish();
        events.extend(demux.filter_map(Result::ok));
        check_promises(&events);
    });
}
