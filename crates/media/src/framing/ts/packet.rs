//! Packets of 188 bytes (ISO 13818-1, 2.4.3).

use crate::mpeg_ts::{PACKET_BYTES, SYNC};

/// What a packet says besides its payload.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packet {
    pub(super) pid: u16,
    /// A PES packet or a table begins here.
    pub(super) start: bool,
    /// Ticks of 90 kHz.
    pub(super) pcr: Option<u64>,
    /// Decoding can begin here.
    pub(super) random_access: bool,
}

/// The next continuity counter of one PID.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter(u8);

impl Counter {
    fn take(&mut self) -> u8 {
        let value = self.0;
        self.0 = (value + 1) & 15;
        value
    }
}

impl Packet {
    /// Adds everything that goes before the payload and returns how many bytes of payload follow: at most `available`,
    /// which is not 0.
    pub(super) fn write_header(&self, counter: &mut Counter, available: usize, out: &mut Vec<u8>) -> usize {
        let flags = u8::from(self.random_access) << 6 | u8::from(self.pcr.is_some()) << 4;
        let fields = if self.pcr.is_some() { 6 } else { 0 };
        let needed = if flags == 0 { 0 } else { 2 + fields };
        let payload = available.min(BODY_BYTES - needed);
        let adaptation = BODY_BYTES - payload;
        let control = if adaptation > 0 { HAS_ADAPTATION } else { 0 } | HAS_PAYLOAD;
        self.write_start(control | counter.take(), out);
        if adaptation > 0 {
            self.write_adaptation(flags, adaptation, out);
        }
        payload
    }

    /// Adds a packet without payload, which has no counter of its own.
    pub(super) fn write_without_payload(&self, counter: Counter, out: &mut Vec<u8>) {
        self.write_start(HAS_ADAPTATION | (counter.0.wrapping_sub(1) & 15), out);
        let flags = u8::from(self.random_access) << 6 | u8::from(self.pcr.is_some()) << 4;
        self.write_adaptation(flags, BODY_BYTES, out);
    }

    fn write_start(&self, control: u8, out: &mut Vec<u8>) {
        let word = u16::from(self.start) << 14 | self.pid & 0x1fff;
        let [high, low] = word.to_be_bytes();
        out.extend_from_slice(&[SYNC, high, low, control]);
    }

    /// Adds an adaptation field of `bytes` with its length byte, which stuffing fills.
    fn write_adaptation(&self, flags: u8, bytes: usize, out: &mut Vec<u8>) {
        let end = out.len() + bytes;
        out.push((bytes - 1) as u8);
        if bytes > 1 {
            out.push(flags);
        }
        if let Some(pcr) = self.pcr {
            let bits = (pcr & TIME_MASK) << 15 | 0x7e00;
            let [_, _, field @ ..] = bits.to_be_bytes();
            out.extend_from_slice(&field);
        }
        out.resize(end, 0xff);
    }
}

/// Times have 33 bits and begin again at 0.
pub(super) const TIME_MASK: u64 = (1 << 33) - 1;

const BODY_BYTES: usize = PACKET_BYTES - 4;
const HAS_ADAPTATION: u8 = 0x20;
const HAS_PAYLOAD: u8 = 0x10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_makes_a_whole_packet() {
        bolero::check!()
            .with_iterations(crate::testing::ITERATIONS)
            .with_type::<(bool, bool, Option<u32>, u8)>()
            .for_each(|&(start, random_access, pcr, available)| {
                let available = usize::from(available) + 1;
                let packet = Packet { pid: 0x100, start, pcr: pcr.map(u64::from), random_access };
                let mut counter = Counter::default();
                let mut out = Vec::new();
                let payload = packet.write_header(&mut counter, available, &mut out);
                assert!(payload > 0 && payload <= available);
                assert_eq!(out.len() + payload, PACKET_BYTES);
                assert!(payload == available || out.len() <= 4 + 2 + 6);
                assert_eq!(counter.take(), 1);
            });
    }
}
