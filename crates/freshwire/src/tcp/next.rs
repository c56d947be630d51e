//! What a turn of a connection reports to the scheduler.

use std::time::Duration;

use freshwire_record::Timestamp;

/// The longest sleep on a ring. A producer that is killed between its push and its notification leaves a record that
/// nobody calls for (spec/ring.md R-ROLE-7).
pub(super) const MAX_SLEEP: Duration = Duration::from_secs(1);

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another turn, soon: there is more to write than one turn carries.
    Again,
    /// Room in the socket, or the time given.
    Room(Timestamp),
    /// The time given: the path holds as much as it should.
    Time(Timestamp),
    /// A notification from the ring, or the time given.
    Push(Timestamp),
    /// Nothing: everything was delivered and the connection is closed.
    Ended,
}

/// What became of a record that was offered past the ring.
pub(super) enum AtOnce {
    /// It has to go through the ring: something is before it, the path has a limit, or the policy does not send it now.
    Not,
    /// All of it was handed over. The connection wants its next turn at this time.
    Whole(Timestamp),
    /// It was begun, and the socket did not take all of it. [`TcpSink::hold_rest`](super::sink::TcpSink::hold_rest) follows.
    Part,
}
