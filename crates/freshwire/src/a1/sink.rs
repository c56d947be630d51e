//! A connection or a group that is fed.

use std::sync::Arc;
use std::time::Duration;

use freshwire_choice::{LinkView, Reason};
use freshwire_record::Timestamp;

use super::record_source::RecordSource;
use crate::sink::ended::{CloseMode, Ended, SinkError};
use crate::sink::handle::Server;
use crate::sink::shared::SinkShared;
use crate::stats::PathRate;

/// The source of a connection's or group's records, and the stage of its end.
pub(super) struct AttachedSink {
    pub(super) source: Box<dyn RecordSource>,
    shared: Arc<SinkShared>,
    closing: Option<CloseMode>,
    give_up_at: Timestamp,
    /// Bytes sent, of which the sink's account knows.
    seen: u64,
}

/// The request of a sink's end to its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CloseAction {
    /// Nothing yet.
    Stay,
    /// All is delivered.
    Close,
    /// The rest does not matter any more.
    Abort(Ended),
}

impl AttachedSink {
    pub(super) fn new(source: Box<dyn RecordSource>, shared: Arc<SinkShared>) -> Self {
        Self { source, shared, closing: None, give_up_at: Timestamp::MAX, seen: 0 }
    }

    /// The sink's side that its owner sees.
    pub(super) fn shared(&self) -> &Arc<SinkShared> {
        &self.shared
    }

    /// The connection goes over TCP, or over UDP, from now on.
    pub(super) fn set_over_tcp(&self, is_over_tcp: bool) {
        self.shared.set_over_tcp(is_over_tcp);
    }

    /// Begins to close.
    pub(super) fn close(&mut self, mode: CloseMode, now: Timestamp) -> CloseAction {
        let was_closing = self.closing.is_some();
        match mode {
            CloseMode::Abort if was_closing => {
                return CloseAction::Abort(Ended::Broken(SinkError::OutOfTime));
            }
            CloseMode::Abort => return CloseAction::Abort(Ended::Closed),
            CloseMode::FinishRecord => {
                self.source.close(Reason::Closed, now);
            }
            CloseMode::Drain => {}
        }
        self.closing.get_or_insert(mode);
        CloseAction::Stay
    }

    /// Closes as if dropped.
    pub(super) fn leave(&mut self, linger: Duration, now: Timestamp) -> CloseAction {
        self.give_up_at = now + linger;
        self.close(CloseMode::FinishRecord, now)
    }

    /// When it is to be asked again for what it wishes.
    pub(super) fn timeout(&self) -> Option<Timestamp> {
        (self.give_up_at != Timestamp::MAX).then_some(self.give_up_at)
    }

    /// The request of the sink, after the connection has sent all that it may. `is_idle`: the policy wants nothing sent, now or later.
    pub(super) fn close_action(&mut self, now: Timestamp, is_idle: bool) -> CloseAction {
        if now >= self.give_up_at {
            return CloseAction::Abort(Ended::Broken(SinkError::Lingered));
        }
        if self.closing.is_none() || !is_idle || self.source.in_hand() > 0 {
            return CloseAction::Stay;
        }
        // Records that the policy holds back for ever are dropped.
        self.source.close(Reason::Closed, now);
        CloseAction::Close
    }

    /// Takes over what was done: `bytes` were sent in all.
    pub(super) fn account(&mut self, bytes: u64, link: &LinkView) {
        let sent = bytes.saturating_sub(self.seen);
        if sent > 0 {
            self.shared.stats.on_write(sent);
            self.shared.stats.on_horizon(link.unsent);
        }
        // A1 gives a rate where the path has shown a queue.
        let path = link.rate.map(|rate| PathRate { rate, at_least: false });
        let round_trips = (link.rtt, link.min_rtt);
        self.shared.stats.on_look(0, link.rate, path, round_trips, self.source.bad_values());
        self.seen = bytes;
    }

    /// Resolves what is left and tells how it ended: as its owner wished, if that has come down to nothing left.
    pub(super) fn end(mut self, reason: Reason, now: Timestamp, ended: Ended) {
        let left = self.source.end(reason, now);
        self.shared.end(if self.closing.is_some() && left == 0 { Ended::Closed } else { ended });
    }
}

/// A connection or a group that may be fed.
pub(super) trait Keeper: Send + Sync {
    /// Asks something of the sink, if it has one.
    fn ask(&self, ask: impl FnOnce(&mut AttachedSink, Timestamp) -> CloseAction);
}

/// A sink's place in a node. It keeps what it feeds.
pub(super) struct NodeServer<K>(pub(super) K);

impl<K: Keeper> Server for NodeServer<K> {
    fn close(&self, mode: CloseMode) {
        self.0.ask(|sink, now| sink.close(mode, now));
    }

    fn leave(&self, _last: Vec<u8>, linger: Duration) {
        self.0.ask(|sink, now| sink.leave(linger, now));
    }

    fn interject(&self, _bytes: Vec<u8>) {
        self.0.ask(|_, _| CloseAction::Abort(Ended::Broken(SinkError::CannotInterject)));
    }
}

#[cfg(test)]
mod tests {
    use freshwire_a1::Source;
    use freshwire_choice::Outcome;
    use freshwire_ring::{Config, Meta, Producer, Region};

    use super::*;
    use crate::a1::source::RingSource;
    use crate::carrier::CarrierInUse;

    const NOW: Timestamp = Timestamp::from_nanos(5);

    fn sink() -> (Producer, AttachedSink, Arc<SinkShared>) {
        let region = Region::heap(&Config::default()).unwrap();
        let shared = Arc::new(SinkShared::new(CarrierInUse::A1, None, None));
        let source = RingSource::new(region.consumer(0).unwrap(), Arc::clone(&shared));
        (region.producer().unwrap(), AttachedSink::new(Box::new(source), Arc::clone(&shared)), shared)
    }

    /// Delivers the oldest record.
    fn deliver(source: &mut dyn Source) {
        let (mut records, mut gone) = (Vec::new(), Vec::new());
        source.list(usize::MAX, &mut records, &mut gone);
        let taken = source.take(NOW, records[0].index, 0, 10).unwrap();
        source.settle(NOW, taken.token, Outcome::Acked);
    }

    fn broken() -> Ended {
        Ended::Broken(SinkError::PeerClosed)
    }

    #[test]
    fn a_close_by_the_peer_after_full_delivery_is_a_regular_end() {
        for left in [0, 1] {
            let (mut producer, mut sink, shared) = sink();
            for _ in 0..=left {
                let _ = producer.push(0, b"x", &Meta::default()).unwrap();
            }
            assert_eq!(sink.close(CloseMode::Drain, NOW), CloseAction::Stay);
            deliver(&mut *sink.source);
            sink.end(Reason::ConnectionLost, NOW, broken());
            assert_eq!(shared.ended(), Some(if left == 0 { Ended::Closed } else { broken() }));
        }
        let (_producer, sink, shared) = sink();
        sink.end(Reason::ConnectionLost, NOW, broken());
        assert_eq!(shared.ended(), Some(broken()), "its owner did not want it closed");
    }
}
