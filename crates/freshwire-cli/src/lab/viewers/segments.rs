//! How full the data segments of a capture are (pcapng, as the emulated link writes it).

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

/// Data segments from the near end, counted before the link drops any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segments {
    /// Segments with payload.
    pub(super) data: u64,
    /// Those with the largest payload of the capture.
    pub(super) full: u64,
    /// Those with less, after which the sender paused: it had nothing more to send.
    pub(super) last: u64,
    /// The largest payload in bytes.
    pub(super) full_bytes: usize,
}

/// Data that comes this long after other data was not there to be sent with it.
const PAUSE_NS: u64 = 100_000_000;

impl Segments {
    /// Counts those sent from `port`.
    pub(super) fn count(capture: &[u8], port: u16) -> anyhow::Result<Self> {
        let frames = near_frames(capture)?;
        let sizes = frames.iter().filter_map(|frame| {
            let bytes = payload_bytes(frame.bytes, port).filter(|&bytes| bytes > 0)?;
            Some((frame.at_ns, bytes))
        });
        let sizes: Vec<(u64, usize)> = sizes.collect();
        let full_bytes = sizes.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        let mut segments = Self { data: sizes.len() as u64, full_bytes, ..Self::default() };
        for (place, &(at, bytes)) in sizes.iter().enumerate() {
            let next = sizes.get(place + 1).map_or(u64::MAX, |&(at, _)| at);
            if bytes == full_bytes {
                segments.full += 1;
            } else if next.saturating_sub(at) > PAUSE_NS {
                segments.last += 1;
            }
        }
        Ok(segments)
    }

    /// The share of full segments while there was data to fill them; `None` when there was none.
    pub(super) fn full_share(&self) -> Option<f64> {
        let fillable = self.data - self.last;
        (fillable > 0).then(|| self.full as f64 / fillable as f64)
    }
}

/// A packet and when it passed.
struct Frame<'a> {
    at_ns: u64,
    bytes: &'a [u8],
}

/// The frames of interface 0, the near side, in both directions.
fn near_frames(mut capture: &[u8]) -> anyhow::Result<Vec<Frame<'_>>> {
    let mut frames = Vec::new();
    while !capture.is_empty() {
        let kind = word(capture, 0).context("a block has no kind")?;
        let length = word(capture, 4).context("a block has no length")? as usize;
        ensure!(length >= 12, "a block of {length} bytes");
        let Some((block, rest)) = capture.split_at_checked(length) else { bail!("a block is cut off") };
        if kind == ENHANCED_PACKET && word(block, 8) == Some(0) {
            let bytes = word(block, 20).context("a packet has no length")? as usize;
            let (high, low) = word(block, 12).zip(word(block, 16)).context("a packet has no time")?;
            let bytes = block.get(28..).and_then(|rest| rest.get(..bytes)).context("a packet is cut off")?;
            frames.push(Frame { at_ns: u64::from(high) << 32 | u64::from(low), bytes });
        }
        capture = rest;
    }
    Ok(frames)
}

const ENHANCED_PACKET: u32 = 6;

/// In this machine's byte order, which is that of whoever wrote the capture.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Payload of an Ethernet frame that is TCP over IPv4 from `port`.
fn payload_bytes(frame: &[u8], port: u16) -> Option<usize> {
    let packet = frame.get(14..)?;
    let [0x45, _, high, low, ..] = packet else { return None };
    if *packet.get(9)? != TCP {
        return None;
    }
    let segment = packet.get(20..usize::from(u16::from_be_bytes([*high, *low])))?;
    let header = usize::from(*segment.get(12)? >> 4) * 4;
    (segment.get(..2)? == port.to_be_bytes()).then(|| segment.len().checked_sub(header))?
}

const TCP: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (body.len() + 12) as u32;
        [&kind.to_ne_bytes()[..], &length.to_ne_bytes(), body, &length.to_ne_bytes()].concat()
    }

    /// A packet on an interface at a time in milliseconds: TCP from a port with a payload, no options.
    fn packet(interface: u32, at: u64, port: u16, payload: usize) -> Vec<u8> {
        let mut ip = vec![0; 40 + payload];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(40 + payload as u16).to_be_bytes());
        ip[9] = TCP;
        ip[20..22].copy_from_slice(&port.to_be_bytes());
        ip[32] = 5 << 4;
        let frame = [vec![0; 14], ip].concat();
        let length = frame.len() as u32;
        let at = at * 1_000_000;
        let words = [interface, (at >> 32) as u32, at as u32, length, length];
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4), 0);
        block(ENHANCED_PACKET, &body)
    }

    #[test]
    fn full_segments_are_those_of_the_largest_size() {
        let capture = [
            block(0x0a0d_0d0a, &[0; 16]),
            packet(0, 0, 80, 100),
            packet(0, 10, 80, 1448),
            packet(0, 20, 80, 1448),
            packet(0, 21, 80, 0),
            packet(0, 22, 81, 1448),
            packet(1, 23, 80, 1448),
            packet(0, 30, 80, 200),
            packet(0, 400, 80, 1448),
            packet(0, 401, 80, 300),
        ];
        let segments = Segments::count(&capture.concat(), 80).unwrap();
        // The first was followed by more at once; the two others ended what there was.
        assert_eq!(segments, Segments { data: 6, full: 3, last: 2, full_bytes: 1448 });
        assert_eq!(segments.full_share(), Some(0.75));
        assert_eq!(Segments::default().full_share(), None);
    }

    #[test]
    fn a_broken_capture_is_an_error_and_never_a_panic() {
        let capture = packet(0, 0, 80, 10);
        for length in 1..capture.len() {
            assert!(Segments::count(&capture[..length], 80).is_err(), "{length}");
        }
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = Segments::count(bytes, 80);
            let _ = payload_bytes(bytes, 80);
        });
    }
}
