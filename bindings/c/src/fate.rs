//! Fates of records, and counters of sinks.

use freshwire::{Rate, Reason, Timestamp};

use crate::border::{Failure, Out, call, fw_status, nanos, put};
use crate::common::ends::Outcome;
use crate::handles::fw_sink;

/// FW_ACKED, FW_SENT, FW_DROPPED or FW_REFUSED.
pub type fw_outcome = u32;
/// The receiver's host has all of it.
pub const FW_ACKED: fw_outcome = 0;
/// All of it was handed over; no acknowledgement is known.
pub const FW_SENT: fw_outcome = 1;
/// It was dropped, because of `reason`.
pub const FW_DROPPED: fw_outcome = 2;
/// It was never on the ring.
pub const FW_REFUSED: fw_outcome = 3;

/// What became of a record. Times are nanoseconds of fw_now; 0 is unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fw_fate {
    /// The record's number.
    pub seq: u64,
    /// When its first byte was handed to the carrier.
    pub committed_at: u64,
    /// When its last byte was, or when it was dropped.
    pub finished_at: u64,
    /// When its last byte was acknowledged.
    pub acked_at: u64,
    /// When its last byte entered the queueing discipline of the network interface, with `departures`.
    pub scheduled_at: u64,
    /// When the interface's driver had its last byte for the device, with `departures`.
    pub departed_at: u64,
    /// How it ended.
    pub outcome: fw_outcome,
    /// Bytes committed and not yet on the wire at its commit point.
    pub horizon: u32,
    /// Reason of a drop, as the ring's ABI numbers it. From 1 on: expired, predicted late, window's end, layer shed, superseded,
    /// reference lost, application. From 8 on: abandoned, closed, sender lost, holder lost, invalid, connection lost.
    pub reason: u8,
}

/// Counters of a sink. Times are nanoseconds, rates bits per second, 0 while unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fw_stats {
    /// Records of which at least one byte was committed.
    pub committed: u64,
    /// Records whose last byte was handed to the carrier.
    pub finished: u64,
    /// Records dropped.
    pub dropped: u64,
    /// Bytes handed to the carrier, framing included.
    pub bytes: u64,
    /// Bytes that the peer has acknowledged.
    pub acked: u64,
    /// Bytes committed and not on the wire after the last write.
    pub horizon: u64,
    /// The largest horizon.
    pub horizon_max: u64,
    /// Delivery rate.
    pub rate: u64,
    /// Smoothed round trip.
    pub rtt: u64,
    /// Smallest round trip.
    pub min_rtt: u64,
    /// Write system calls.
    pub writes: u64,
    /// Queued values that fw_sink_replace overwrote in place. The new value has the fate; these have none.
    pub overwritten: u64,
    /// Time for which records were held back because the program had not read what its kernel has received, in nanoseconds.
    pub held_unread: u64,
}

/// Not inlined: the compiler would convert times before it knows that there is a fate, which valgrind reports.
#[inline(never)]
fn fate_of(known: &freshwire::Fate) -> fw_fate {
    let nanos = |time: Option<Timestamp>| time.map_or(0, Timestamp::as_nanos);
    fw_fate {
        seq: known.seq,
        committed_at: nanos(known.committed_at),
        finished_at: nanos(known.finished_at),
        acked_at: nanos(known.acked_at),
        scheduled_at: nanos(known.scheduled_at),
        departed_at: nanos(known.departed_at),
        outcome: Outcome::from(known.outcome) as fw_outcome,
        horizon: known.horizon,
        reason: known.outcome.reason().map_or(0, Reason::code),
    }
}

/// Writes the next known fate of a record, each once. FW_NOTHING: there is none now.
///
/// # Safety
///
/// `fate` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_poll_fate(sink: fw_sink, fate: *mut fw_fate) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises. Tried before the fate is taken.
        let fate = unsafe { Out::new("fate", fate, fw_fate::default()) }?;
        let object = sink.find()?;
        let known = object.sender().with(|sender| sender.poll_fate(object.id()).map_err(Failure::from))?;
        let Some(known) = &known else { return Ok(fw_status::FW_NOTHING) };
        let known = fate_of(known);
        fate.put(known)
    })
}

/// Writes the counters of a sink, also after its end.
///
/// # Safety
///
/// `stats` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_stats(sink: fw_sink, stats: *mut fw_stats) -> fw_status {
    call(|| {
        let now = sink.find()?.stats();
        let values = fw_stats {
            committed: now.committed,
            finished: now.finished,
            dropped: now.drops.iter().map(|(_, count)| count).sum(),
            bytes: now.bytes,
            acked: now.acked,
            horizon: now.horizon,
            horizon_max: now.horizon_max,
            rate: now.rate.map_or(0, Rate::bits_per_sec),
            rtt: nanos(now.rtt),
            min_rtt: nanos(now.min_rtt),
            writes: now.writes,
            overwritten: now.overwritten,
            held_unread: nanos(now.held_unread),
        };
        // SAFETY: as the caller promises.
        unsafe { put("stats", stats, values) }
    })
}
