use freshwire_ring::Meta;

use super::payload::Payload;
use crate::sink_id::SinkId;

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
pub(crate) struct Offered<'a> {
    pub(crate) bytes: &'a mut Payload,
    pub(crate) targets: &'a mut [Target],
    /// The sinks' numbers, ascending, each with the place of its offer.
    pub(crate) order: &'a [(u64, usize)],
}
