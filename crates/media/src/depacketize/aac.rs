use crate::aac::Config;

use super::open::{MAX_FRAME_BYTES, Malformed};
use super::packet::Packet;

/// Widths of the fields of an AU header (RFC 3640, 3.2.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderBits {
    pub(super) size: u8,
    pub(super) index: u8,
    pub(super) index_delta: u8,
}

/// RFC 3640, 3.3.5 and 3.3.6.
#[derive(Debug)]
pub(super) struct Format {
    bits: HeaderBits,
    /// Ticks that a frame lasts.
    frame_ticks: i64,
    /// A frame that is larger than a packet: its ticks, its bytes so far, its size.
    partial: Option<(i64, Vec<u8>, usize)>,
}

impl Format {
    pub(super) fn new(bits: HeaderBits, config: &[u8], clock_rate: u32) -> Self {
        Self { bits, frame_ticks: frame_ticks(config, clock_rate), partial: None }
    }

    pub(super) fn lose(&mut self) {
        self.partial = None;
    }

    pub(super) fn push(
        &mut self,
        ticks: i64,
        packet: &Packet<'_>,
        frames: &mut Vec<(i64, Vec<u8>)>,
    ) -> Result<(), Malformed> {
        let partial = self.partial.take();
        let (&length, rest) = packet.payload.split_first_chunk().ok_or(Malformed)?;
        let header_bits = usize::from(u16::from_be_bytes(length));
        let (headers, mut data) = rest.split_at_checked(header_bits.div_ceil(8)).ok_or(Malformed)?;
        let mut headers = Bits { bytes: headers, position: 0, end: header_bits };
        let mut at = ticks;
        let mut index_bits = self.bits.index;
        while headers.position < headers.end {
            let size = headers.take(self.bits.size)?;
            // Where frames are interleaved, the first index is no distance.
            let skipped = headers.take(index_bits)?;
            at += if frames.is_empty() { 0 } else { (skipped as i64 + 1) * self.frame_ticks };
            index_bits = self.bits.index_delta;
            if size > data.len() {
                return self.fragment(partial, (at, data, size), packet.marker, frames);
            }
            let (frame, after) = data.split_at_checked(size).ok_or(Malformed)?;
            data = after;
            if frames.len() >= MOST_FRAMES {
                return Err(Malformed);
            }
            if !frame.is_empty() {
                frames.push((at, frame.to_vec()));
            }
        }
        Ok(())
    }

    /// Each fragment has a header with the whole frame's size; the last has the marker.
    fn fragment(
        &mut self,
        partial: Option<(i64, Vec<u8>, usize)>,
        (at, data, size): (i64, &[u8], usize),
        marker: bool,
        frames: &mut Vec<(i64, Vec<u8>)>,
    ) -> Result<(), Malformed> {
        let (first, mut bytes, whole) =
            partial.filter(|(first, ..)| *first == at).unwrap_or((at, Vec::new(), size));
        bytes.extend(data);
        if bytes.len() > whole.min(MAX_FRAME_BYTES) || whole != size || (marker && bytes.len() < whole) {
            return Err(Malformed);
        }
        if bytes.len() == whole {
            frames.push((first, bytes));
        } else {
            self.partial = Some((first, bytes, whole));
        }
        Ok(())
    }
}

struct Bits<'a> {
    bytes: &'a [u8],
    position: usize,
    end: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: u8) -> Result<usize, Malformed> {
        let mut value = 0;
        for _ in 0..count {
            let byte = self.bytes.get(self.position / 8).filter(|_| self.position < self.end);
            value = value << 1 | usize::from(byte.ok_or(Malformed)? >> (7 - self.position % 8) & 1);
            self.position += 1;
        }
        Ok(value)
    }
}

/// Frames of one packet: more than a second of sound. Each becomes a unit, which costs every viewer
/// something. Chosen, not measured.
const MOST_FRAMES: usize = 64;

/// The clock may count twice the rate of the configuration's core: its frames then last twice as many ticks.
fn frame_ticks(config: &[u8], clock_rate: u32) -> i64 {
    let Some(config) = Config::parse(config) else { return FRAME_SAMPLES };
    let doubled = config.rate > 0 && clock_rate == 2 * config.rate;
    i64::from(config.samples) * if doubled { 2 } else { 1 }
}

/// Samples of a frame whose configuration cannot be read: `frameLengthFlag` 0 (ISO/IEC 14496-3, 4.4.1).
const FRAME_SAMPLES: i64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_last_as_many_ticks_as_the_clock_counts() {
        assert_eq!(frame_ticks(&[0x11, 0x90], 48_000), 1024);
        assert_eq!(frame_ticks(&[0x11, 0x94], 48_000), 960);
        // HE-AAC with a core at 24 kHz, and a clock of the core or of the output.
        let doubled = [0x2b, 0x11, 0x88, 0x00];
        assert_eq!((frame_ticks(&doubled, 24_000), frame_ticks(&doubled, 48_000)), (1024, 2048));
        assert_eq!(frame_ticks(&[], 48_000), 1024);
    }
}
