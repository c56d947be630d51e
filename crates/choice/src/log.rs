//! Decisions as events: recorded, written, and replayed.
//!
//! A choice depends on nothing but its calls, so a log of calls and decisions is a complete account. An equal choice
//! gives the same decisions for the same calls; where it does not, [`replay`] names the entry. Questions that change
//! nothing in a choice, such as [`Choice::overtakes`], are not noted.

use std::collections::VecDeque;

use freshwire_record::Timestamp;

use crate::{Choice, Decision, LinkView, Outcome, Progress, Reason, Record};

/// One call of a [`Choice`] and what it answered.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "type", rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Entry {
    /// [`Choice::pick`].
    Pick {
        /// When it was asked.
        now: Timestamp,
        /// What the carrier knew of its path.
        link: LinkView,
        /// The queue.
        queue: Vec<Record>,
        /// The answer.
        decision: Decision,
    },
    /// [`Choice::progress`].
    Progress {
        /// When it was asked.
        now: Timestamp,
        /// What the carrier knew of its path.
        link: LinkView,
        /// The record in progress.
        record: Record,
        /// Its bytes that were not yet committed.
        remaining: u32,
        /// Why it was given up; `None` if it went on.
        abandoned: Option<Reason>,
    },
    /// [`Choice::outcome`].
    Outcome {
        /// The record that left the queue.
        record: Record,
        /// Why it was dropped; `None` if it was sent.
        dropped: Option<Reason>,
    },
}

/// A choice that notes every call. It keeps the newest entries up to its capacity and counts those it let go.
#[derive(Clone, Debug)]
pub struct Recorder<C> {
    choice: C,
    entries: VecDeque<Entry>,
    capacity: usize,
    lost: u64,
}

impl<C: Choice> Recorder<C> {
    /// Records the calls of `choice`, the newest `capacity` of them.
    pub fn new(choice: C, capacity: usize) -> Self {
        Self { choice, entries: VecDeque::new(), capacity, lost: 0 }
    }

    /// Takes the entries, oldest first. Drain in time and the log has no gap.
    pub fn drain(&mut self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.drain(..)
    }

    /// Entries that were let go because the recorder was full.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The choice, without its log.
    pub fn into_inner(self) -> C {
        self.choice
    }

    fn note(&mut self, entry: Entry) {
        if self.entries.len() >= self.capacity {
            self.lost += 1;
            self.entries.pop_front();
        }
        if self.capacity > 0 {
            self.entries.push_back(entry);
        }
    }
}

impl<C: Choice> Choice for Recorder<C> {
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        let decision = self.choice.pick(now, queue, link);
        self.note(Entry::Pick { now, link: *link, queue: queue.to_vec(), decision });
        decision
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        let progress = self.choice.progress(now, record, remaining, link);
        let abandoned = abandoned(progress);
        self.note(Entry::Progress { now, link: *link, record: *record, remaining, abandoned });
        progress
    }

    fn overtakes(&self, now: Timestamp, record: &Record, in_progress: &Record) -> bool {
        self.choice.overtakes(now, record, in_progress)
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        self.choice.outcome(record, outcome);
        self.note(Entry::Outcome { record: *record, dropped: outcome.reason() });
    }

    fn lookahead(&self) -> usize {
        self.choice.lookahead()
    }
}

/// The choice decided otherwise than the log says.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("entry {entry}: the log says {logged}, the choice now says {replayed}")]
pub struct Divergence {
    /// Position of the entry in the log.
    pub entry: usize,
    /// The answer in the log.
    pub logged: String,
    /// The answer now.
    pub replayed: String,
}

/// Makes the logged calls on `choice` and compares its answers. The log has to begin where the choice began.
///
/// # Errors
///
/// [`Divergence`] at the first call for which the policy decides otherwise than the log says.
//= spec/choice.md 25
pub fn replay<C: Choice + ?Sized>(
    entries: impl IntoIterator<Item = Entry>,
    choice: &mut C,
) -> Result<(), Divergence> {
    for (at, entry) in entries.into_iter().enumerate() {
        let (logged, replayed) = match entry {
            Entry::Pick { now, link, queue, decision } => {
                let replayed = choice.pick(now, &queue, &link);
                if replayed == decision {
                    continue;
                }
                (format!("{decision:?}"), format!("{replayed:?}"))
            }
            Entry::Progress { now, link, record, remaining, abandoned: logged } => {
                let replayed = abandoned(choice.progress(now, &record, remaining, &link));
                if replayed == logged {
                    continue;
                }
                (format!("{logged:?}"), format!("{replayed:?}"))
            }
            Entry::Outcome { record, dropped } => {
                choice.outcome(&record, dropped.map_or(Outcome::Sent, Outcome::Dropped));
                continue;
            }
        };
        return Err(Divergence { entry: at, logged, replayed });
    }
    Ok(())
}

fn abandoned(progress: Progress) -> Option<Reason> {
    match progress {
        Progress::Continue => None,
        Progress::Abandon(reason) => Some(reason),
    }
}
