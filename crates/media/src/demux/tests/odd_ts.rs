//! Transport streams as encoders, muxers and receivers make them.

use super::*;
use crate::mpeg_ts::checksum;

const VIDEO: u16 = 0x100;
const MAP: u16 = 0x1000;
/// Ticks of the clock between two pictures.
const STEP: u64 = 3600;

/// Access units of [`CLIP`]'s pictures that nothing reorders: the key pictures and what refers to them.
fn pictures() -> Vec<Vec<u8>> {
    let events = read(CLIP);
    let video = units(&events, Kind::Video);
    let kept = video.iter().filter(|unit| unit.head.key);
    // Each begins a group of its own, so that any number of them in any order can be decoded.
    let keys: Vec<_> = kept.map(|unit| unit.bytes.clone()).collect();
    (0..24).map(|at| keys[at % keys.len()].clone()).collect()
}

/// A stream of a program: its kind, its PID, its descriptors.
type Stream<'a> = (u8, u16, &'a [u8]);

/// A program: its number, the PID of its map, its streams.
type Program<'a> = (u16, u16, &'a [Stream<'a>]);

/// Writes packets.
#[derive(Default)]
struct Mux {
    bytes: Vec<u8>,
    counters: std::collections::BTreeMap<u16, u8>,
}

impl Mux {
    fn packets(&mut self, pid: u16, mut payload: &[u8]) {
        let mut start = 0x40;
        while !payload.is_empty() {
            let (part, rest) = payload.split_at(payload.len().min(182));
            payload = rest;
            let counter = self.counters.entry(pid).or_default();
            self.bytes.extend([SYNC, start | (pid >> 8) as u8, pid as u8, 0x30 | *counter]);
            *counter = (*counter + 1) & 15;
            start = 0;
            let stuffing = 183 - part.len();
            self.bytes.push(stuffing as u8);
            self.bytes.push(0);
            self.bytes.extend(vec![0xff; stuffing - 1]);
            self.bytes.extend(part);
        }
    }

    fn section(&mut self, pid: u16, table: u8, extension: u16, body: &[u8], wrong: bool) {
        let len = body.len() as u16 + 9;
        let mut section = vec![0, table, 0xb0 | (len >> 8) as u8, len as u8];
        section.extend(extension.to_be_bytes());
        section.extend([0xc1, 0, 0]);
        section.extend(body);
        let sum = checksum(&section[1..]) ^ u32::from(wrong);
        section.extend(sum.to_be_bytes());
        self.packets(pid, &section);
    }

    /// The tables of programs, each with the streams of its map: kind, PID, descriptors.
    fn tables(&mut self, programs: &[Program<'_>], wrong: bool) {
        let entry =
            |(number, pid, _): &Program<'_>| [number.to_be_bytes(), (0xe000 | pid).to_be_bytes()].concat();
        let table: Vec<u8> = programs.iter().flat_map(entry).collect();
        self.section(0, 0, 1, &table, wrong);
        for (number, pid, streams) in programs {
            let mut body = vec![0xe1, 0, 0xf0, 0];
            for (kind, pid, descriptors) in *streams {
                body.push(*kind);
                body.extend((0xe000 | pid).to_be_bytes());
                body.extend([0xf0, descriptors.len() as u8]);
                body.extend(*descriptors);
            }
            if !streams.is_empty() {
                self.section(*pid, 2, *number, &body, wrong);
            }
        }
    }

    fn pes(&mut self, pid: u16, time: Option<u64>, bytes: &[u8]) {
        let mut packet = vec![0, 0, 1, 0xe0, 0, 0, 0x80];
        match time {
            None => packet.extend([0, 0]),
            Some(t) => packet.extend([
                0x80,
                5,
                0x21 | (t >> 29) as u8 & 14,
                (t >> 22) as u8,
                (t >> 14) as u8 | 1,
                (t >> 7) as u8,
                (t << 1) as u8 | 1,
            ]),
        }
        packet.extend(bytes);
        self.packets(pid, &packet);
    }
}

/// A stream with one program and its tables now and then, and PES packets as `parts` cuts the pictures.
fn stream(parts: &[(Option<u64>, Vec<u8>)]) -> Vec<u8> {
    let mut mux = Mux::default();
    for (at, (time, bytes)) in parts.iter().enumerate() {
        if at % 8 == 0 {
            mux.tables(&[(1, MAP, &[(0x1b, VIDEO, &[])])], false);
        }
        mux.pes(VIDEO, *time, bytes);
    }
    mux.bytes
}

fn at(picture: usize) -> Option<u64> {
    Some(90_000 + picture as u64 * STEP)
}

/// Each picture comes once, whole, and 40 ms behind the one before.
fn check(stream: &[u8], what: &str) {
    let pictures = pictures();
    let events = read(stream);
    check_promises(&events);
    let got = units(&events, Kind::Video);
    assert!(got.len() + 1 >= pictures.len(), "{what}: {} of {}", got.len(), pictures.len());
    let first = pictures.len() - got.len();
    for (unit, picture) in got.iter().zip(&pictures[first..]) {
        assert!(unit.bytes == *picture, "{what}: {} bytes of {}", unit.bytes.len(), picture.len());
    }
    let steps: Vec<_> = got
        .windows(2)
        .map(|pair| (pair[1].head.pts.as_nanos() - pair[0].head.pts.as_nanos() + 500_000) / 1_000_000)
        .collect();
    assert!(steps.iter().all(|step| *step == 40), "{what}: {steps:?}");
}

#[test]
fn pictures_are_whole_however_pes_packets_cut_them() {
    let pictures = pictures();
    let aligned: Vec<_> = pictures.iter().enumerate().map(|(n, it)| (at(n), it.clone())).collect();
    check(&stream(&aligned), "one in each");
    let threes: Vec<_> =
        pictures.chunks(3).zip((0..).step_by(3)).map(|(it, n)| (at(n), it.concat())).collect();
    check(&stream(&threes), "three in each");
    // A PES packet's time is that of the first picture that begins in it.
    let mut rest = Vec::new();
    let mut halves = Vec::new();
    for (n, picture) in pictures.iter().enumerate() {
        let (begin, end) = picture.split_at(picture.len() / 2);
        halves.push((at(n), [&rest, begin].concat()));
        rest = end.to_vec();
    }
    halves.push((None, rest));
    check(&stream(&halves), "from the middle to the middle");
    let nals = |(n, picture): (usize, &Vec<u8>)| {
        let nals = crate::testing::nals(picture).into_iter();
        nals.map(move |nal| (at(n), [&[0, 0, 0, 1], nal].concat())).collect::<Vec<_>>()
    };
    check(&stream(&pictures.iter().enumerate().flat_map(nals).collect::<Vec<_>>()), "a NAL unit in each");
}

#[test]
fn times_that_are_missing_follow_from_those_that_are_there() {
    let pictures = pictures();
    for (every, what) in [(2, "every second"), (8, "every eighth")] {
        let parts = pictures.iter().enumerate().map(|(n, it)| (at(n).filter(|_| n % every == 0), it.clone()));
        check(&stream(&parts.collect::<Vec<_>>()), what);
    }
}

/// What nobody has said for sure is measured: 24 pictures a second where the stream itself says 25.
#[test]
fn the_clock_is_believed_before_the_stream() {
    let parts: Vec<_> = pictures()
        .into_iter()
        .enumerate()
        .map(|(n, it)| (Some(90_000 + n as u64 * 3750).filter(|_| n % 6 == 0), it))
        .collect();
    let events = read(&stream(&parts));
    let got = units(&events, Kind::Video);
    let since = |unit: &Unit| unit.head.pts.as_nanos() - got[0].head.pts.as_nanos();
    for (n, unit) in got.iter().enumerate().skip(6) {
        let expected = n as i64 * 1_000_000_000 / 24;
        assert!((since(unit) - expected).abs() < 2_000_000, "{n}: {} for {expected}", since(unit));
    }
}

#[test]
fn the_first_program_that_has_video_is_read() {
    let sound: &[Stream<'_>] = &[(0x04, 0x301, &[])];
    let video: &[Stream<'_>] = &[(0x1b, VIDEO, &[])];
    let other: &[Stream<'_>] = &[(0x1b, 0x400, &[])];
    let hevc_like: &[Stream<'_>] = &[(0x06, 0x120, b"\x05\x04KLVA"), (0x1b, VIDEO, &[])];
    let programs: [&[Program<'_>]; 4] = [
        &[(1, MAP, video), (2, MAP, other), (3, MAP, sound)],
        &[(1, 0xf00, &[]), (2, MAP, video)],
        &[(1, 0xf00, sound), (2, MAP, video)],
        &[(7, MAP, hevc_like)],
    ];
    for (case, programs) in programs.into_iter().enumerate() {
        let mut mux = Mux::default();
        for (n, picture) in pictures().iter().enumerate() {
            if n % 8 == 0 {
                mux.tables(programs, false);
            }
            mux.pes(VIDEO, at(n), picture);
        }
        check(&mux.bytes, &format!("programs {case}"));
    }
}

#[test]
fn tables_whose_sender_cannot_count_are_read() {
    let mut mux = Mux::default();
    for _ in 0..2 {
        mux.tables(&[(1, MAP, &[(0x1b, VIDEO, &[])])], true);
    }
    // The map's PID is known from the second table on.
    mux.tables(&[(1, MAP, &[(0x1b, VIDEO, &[])])], true);
    for (n, picture) in pictures().iter().enumerate() {
        mux.pes(VIDEO, at(n), picture);
    }
    check(&mux.bytes, "wrong checksums");
}

#[test]
fn packets_may_have_bytes_around_them() {
    let parts: Vec<_> = pictures().into_iter().enumerate().map(|(n, it)| (at(n), it)).collect();
    let bare = stream(&parts);
    let packets = bare.chunks(188);
    let m2ts: Vec<u8> =
        packets.clone().zip(0u32..).flat_map(|(it, n)| [&n.to_be_bytes(), it].concat()).collect();
    check(&m2ts, "192 bytes");
    let coded: Vec<u8> = packets.flat_map(|it| [it, &[0; 16]].concat()).collect();
    check(&coded, "204 bytes");
}

/// Byte streams behind what is none, and from the middle of a picture on.
#[test]
fn a_byte_stream_is_found_behind_something_else() {
    let whole: Vec<u8> = pictures().concat();
    let damaged = [b"warning: camera is slow to start\n".repeat(40).as_slice(), &whole].concat();
    for (what, bytes) in [("text", &damaged[..]), ("the middle", &whole[100..])] {
        let got = read(bytes);
        assert!(units(&got, Kind::Video).len() + 2 >= pictures().len(), "{what}");
    }
}

#[test]
fn unreadable_tracks_are_reported() {
    let mut demux = Demux::new(Config::default());
    let mut mux = Mux::default();
    for _ in 0..4 {
        mux.packets(0x1ffe, &[9; 180]);
    }
    demux.push(&mux.bytes);
    assert_eq!(demux.complaint(), "it has no table of programs (PAT)");
    let mut mux = Mux::default();
    mux.tables(&[(1, MAP, &[(0x02, VIDEO, &[])])], false);
    demux.push(&mux.bytes);
    assert_eq!(demux.complaint(), "it has nothing but MPEG-1 or MPEG-2 video (PID 256)");
    let mut demux = Demux::new(Config::default());
    let mut mux = Mux::default();
    mux.tables(&[(1, MAP, &[(0x1b, VIDEO, &[])])], false);
    mux.pes(VIDEO, at(0), &[0, 0, 1, 9, 0xf0]);
    let encrypted: Vec<u8> = mux
        .bytes
        .chunks(188)
        .flat_map(|it| {
            let mut packet = it.to_vec();
            packet[3] |= if packet[1] & 0x1f == 1 && packet[2] == 0 { 0xc0 } else { 0 };
            packet
        })
        .collect();
    demux.push(&encrypted);
    assert_eq!(demux.complaint(), "it is encrypted");
}
