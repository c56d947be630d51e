//! A turn of a sink: its queue, what it offers past its ring, its report to the scheduler, and the memory that turns share.

pub(crate) mod datagrams;
pub(crate) mod offer;
pub(crate) mod queue;

use std::time::Duration;

use freshwire_choice::{Reason, Record};
use freshwire_record::Timestamp;

use datagrams::DatagramPlan;

/// The longest sleep on a ring. A producer that is killed between its push and its notification leaves a record that
/// nobody calls for (spec/ring.md R-ROLE-7).
pub(crate) const MAX_SLEEP: Duration = Duration::from_secs(1);

/// The next turn that a sink needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOutcome {
    /// Another turn, soon: there is more to write than one turn carries.
    Again,
    /// Room in the socket, or the time given.
    Room(Timestamp),
    /// The time given: the path holds as much as it should.
    Time(Timestamp),
    /// A notification from the ring, or the time given.
    Push(Timestamp),
    /// Nothing: everything was delivered and the sink is closed.
    Ended,
}

/// The outcome of a record that was offered past the ring.
pub(crate) enum OfferOutcome {
    /// It has to go through the ring: something is before it, the path has a limit, or the policy does not send it now.
    Declined,
    /// All of it was handed over. The sink wants its next turn at this time.
    Sent(Timestamp),
    /// It is in progress: the socket did not take all of it. [`TcpSink::hold_rest`](crate::tcp::sink::TcpSink::hold_rest) follows.
    Partial,
}

/// Room for listings and framing bytes. No sink needs it between its turns, so the engine has it once.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) records: Vec<Record>,
    pub(crate) gone: Vec<(u64, Reason)>,
    pub(crate) head: Vec<u8>,
    pub(crate) datagrams: DatagramPlan,
}

impl Scratch {
    /// The plan of datagrams, empty. It is to be put back.
    pub(crate) fn take_datagrams(&mut self) -> DatagramPlan {
        let mut plan = std::mem::take(&mut self.datagrams);
        plan.clear();
        plan
    }
}
