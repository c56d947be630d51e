//! Calls for one source that feeds many sinks at once: they save system calls, copies and wake-ups.

use freshwire_ring::{Meta, Producer, PushError as RingError, Region, Stored};

use super::{Entry, Sender, ServedBy};
use crate::fanout::MAX_AT_ONCE;
use crate::sink_id::{SinkId, StaleSink};
use crate::tcp::{OfferRoom, Offered, Target};

/// Fan-out, with the feature `fanout`.
impl Sender {
    /// The underlying producer, for quiet pushes, holding back and queue listings. If a call asks to notify
    /// the sender, call [`Sender::notify`]. It does not fill kernel rings.
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// Sends a stored payload directly to the sinks for which it would be the next record on the wire:
    /// nothing is queued or half sent, the path has shown no limit recently, and the policy agrees.
    /// [`Target::is_sent`] reports the result; [push](Producer::push_stored) the payload to the others. For
    /// receivers that keep up this is much cheaper than their rings.
    ///
    /// Such a record has no fate and can be neither dropped nor changed. The call takes as long as the
    /// writes. It sends nothing while the engine is at work, above [`MAX_AT_ONCE`] bytes, or to a sink that
    /// reports [acknowledgements](crate::SinkConfig::ack_fates), encrypts, has a framing that can abandon records,
    /// or is not plain TCP.
    ///
    /// # Errors
    ///
    /// [`RingPushError::ForeignPayload`](RingError::ForeignPayload) if another producer stored the payload.
    pub fn send_at_once(&mut self, payload: &Stored, targets: &mut [Target]) -> Result<(), RingError> {
        let Self { producer, engine, sinks, buffers: OfferRoom { order, bytes }, .. } = self;
        let Some(engine) = engine.as_ref().filter(|_| payload.len() <= MAX_AT_ONCE) else { return Ok(()) };
        producer.read_stored(payload, bytes.renew())?;
        in_order(order, sinks, targets.iter().map(|target| target.sink));
        let is_open = |target: &&mut Target| target.meta.seq == Meta::NEXT_SEQ;
        let mut open = targets.iter_mut().filter(is_open).peekable();
        if open.peek().is_some() {
            let Meta { seq, .. } = producer.number(&Meta::default());
            open.for_each(|target| target.meta.seq = seq);
        }
        let queue =
            |target: &Target| producer.push_stored_quiet(target.sink.ring(), payload, &target.meta).ok();
        engine.offer(Offered { bytes, targets, order }, queue);
        Ok(())
    }

    /// Serves these sinks on this thread, after pushes that asked to [notify](Self::notify).
    /// This saves the wake-up of the engine's thread, and takes as long as the writes. If the engine is at
    /// work already, it continues the work. Sinks that the engine does not serve are ignored.
    pub fn serve(&mut self, sinks: impl IntoIterator<Item = SinkId>) {
        let Self { engine: Some(engine), sinks: served, buffers: OfferRoom { order, .. }, .. } = self else {
            return;
        };
        in_order(order, served, sinks);
        if !order.is_empty() {
            engine.serve(order);
        }
    }

    /// The region of a sink's records, and the ring's index there, for an [`Editor`](freshwire_ring::Editor).
    /// If a call of the editor asks to notify the sender, call [`Sender::notify`].
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn region_of(&self, sink: SinkId) -> Result<(&Region, usize), StaleSink> {
        Ok(match &self.entry(sink)?.server {
            ServedBy::Direct(direct) => (direct.region(), 0),
            _ => (self.producer.region(), sink.ring()),
        })
    }

    /// Marks a ring as reusable once its dropped sink has ended. Optional: rings of ended sinks are reused
    /// when no other is free.
    pub fn reuse(&mut self, sink: SinkId) {
        if self.entry(sink).is_ok() && !self.left.contains(&sink.ring()) {
            self.left.push(sink.ring());
        }
    }
}

/// Fills `order` with the engine's numbers of those of `wanted` that it serves, ascending, each with its place.
fn in_order(
    order: &mut Vec<(u64, usize)>,
    sinks: &[Option<Entry>],
    wanted: impl IntoIterator<Item = SinkId>,
) {
    let number = |(place, sink): (usize, SinkId)| match sinks.get(sink.ring())?.as_ref()? {
        Entry { id, server: ServedBy::Engine(number), .. } if *id == sink => Some((*number, place)),
        _ => None,
    };
    order.clear();
    order.extend(wanted.into_iter().enumerate().filter_map(number));
    order.sort_unstable();
}
