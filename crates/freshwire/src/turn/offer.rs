//! A payload that is offered to sinks past their rings.

use freshwire_ring::Meta;

use crate::sink::id::SinkId;

/// A sink to which [`Sender::send_at_once`](crate::Sender::send_at_once) offers a payload.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The sink.
    pub sink: SinkId,
    /// The descriptor that the record would have there.
    pub meta: Meta,
    pub(crate) is_sent: bool,
}

impl Target {
    /// A target: this sink, and the record's descriptor there.
    pub fn new(sink: SinkId, meta: Meta) -> Self {
        Self { sink, meta, is_sent: false }
    }

    /// Returns `true` if [`Sender::send_at_once`](crate::Sender::send_at_once) has sent the payload to this sink.
    pub fn is_sent(&self) -> bool {
        self.is_sent
    }
}

/// Memory of such offers, and of looking up sinks.
#[derive(Default)]
pub(crate) struct OfferRoom {
    /// The engine's numbers of the sinks in question, each with its place in the call.
    pub(crate) order: Vec<(u64, usize)>,
    /// The payload that goes past the rings.
    pub(crate) bytes: Payload,
}

/// A payload that is offered to sinks past their rings.
pub(crate) struct Offer<'a> {
    pub(crate) bytes: &'a mut Payload,
    pub(crate) targets: &'a mut [Target],
    /// The sinks' numbers, ascending, each with the place of its offer.
    pub(crate) order: &'a [(u64, usize)],
}

/// Room for framing bytes before a payload.
const HEADROOM: usize = 256;

/// A record's bytes, privately copied, with room before them: most framings put a few bytes before a picture, and one stretch
/// of memory costs the kernel less than two.
#[derive(Debug)]
pub(crate) struct Payload(Vec<u8>);

impl Default for Payload {
    fn default() -> Self {
        Self(vec![0; HEADROOM])
    }
}

impl Payload {
    /// Forgets the bytes and gives the place where others are to be added.
    pub(crate) fn renew(&mut self) -> &mut Vec<u8> {
        self.0.truncate(HEADROOM);
        &mut self.0
    }

    pub(crate) fn len(&self) -> u32 {
        (self.0.len() - HEADROOM) as u32
    }

    /// `len` bytes from `offset` on.
    pub(crate) fn bytes(&self, offset: u32, len: u32) -> &[u8] {
        let begin = HEADROOM + offset as usize;
        self.0.get(begin..begin + len as usize).unwrap_or_default()
    }

    /// Gives `send` the `head` and `len` bytes from `offset` on in one stretch; `None` if there is no room for the head.
    pub(crate) fn headed<T>(
        &mut self,
        head: &mut [u8],
        offset: u32,
        len: u32,
        send: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let begin = HEADROOM + offset as usize;
        let start = begin.checked_sub(head.len())?;
        self.0.get_mut(start..begin)?.swap_with_slice(head);
        let sent = self.0.get(start..begin + len as usize).map(send);
        // Other sinks need the bytes that were here.
        self.0[start..begin].swap_with_slice(head);
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_lies_before_its_payload_for_one_call() {
        let mut payload = Payload::default();
        for _ in 0..2 {
            payload.renew().extend_from_slice(b"payload");
            let mut head = *b"head";
            let sent = payload.headed(&mut head, 3, 2, <[u8]>::to_vec);
            assert_eq!((sent.as_deref(), &head), (Some(b"headlo".as_slice()), b"head"));
            assert_eq!(payload.bytes(0, 7), b"payload", "as it was");
            assert!(payload.headed(&mut [0; HEADROOM + 1], 0, 1, <[u8]>::to_vec).is_none(), "no room");
            assert!(payload.headed(&mut head, 0, 8, <[u8]>::to_vec).is_none(), "no such bytes");
        }
    }
}
