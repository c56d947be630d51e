//! Late choice up to where the receiving program reads: what it has acknowledged itself opens the gate for more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use freshwire_record::Timestamp;

use crate::choice::AskAgain;
use crate::{Choice, Decision, LinkView, Outcome, Progress, Reason, Record};

/// Puts a gate before a policy: at most `records` are in flight to the receiving program, or unread by it, at any time. A record
/// counts from its commit point until the program acknowledges it through the [`Gate`], by whatever protocol the application uses.
/// TCP's own acknowledgements do not suffice: they precede the reading.
///
/// With r records read per second and a round trip of t, `r * t` records keep the path busy; more than that wait unread. `records` of
/// zero counts as one.
///
/// ```text
///  policy ─► gate ─► wire ─► receiver's kernel ─► program ──"I have read 4711"──► Gate::acknowledge
/// ```
///
/// The answers of the gated policy depend on the program's acknowledgements, and not only on its calls: replay a [log](crate::log)
/// on the policy inside. A program that never acknowledges receives `records` records and no more.
///
/// ```
/// use freshwire_choice::{gate, latest};
///
/// let (policy, gate) = gate(latest(), 16);
/// // The policy goes into the sink. The thread that reads from the client calls:
/// gate.acknowledge(4711);
/// # drop(policy);
/// ```
pub fn gate<C: Choice>(policy: C, records: u32) -> (Gated<C>, Gate) {
    let shared = Arc::new(Shared::default());
    let gated = Gated {
        policy,
        most: u64::from(records.max(1)),
        committed: VecDeque::new(),
        shared: Arc::clone(&shared),
    };
    (gated, Gate(shared))
}

/// Opens the gate of one sink; created by [`gate`]. A clone opens the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Shared>);

/// A policy behind a gate; created by [`gate`].
pub struct Gated<C> {
    policy: C,
    most: u64,
    /// Numbers of the newest committed records, including those that may be in flight.
    committed: VecDeque<u64>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    committed: AtomicU64,
    acknowledged: AtomicU64,
    /// The policy waits for an acknowledgement.
    is_closed: AtomicBool,
    ask_again: OnceLock<AskAgain>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("committed", &self.committed)
            .field("acknowledged", &self.acknowledged)
            .finish_non_exhaustive()
    }
}

impl Gate {
    /// Reports that the program has read `total` records of this sink, counted from the first. A smaller total than before changes
    /// nothing, and neither do records that were never sent.
    pub fn acknowledge(&self, total: u64) {
        self.0.acknowledged.fetch_max(total, Ordering::SeqCst);
        self.0.call();
    }

    /// Reports that the program has read `records` more.
    pub fn acknowledge_more(&self, records: u64) {
        self.0.acknowledged.fetch_add(records, Ordering::SeqCst);
        self.0.call();
    }

    /// Number of committed records that the program has not acknowledged.
    pub fn outstanding(&self) -> u64 {
        self.0.outstanding()
    }
}

impl Shared {
    fn outstanding(&self) -> u64 {
        self.committed.load(Ordering::SeqCst).saturating_sub(self.acknowledged.load(Ordering::SeqCst))
    }

    fn call(&self) {
        if self.is_closed.swap(false, Ordering::SeqCst)
            && let Some(ask_again) = self.ask_again.get()
        {
            ask_again();
        }
    }
}

impl<C: Choice> Gated<C> {
    fn is_closed(&self) -> bool {
        if self.shared.outstanding() < self.most {
            return false;
        }
        self.shared.is_closed.store(true, Ordering::SeqCst);
        // Either whoever acknowledges sees that it has to call, or it is seen here what was acknowledged.
        let is_closed = self.shared.outstanding() >= self.most;
        if !is_closed {
            self.shared.is_closed.store(false, Ordering::SeqCst);
        }
        is_closed
    }

    fn count(&self, committed: u64) {
        // Only the policy counts, and it is asked by one thread at a time.
        self.shared.committed.store(committed, Ordering::SeqCst);
    }

    fn committed(&self) -> u64 {
        self.shared.committed.load(Ordering::SeqCst)
    }
}

impl<C: Choice> Choice for Gated<C> {
    //= spec/choice.md 31
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        match self.policy.pick(now, queue, link) {
            Decision::Send(_) if self.is_closed() => Decision::Wait(Some(now + LOOK)),
            decision => decision,
        }
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        self.policy.progress(now, record, remaining, link)
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        match outcome.reason() {
            None => {
                self.committed.push_back(record.seq);
                if self.committed.len() as u64 > self.most {
                    self.committed.pop_front();
                }
                self.count(self.committed() + 1);
            }
            Some(_) => {
                if let Some(at) = self.committed.iter().rposition(|&seq| seq == record.seq) {
                    self.committed.remove(at);
                    self.count(self.committed() - 1);
                }
            }
        }
        self.policy.outcome(record, outcome);
    }

    fn stale(&mut self, now: Timestamp, queue: &[Record], newcomer: &Record) -> Option<(usize, Reason)> {
        self.policy.stale(now, queue, newcomer)
    }

    fn overtakes(&self, now: Timestamp, record: &Record, in_progress: &Record) -> bool {
        !self.is_closed() && self.policy.overtakes(now, record, in_progress)
    }

    fn lookahead(&self) -> usize {
        self.policy.lookahead()
    }

    fn drops_expired(&self) -> bool {
        self.policy.drops_expired()
    }

    fn is_for_state(&self) -> bool {
        self.policy.is_for_state()
    }

    fn attach(&mut self, ask_again: AskAgain) {
        self.policy.attach(Arc::clone(&ask_again));
        // The first one stays: a policy has one sink.
        let _ = self.shared.ask_again.set(ask_again);
    }
}

/// Interval of looks at a closed gate where nobody can wake the policy. Chosen, not measured.
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fifo;

    fn pick(gated: &mut Gated<crate::Policy>, seq: u64) -> bool {
        let record = Record::numbered(seq);
        let sends = gated.pick(Timestamp::ZERO, &[record], &LinkView::default()) == Decision::Send(0);
        if sends {
            gated.outcome(&record, Outcome::Sent);
        }
        sends
    }

    #[test]
    fn no_more_than_the_bound_is_outstanding() {
        let (mut gated, gate) = gate(fifo(), 2);
        assert!(pick(&mut gated, 1) && pick(&mut gated, 2));
        assert!(!pick(&mut gated, 3));
        assert_eq!(gate.outstanding(), 2);
        gate.acknowledge(1);
        assert!(pick(&mut gated, 3) && !pick(&mut gated, 4));
        gate.acknowledge(1);
        assert!(!pick(&mut gated, 4), "the same again opens nothing");
        gate.acknowledge_more(2);
        assert_eq!(gate.outstanding(), 0);
        gate.acknowledge(1_000);
        assert_eq!(gate.outstanding(), 0);
    }

    #[test]
    fn an_abandoned_record_is_not_waited_for() {
        let (mut gated, gate) = gate(fifo(), 1);
        assert!(pick(&mut gated, 1) && !pick(&mut gated, 2));
        gated.outcome(&Record::numbered(9), Outcome::Dropped(Reason::Expired));
        assert!(!pick(&mut gated, 2), "that one was never committed");
        gated.outcome(&Record::numbered(1), Outcome::Dropped(Reason::Abandoned));
        assert_eq!(gate.outstanding(), 0);
        assert!(pick(&mut gated, 2));
    }

    #[test]
    fn an_acknowledgement_calls_once_for_a_closed_gate() {
        let (mut gated, gate) = gate(fifo(), 1);
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        gated.attach(Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        gate.acknowledge(0);
        assert_eq!(calls.load(Ordering::SeqCst), 0, "an open gate keeps nobody waiting");
        assert!(pick(&mut gated, 1) && !pick(&mut gated, 2));
        gate.acknowledge(1);
        gate.acknowledge(1);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }
}
