use std::sync::{Mutex, PoisonError, Weak};

use freshwire_choice::Reason;
use freshwire_io::kernel_ring::RingSocket;
use freshwire_record::{Rate, Timestamp};

use crate::stats::SinkSnapshot;

/// The numbers of a sink whose records no engine handles: the kernel has them, and they are read when somebody asks.
#[derive(Debug)]
pub(crate) struct KernelView {
    socket: Weak<RingSocket>,
    /// Bytes that were acknowledged before there was a ring.
    base: u64,
    last: Mutex<SinkSnapshot>,
}

impl KernelView {
    pub(crate) fn new(socket: Weak<RingSocket>) -> Self {
        let info = socket.upgrade().and_then(|socket| socket.tcp().info().ok());
        let base = info.map_or(0, |info| info.bytes_acked);
        Self { socket, base, last: Mutex::default() }
    }

    /// The numbers as they are now, or as they were at the end of the connection.
    pub(crate) fn snapshot(&self) -> SinkSnapshot {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = self.socket.upgrade().and_then(|socket| self.read(&socket)) {
            *last = now;
        }
        last.clone()
    }

    /// Adds the acknowledgements that the kernel keeps: records' indexes and times.
    pub(crate) fn collect_acks(&self, list: &mut Vec<(u64, Option<Timestamp>)>) {
        if let Some(socket) = self.socket.upgrade() {
            // Fails on a socket without a ring only, which this is not.
            let _has_ring = socket.take_acks(|index, at| list.push((index, Some(at))));
        }
    }

    fn read(&self, socket: &RingSocket) -> Option<SinkSnapshot> {
        let stats = socket.stats().ok()?;
        let info = socket.tcp().info().ok()?;
        let drops = [
            (Reason::Expired, stats.dropped_expired),
            (Reason::Closed, stats.dropped_closed),
            (Reason::Invalid, stats.dropped_invalid),
            (Reason::ConnectionLost, stats.dropped_connection),
        ];
        Some(SinkSnapshot {
            committed: stats.records_taken.saturating_sub(stats.records_put_back),
            finished: stats.records_sent,
            bytes: stats.bytes,
            acked: info.bytes_acked.saturating_sub(self.base),
            drops: drops.into_iter().filter(|(_, count)| *count > 0).collect(),
            horizon: u64::from(info.unsent),
            horizon_max: stats.horizon_max,
            rate: Some(info.delivery_rate).filter(|rate| *rate != Rate::from_bits_per_sec(0)),
            rtt: info.rtt,
            writes: stats.notifies,
            invalid: stats.bad_indexes + stats.bad_states + stats.bad_descriptors,
            ..SinkSnapshot::default()
        })
    }
}
