//! A live stream of equal key pictures in MPEG-TS, at any rate: where only bytes and times matter, no encoder is needed.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use freshwire_io::now;

const PACKET: usize = 188;
const SYNC: u8 = 0x47;
const TABLE_PID: u16 = 0x1000;
const VIDEO_PID: u16 = 0x100;
const STARTS_UNIT: u8 = 0x40;
const HAS_PAYLOAD: u8 = 0x10;
const HAS_BOTH: u8 = 0x30;

/// Ticks a second of presentation times (ISO 13818-1).
const TICKS: f64 = 90_000.0;

/// The first picture is shown this long after the stream's begin, in ticks.
const FIRST: u64 = 90_000;

/// Bytes of the smallest picture: it fills more than a packet.
const LEAST: usize = 1000;

/// Before each picture: access unit delimiter, sequence and picture parameter set of 1280x720 by x264, and the head of a key slice.
const HEAD: [u8; 50] = [
    0, 0, 0, 0x01, 0x09, 0xf0, 0, 0, 0, 0x01, 0x67, 0x42, 0xc0, 0x1f, 0xdc, 0x05, 0, 0x5b, 0xb0, 0x11, 0, 0,
    0x03, 0, 0x01, 0, 0, 0x03, 0, 0x32, 0x0f, 0x18, 0x33, 0x80, 0, 0, 0, 0x01, 0x68, 0xce, 0x0f, 0x2c, 0x80,
    0, 0, 0, 0x01, 0x65, 0x88, 0x84,
];

/// The packets of one picture, tables included.
pub(crate) struct Steady {
    packets: Vec<u8>,
    /// Where in them the clock's and the picture's time are.
    times: [usize; 2],
    counters: [u8; 3],
}

impl Steady {
    /// Pictures of that number of bytes, at least [`LEAST`].
    pub(crate) fn new(bytes: usize) -> Self {
        let mut picture = HEAD.to_vec();
        // Without zeroes: nothing in it looks like a start code.
        picture.extend((HEAD.len()..bytes.max(LEAST)).map(|place| (place % 251) as u8 + 1));
        let mut pes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5, 0x21, 0, 1, 0, 1];
        pes.extend(picture);
        let mut packets =
            table(0, &[0, 0, 1, 0xc1, 0, 0, 0, 1, 0xe0 | (TABLE_PID >> 8) as u8, TABLE_PID as u8]);
        let [high, low] = VIDEO_PID.to_be_bytes();
        packets.extend(table(
            TABLE_PID,
            &[2, 0, 1, 0xc1, 0, 0, 0xe0 | high, low, 0xf0, 0, 0x1b, 0xe0 | high, low, 0xf0, 0],
        ));
        let first = packets.len();
        // The first packet has the clock.
        let clock = [7, 0x50, 0, 0, 0, 0, 0x7e, 0];
        let room = PACKET - 4 - clock.len();
        let (begin, mut rest) = pes.split_at(room.min(pes.len()));
        packets.extend([SYNC, STARTS_UNIT | high, low, HAS_BOTH]);
        packets.extend(clock);
        packets.extend(begin);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(PACKET - 4));
            let missing = PACKET - 4 - piece.len();
            packets.extend([SYNC, high, low, if missing > 0 { HAS_BOTH } else { HAS_PAYLOAD }]);
            match missing {
                0 => {}
                1 => packets.push(0),
                _ => {
                    packets.extend([(missing - 1) as u8, 0]);
                    packets.extend(std::iter::repeat_n(0xff, missing - 2));
                }
            }
            packets.extend(piece);
            rest = after;
        }
        Self { packets, times: [first + 6, first + 4 + clock.len() + 9], counters: [0; 3] }
    }

    /// The packets of the next picture, which is shown at `ticks`.
    fn at(&mut self, ticks: u64) -> &[u8] {
        let [clock, shown] = self.times;
        // The clock is behind the picture's time by what a decoder may take: nothing.
        let base = ticks << 7;
        self.packets[clock..clock + 4].copy_from_slice(&((base >> 8) as u32).to_be_bytes());
        self.packets[clock + 4] = (base as u8) | 0x7e;
        let part = |shift: u32, bits: u64| (ticks >> shift & bits) as u8;
        let time = [
            0x21 | part(30, 7) << 1,
            part(22, 255),
            part(15, 127) << 1 | 1,
            part(7, 255),
            part(0, 127) << 1 | 1,
        ];
        self.packets[shown..shown + 5].copy_from_slice(&time);
        for packet in self.packets.chunks_exact_mut(PACKET) {
            let counter = match u16::from_be_bytes([packet[1] & 0x1f, packet[2]]) {
                0 => &mut self.counters[0],
                TABLE_PID => &mut self.counters[1],
                _ => &mut self.counters[2],
            };
            packet[3] = packet[3] & 0xf0 | *counter & 15;
            *counter = counter.wrapping_add(1);
        }
        &self.packets
    }

    /// Writes a picture each `interval` until `stop` is set or the reader ends. One that is due while the reader takes none is left out,
    /// as a camera does. Returns how many were written and how many left out.
    pub(crate) fn feed(mut self, mut to: impl Write, interval: Duration, stop: &AtomicBool) -> [u64; 2] {
        let begin = now();
        let (mut next, mut counts) = (0_u64, [0, 0]);
        while !stop.load(Ordering::Relaxed) {
            let due = interval.mul_f64(next as f64);
            std::thread::sleep(due.saturating_sub(now().saturating_since(begin)));
            let ticks = FIRST + (due.as_secs_f64() * TICKS) as u64;
            if to.write_all(self.at(ticks)).and_then(|()| to.flush()).is_err() {
                break;
            }
            counts[0] += 1;
            let present = (now().saturating_since(begin).as_secs_f64() / interval.as_secs_f64()) as u64;
            // A wake-up may be late by a few pictures; those are caught up.
            let late = present.saturating_sub(next + CAUGHT_UP);
            counts[1] += late;
            next += 1 + late;
        }
        counts
    }
}

/// Pictures that may be due at once.
const CAUGHT_UP: u64 = 25;

/// A table's packet; `content` begins with the table's number and ends before the checksum.
fn table(pid: u16, content: &[u8]) -> Vec<u8> {
    let [number, content @ ..] = content else { return Vec::new() };
    let length = content.len() + 4;
    let mut section = vec![*number, 0xb0, length as u8];
    section.extend(content);
    section.extend(checksum(&section).to_be_bytes());
    let [high, low] = pid.to_be_bytes();
    let mut packet = vec![SYNC, STARTS_UNIT | high, low, HAS_PAYLOAD, 0];
    packet.extend(section);
    packet.resize(PACKET, 0xff);
    packet
}

/// The checksum of a table (ISO 13818-1, annex A).
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte) << 24, |sum, _| {
            sum << 1 ^ if sum >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use freshwire_media::demux::{Config, Demux, Event};

    use super::*;

    #[test]
    fn the_server_reads_each_picture_as_it_was_made() {
        for bytes in [LEAST, 41_906, 65_536, 500_000] {
            let mut steady = Steady::new(bytes);
            let mut stream = Vec::new();
            for picture in 0..20 {
                stream.extend(steady.at(FIRST + 3600 * picture));
            }
            let mut demux = Demux::new(Config::default());
            demux.push(&stream);
            demux.finish();
            let mut times = Vec::new();
            for event in demux.by_ref() {
                if let Event::Unit(unit) = event.unwrap() {
                    assert!(unit.head.key, "{bytes}");
                    // Its start codes and the delimiter may be gone.
                    assert!(
                        (bytes - 30..=bytes).contains(&unit.bytes.len()),
                        "{bytes}: {}",
                        unit.bytes.len()
                    );
                    times.push(unit.head.pts.ticks(90_000));
                }
            }
            let expected: Vec<i64> = (0..20).map(|picture| (FIRST + 3600 * picture) as i64).collect();
            assert_eq!(times, expected, "{bytes}");
        }
    }
}
