//! The header of a transport packet (ISO 13818-1, 2.4.3.2).

use crate::mpeg_ts::{PACKET_BYTES, SYNC};

/// One packet, its header read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) pid: u16,
    /// Marked by a receiver that could not repair it.
    pub(super) broken: bool,
    /// A section or PES packet begins with the payload.
    pub(super) start: bool,
    pub(super) counter: u8,
    /// The counter may jump here without a loss.
    pub(super) discontinuity: bool,
    /// It is encrypted.
    pub(super) scrambled: bool,
    /// `None` if the packet has only an adaptation field; such packets do not count. Scrambled payload counts as none.
    pub(super) payload: Option<&'a [u8]>,
}

impl<'a> Packet<'a> {
    /// Reads one packet. `None` without the sync byte or with a malformed adaptation field.
    pub(super) fn parse(bytes: &'a [u8; PACKET_BYTES]) -> Option<Self> {
        let (&[sync, high, low, control], rest) = bytes.split_first_chunk::<4>()?;
        if sync != SYNC {
            return None;
        }
        let (adaptation, payload) = if control & 0x20 == 0 {
            (&[][..], rest)
        } else {
            let (&len, rest) = rest.split_first()?;
            rest.split_at_checked(usize::from(len))?
        };
        Some(Self {
            pid: u16::from(high & 0x1f) << 8 | u16::from(low),
            broken: high & 0x80 != 0,
            start: high & 0x40 != 0,
            counter: control & 15,
            discontinuity: adaptation.first().is_some_and(|flags| flags & 0x80 != 0),
            scrambled: control & 0xc0 != 0,
            payload: (control & 0x10 != 0 && control & 0xc0 == 0).then_some(payload),
        })
    }
}

/// Follows the counter of one PID.
#[derive(Clone, Debug, Default)]
pub(super) struct Continuity {
    last: Option<u8>,
    payload: Vec<u8>,
}

/// How a packet follows the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Succession {
    /// As it should.
    Next,
    /// It is the same once more.
    Again,
    /// Something is missing in between.
    Lost,
}

impl Continuity {
    /// Takes note of a packet with payload.
    pub(super) fn follow(&mut self, packet: &Packet<'_>, payload: &[u8]) -> Succession {
        let follows = match self.last {
            None => Succession::Next,
            Some(last) if last == packet.counter && self.payload == payload => Succession::Again,
            Some(last) if (last + 1) & 15 == packet.counter || packet.discontinuity => Succession::Next,
            Some(_) => Succession::Lost,
        };
        self.last = Some(packet.counter);
        self.payload.clear();
        self.payload.extend_from_slice(payload);
        follows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(head: [u8; 4], rest: &[u8]) -> [u8; PACKET_BYTES] {
        let mut bytes = [0; PACKET_BYTES];
        bytes[..4].copy_from_slice(&head);
        bytes[4..4 + rest.len()].copy_from_slice(rest);
        bytes
    }

    #[test]
    fn headers_are_read() {
        let bytes = packet([0x47, 0x41, 0x23, 0x37], &[2, 0x80, 0xff, 9]);
        let read = Packet::parse(&bytes).expect("valid");
        assert_eq!((read.pid, read.start, read.counter, read.discontinuity), (0x123, true, 7, true));
        assert_eq!(read.payload.expect("has some")[..2], [9, 0]);
        assert_eq!(Packet::parse(&packet([0x46, 0, 0, 0x10], &[])), None);
        assert_eq!(Packet::parse(&packet([0x47, 0, 0, 0x30], &[184])), None);
        assert_eq!(Packet::parse(&packet([0x47, 0, 0, 0x90], &[])).expect("valid").payload, None);
    }

    #[test]
    fn counters_tell_losses_from_repeats() {
        let mut continuity = Continuity::default();
        let mut follow = |counter: u8, first: u8, discontinuity: bool| {
            let bytes = packet([0x47, 0, 0, 0x30 | counter], &[1, u8::from(discontinuity) << 7, first]);
            let packet = Packet::parse(&bytes).expect("valid");
            continuity.follow(&packet, packet.payload.expect("has some"))
        };
        assert_eq!(follow(15, 1, false), Succession::Next);
        assert_eq!(follow(0, 2, false), Succession::Next);
        assert_eq!(follow(0, 2, false), Succession::Again);
        assert_eq!(follow(0, 3, false), Succession::Lost);
        assert_eq!(follow(2, 4, false), Succession::Lost);
        assert_eq!(follow(9, 5, true), Succession::Next);
        assert_eq!(follow(10, 6, false), Succession::Next);
    }
}
