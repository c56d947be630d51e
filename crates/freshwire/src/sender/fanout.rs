//! Calls for one source that feeds many sinks at once: they save system calls, copies and wake-ups.

use freshwire_ring::{Meta, Producer, PushError as RingError, Region, Stored};

use super::Sender;
use super::entry::{EngineSinkId, Entry, find, note_engine};
use crate::fanout::MAX_AT_ONCE;
use crate::sink::id::{SinkId, StaleSink};
use crate::turn::offer::{Offer, OfferRoom, Target};

/// Fan-out, with the feature `fanout`.
impl Sender {
    /// The underlying producer, for quiet pushes, holding back and queue listings. If a call asks to notify
    /// the sender, call [`Sender::notify`]. It does not fill kernel rings.
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// Sends a stored payload directly to the sinks for which it would be the next record on the wire. That requires
    /// that nothing is queued or half sent, the path has shown no limit recently, and the policy agrees.
    /// [`Target::is_sent`] reports the result; [push](Producer::push_stored) the payload to the others. For receivers
    /// that keep up this is much cheaper than their rings.
    ///
    /// Such a record has no fate and can be neither dropped nor changed. The call takes as long as the writes. It
    /// sends nothing while the engine is at work, or above [`MAX_AT_ONCE`] bytes. Nor does it send to a sink that is not
    /// [at home](Self::is_at_home), reports [acknowledgements](crate::SinkConfig::ack_fates), encrypts, has a framing that
    /// can abandon records, or is not plain TCP.
    ///
    /// Writes to many sinks use the engine's io_uring. When the engine ends, the kernel interrupts the threads that have called this:
    /// `epoll_wait`, and receives with a timeout (`SO_RCVTIMEO`), return `EINTR` once. Repeat them, as after a signal.
    ///
    /// # Errors
    ///
    /// [`RingPushError::ForeignPayload`](RingError::ForeignPayload) if another producer stored the payload.
    pub fn send_at_once(&mut self, payload: &Stored, targets: &mut [Target]) -> Result<(), RingError> {
        let Self { producer, engines, sinks, buffers: OfferRoom { order, bytes }, .. } = self;
        let Some(engines) = engines.as_ref().filter(|_| payload.len() <= MAX_AT_ONCE) else { return Ok(()) };
        producer.read_stored(payload, bytes.renew())?;
        in_order(order, engines.home_place(), sinks, targets.iter().map(|target| target.sink));
        let is_open = |target: &&mut Target| target.meta.seq == Meta::NEXT_SEQ;
        let mut open = targets.iter_mut().filter(is_open).peekable();
        if open.peek().is_some() {
            let Meta { seq, .. } = producer.number(&Meta::default());
            open.for_each(|target| target.meta.seq = seq);
        }
        let queue =
            |target: &Target| producer.push_stored_quiet(target.sink.ring(), payload, &target.meta).ok();
        engines.home().offer(Offer { bytes, targets, order }, queue);
        Ok(())
    }

    /// Serves those of these sinks that are [at home](Self::is_at_home) on this thread, after pushes that asked to
    /// [notify](Self::notify). This saves the wake-up of the engine's thread, and takes as long as the writes. If the engine is at
    /// work already, it continues the work. Other engines of the group are woken before that and work meanwhile. Sinks that no
    /// engine serves are ignored.
    pub fn serve(&mut self, sinks: impl IntoIterator<Item = SinkId>) {
        let Self { engines: Some(engines), sinks: served, to_wake, buffers: OfferRoom { order, .. }, .. } =
            self
        else {
            return;
        };
        let home = engines.home_place();
        let wanted = sinks.into_iter().inspect(|sink| match in_engine(served, *sink) {
            Some(id) if id.engine != home => note_engine(to_wake, id.engine),
            _ => {}
        });
        in_order(order, home, served, wanted);
        self.wake_noted_engines();
        let Self { engines: Some(engines), buffers: OfferRoom { order, .. }, .. } = self else { return };
        if !order.is_empty() {
            engines.home().serve(order);
        }
    }

    /// Returns `true` if the sink's engine is the one that [`send_at_once`](Self::send_at_once) and [`serve`](Self::serve)
    /// run on the calling thread. With a single engine that holds for all of its sinks. In a group it is the engine that got
    /// the sender's first sinks.
    pub fn is_at_home(&self, sink: SinkId) -> bool {
        let Some(engines) = &self.engines else { return false };
        in_engine(&self.sinks, sink).is_some_and(|id| id.engine == engines.home_place())
    }

    /// Notes that whatever serves the sink is to be woken, after a push of the [producer](Self::producer) that asked for it.
    /// [`wake_noted`](Self::wake_noted) follows.
    pub fn note(&mut self, sink: SinkId) {
        if let Ok(entry) = find(&self.sinks, sink) {
            entry.wake_later(&mut self.to_wake);
        }
    }

    /// Wakes the engines of the sinks that were [noted](Self::note), each once.
    pub fn wake_noted(&mut self) {
        self.wake_noted_engines();
    }

    /// The region of a sink's records, and the ring's index there, for an [`Editor`](freshwire_ring::Editor).
    /// If a call of the editor asks to notify the sender, call [`Sender::notify`].
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn region_of(&self, sink: SinkId) -> Result<(&Region, usize), StaleSink> {
        let (producer, ring) = find(&self.sinks, sink)?.look(&self.producer);
        Ok((producer.region(), ring))
    }

    /// Marks a ring as reusable once its dropped sink has ended. Optional: rings of ended sinks are reused
    /// when no other is free.
    pub fn reuse(&mut self, sink: SinkId) {
        if find(&self.sinks, sink).is_ok() && !self.left.contains(&sink.ring()) {
            self.left.push(sink.ring());
        }
    }
}

/// The sink's engine and number, if an engine serves it.
fn in_engine(sinks: &[Option<Entry>], sink: SinkId) -> Option<EngineSinkId> {
    find(sinks, sink).ok()?.engine()
}

/// Fills `order` with the numbers that the engine at `home` has for those of `wanted` that it serves, ascending, each with its place.
fn in_order(
    order: &mut Vec<(u64, usize)>,
    home: usize,
    sinks: &[Option<Entry>],
    wanted: impl IntoIterator<Item = SinkId>,
) {
    let number = |(place, sink): (usize, SinkId)| {
        let EngineSinkId { engine, number } = in_engine(sinks, sink)?;
        (engine == home).then_some((number, place))
    };
    order.clear();
    order.extend(wanted.into_iter().enumerate().filter_map(number));
    order.sort_unstable();
}
