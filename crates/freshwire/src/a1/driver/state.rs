//! The choice of the thread that drives a node's socket: a pure state machine, without locks, clocks or system calls.
//!
//! The *owner* waits for datagrams and takes them in. Timers are always kept by the node's thread.
//!
//! | owner         | waits for datagrams            | the node's thread                                       |
//! |---------------|--------------------------------|---------------------------------------------------------|
//! | `NodeThread`  | the node's thread              | watches the socket, sleeps until the next timer         |
//! | `Application` | a thread in [`Driver::wait`]   | sleeps until the next timer, does not watch the socket  |
//! | `Handover`    | nobody, until `until` at most  | wakes at `until` at the latest, then watches the socket |
//!
//! | from                                  | event                                         | to                         | with it                                     |
//! |---------------------------------------|-----------------------------------------------|----------------------------|---------------------------------------------|
//! | `NodeThread`, `Handover` (responded)  | [`claim`](State::claim): a thread waits       | `Application`              | the node's poller stops watching            |
//! | `Handover` (owes responses)           | `claim`                                       | unchanged                  | the thread sends the responses, then claims |
//! | `Application`                         | `claim` by another thread                     | unchanged                  | that thread sleeps until it is notified     |
//! | `Application`                         | [`release`](State::release), all sent         | `NodeThread`               | the node's poller watches again             |
//! | `Application`                         | `release`, responses unsent                   | `Handover`                 | the node's thread wakes in time             |
//! | `Handover`                            | [`advanced`](State::advanced) by any thread   | `Handover` (responded)     |                                             |
//! | `Handover`                            | [`take_over`](State::take_over): its thread woke | `NodeThread`            | the node's poller watches again             |
//!
//! `Handover` exists for the dialogue: a thread receives a message, replies and waits for the next one. Without it each message would
//! cost two changes of the node's poller and a datagram for the acknowledgement alone.
//!
//! Two rules keep datagrams from being left while everybody sleeps, and a model with loom checks them (`driver/model.rs`):
//! - A thread that changes what is due asks [`must_wake_node_thread`](State::must_wake_node_thread) before it
//!   releases the lock, and wakes the node's thread if the answer is `true`.
//! - A thread that changes the owner to or from `Application` applies
//!   [`change_interest`](State::change_interest) before it releases the lock. `Handover` is the exception,
//!   and ends by time.
//!
//! [`Driver::wait`]: super::threads::Driver::wait

use std::time::Duration;

use freshwire_record::Timestamp;

use super::times::{FREQUENT_WAKE_UPS, RESPONSE_DELAY};

/// The thread that waits for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    NodeThread,
    Application,
    Handover {
        /// When the node's thread takes over.
        until: Timestamp,
        /// Nothing was sent yet in response to the last datagrams.
        owes_responses: bool,
    },
}

/// The state of the node's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeThread {
    Awake,
    Asleep { until: Timestamp },
}

/// The events of the socket that the node's poller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::a1) struct Interest {
    pub(in crate::a1) datagrams: bool,
    /// Room in the send buffer.
    pub(in crate::a1) room: bool,
}

/// Answer to a thread that wants to drive the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It drives the socket from now on.
    Granted,
    /// It has to send what is owed first.
    RespondFirst,
    /// Another thread drives the socket.
    Taken,
}

/// See the [module's documentation](self).
#[derive(Debug)]
pub(super) struct State {
    owner: Owner,
    node_thread: NodeThread,
    /// The last setting of the poller.
    interest: Interest,
    /// Until then further hand-overs are expected; see [`FREQUENT_WAKE_UPS`].
    handovers_until: Timestamp,
}

impl State {
    /// The node's thread drives the socket and is awake. Its poller watches for datagrams.
    pub(super) fn new() -> Self {
        Self {
            owner: Owner::NodeThread,
            node_thread: NodeThread::Awake,
            interest: Interest { datagrams: true, room: false },
            handovers_until: Timestamp::ZERO,
        }
    }

    /// A thread of the application wants to drive the socket.
    pub(super) fn claim(&mut self) -> Claim {
        match self.owner {
            Owner::Application => Claim::Taken,
            Owner::Handover { owes_responses: true, .. } => Claim::RespondFirst,
            Owner::NodeThread | Owner::Handover { .. } => {
                self.owner = Owner::Application;
                Claim::Granted
            }
        }
    }

    /// The thread that drives the socket stops doing so. `owes_responses`: it sent nothing after the last datagrams.
    pub(super) fn release(&mut self, now: Timestamp, owes_responses: bool) {
        debug_assert!(self.is_application_driving(), "released by a thread that does not drive: {self:?}");
        if owes_responses {
            self.owner = Owner::Handover { until: now + RESPONSE_DELAY, owes_responses };
            self.handovers_until = now + FREQUENT_WAKE_UPS;
        } else {
            self.owner = Owner::NodeThread;
        }
    }

    /// The owed responses have been sent.
    pub(super) fn advanced(&mut self) {
        if let Owner::Handover { owes_responses, .. } = &mut self.owner {
            *owes_responses = false;
        }
    }

    /// The node's thread woke up, for whatever reason: it drives the socket unless the application does.
    pub(super) fn take_over(&mut self) {
        if !self.is_application_driving() {
            self.owner = Owner::NodeThread;
        }
    }

    pub(super) fn is_application_driving(&self) -> bool {
        self.owner == Owner::Application
    }

    /// Whether responses to the last datagrams were put off.
    pub(super) fn owes_responses(&self) -> bool {
        matches!(self.owner, Owner::Handover { owes_responses: true, .. })
    }

    /// The events that the node's poller has to watch for, if they differ from what it watches for. `is_blocked`: datagrams wait for room in
    /// the socket.
    pub(super) fn change_interest(&mut self, is_blocked: bool) -> Option<Interest> {
        let datagrams = match self.owner {
            Owner::NodeThread => true,
            Owner::Application => false,
            Owner::Handover { .. } => self.interest.datagrams,
        };
        let wanted = Interest { datagrams, room: is_blocked };
        (wanted != std::mem::replace(&mut self.interest, wanted)).then_some(wanted)
    }

    /// The node's thread goes to sleep. Returns for how long at most, `None` without limit. `due`: when the core has work.
    pub(super) fn sleep(&mut self, now: Timestamp, due: Timestamp) -> Option<Duration> {
        let until = self.wake_at(now, due);
        self.node_thread = NodeThread::Asleep { until };
        (until < Timestamp::MAX).then(|| until.saturating_since(now))
    }

    /// The node's thread has woken up and holds the lock.
    pub(super) fn awake(&mut self) {
        self.node_thread = NodeThread::Awake;
    }

    /// Whether the node's thread sleeps longer than `due` and a hand-over permit, or does not know that the socket is blocked.
    pub(super) fn must_wake_node_thread(&self, now: Timestamp, due: Timestamp, is_blocked: bool) -> bool {
        match self.node_thread {
            NodeThread::Awake => false,
            NodeThread::Asleep { until } => is_blocked || self.wake_at(now, due) < until,
        }
    }

    fn wake_at(&self, now: Timestamp, due: Timestamp) -> Timestamp {
        let handover = match self.owner {
            Owner::Handover { until, .. } => until,
            Owner::NodeThread | Owner::Application => Timestamp::MAX,
        };
        let frequent = if now < self.handovers_until { now + RESPONSE_DELAY } else { Timestamp::MAX };
        due.min(handover).min(frequent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000);
    const WATCHES: Interest = Interest { datagrams: true, room: false };
    const LEAVES_IT: Interest = Interest { datagrams: false, room: false };

    /// The node's thread sleeps without limit.
    fn asleep() -> State {
        let mut state = State::new();
        assert_eq!(state.sleep(START, Timestamp::MAX), None);
        state
    }

    #[test]
    fn a_thread_that_has_sent_everything_returns_the_socket_at_once() {
        let mut state = asleep();
        assert_eq!(state.claim(), Claim::Granted);
        assert_eq!(state.change_interest(false), Some(LEAVES_IT));
        assert_eq!(state.claim(), Claim::Taken, "a second thread");
        state.release(START, false);
        assert_eq!(state.change_interest(false), Some(WATCHES));
        assert!(!state.must_wake_node_thread(START, Timestamp::MAX, false));
    }

    #[test]
    fn a_handover_wakes_the_node_thread_and_changes_no_interest() {
        let mut state = asleep();
        assert_eq!(state.claim(), Claim::Granted);
        state.change_interest(false);
        state.release(START, true);
        assert!(state.owes_responses());
        assert_eq!(state.change_interest(false), None);
        assert!(state.must_wake_node_thread(START, Timestamp::MAX, false));
        state.awake();
        state.take_over();
        state.advanced();
        assert_eq!(state.change_interest(false), Some(WATCHES));
        assert_eq!(state.sleep(START, Timestamp::MAX), Some(RESPONSE_DELAY), "more are expected");
        let later = START + FREQUENT_WAKE_UPS;
        state.awake();
        assert_eq!(state.sleep(later, Timestamp::MAX), None);
    }

    #[test]
    fn further_handovers_rely_on_the_timer_of_the_node_thread() {
        let mut state = asleep();
        state.claim();
        state.release(START, true);
        state.awake();
        state.take_over();
        state.sleep(START, Timestamp::MAX);
        for _ in 0..3 {
            assert_eq!(state.claim(), Claim::Granted);
            state.release(START, true);
            assert!(!state.must_wake_node_thread(START, Timestamp::MAX, false));
            assert_eq!(state.claim(), Claim::RespondFirst);
            state.advanced();
            assert!(!state.owes_responses());
        }
    }

    #[test]
    fn the_node_thread_takes_nothing_from_a_thread_that_drives() {
        let mut state = asleep();
        state.claim();
        state.awake();
        state.take_over();
        assert!(state.is_application_driving());
        assert_eq!(state.sleep(START, START + RESPONSE_DELAY), Some(RESPONSE_DELAY));
    }

    #[test]
    fn an_earlier_timer_or_a_blocked_socket_wakes_the_node_thread() {
        let mut state = State::new();
        let at = |ms| START + Duration::from_millis(ms);
        assert!(!state.must_wake_node_thread(START, START, true), "it is awake");
        state.sleep(START, at(50));
        for (due, is_blocked, expected) in [(50, false, false), (49, false, true), (60, true, true)] {
            assert_eq!(state.must_wake_node_thread(START, at(due), is_blocked), expected, "{due}");
        }
        assert_eq!(state.change_interest(true), Some(Interest { datagrams: true, room: true }));
        assert_eq!(state.change_interest(true), None);
        assert_eq!(state.change_interest(false), Some(WATCHES));
    }
}
