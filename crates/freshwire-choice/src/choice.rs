use freshwire_units::Timestamp;

use crate::{LinkView, Reason, Record};

/// What to do with the queue now. Positions count in the queue slice that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[must_use]
pub enum Decision {
    /// Commit the record at this position.
    Send(usize),
    /// Remove the record at this position, report the outcome, and ask again.
    Drop(usize, Reason),
    /// Commit nothing. Ask again when the queue or the link changes, or at the given time.
    Wait(
        #[cfg_attr(feature = "serde", serde(with = "crate::serde_units::optional_timestamp"))]
        Option<Timestamp>,
    ),
}

/// Whether a begun record is still worth finishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Go on.
    Continue,
    /// Give it up at this chunk boundary.
    Abandon(Reason),
}

/// What became of a record at the commit point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was committed.
    Sent,
    /// It was dropped, or given up after it was begun.
    Dropped(Reason),
}

/// A policy. It is asked at each commit point and holds no record itself.
///
/// The law of use: call [`pick`](Choice::pick) until it returns [`Decision::Send`] or [`Decision::Wait`]; after each
/// `Drop` remove that record; call [`outcome`](Choice::outcome) once for every record that left the queue, whoever
/// removed it, and once more with `Dropped` if a committed record was given up before its end.
pub trait Choice: Send {
    /// Decides over `queue`, oldest first. With a queue of n records at most n + 1 calls pass until `Send` or `Wait`.
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision;

    /// Asked at each chunk boundary of a begun record where the framing can abandon; `remaining` is its bytes that are
    /// not yet committed.
    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        let _ = (now, record, remaining, link);
        Progress::Continue
    }

    /// Told of every record that left the queue.
    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        let _ = (record, outcome);
    }

    /// True if `record`, which is queued, is to be sent between the pieces of `begun`, where the framing can do that. Asked while
    /// a record is begun that the path takes some time for; of those that may overtake it the oldest does.
    fn overtakes(&self, now: Timestamp, record: &Record, begun: &Record) -> bool {
        let _ = (now, record, begun);
        false
    }

    /// How many of the oldest records `pick` needs to see. The caller may pass more.
    fn lookahead(&self) -> usize {
        usize::MAX
    }

    /// True if the policy does no more than send in order, and drop what is past its deadline if it
    /// [does so](Choice::drops_expired): whoever keeps the queue can then do without asking.
    fn is_in_order(&self) -> bool {
        false
    }

    /// True if the policy begins no record that is past its deadline, so that whoever keeps the queue may drop it too.
    fn drops_expired(&self) -> bool {
        false
    }
}

impl<C: Choice + ?Sized> Choice for Box<C> {
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        (**self).pick(now, queue, link)
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        (**self).progress(now, record, remaining, link)
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        (**self).outcome(record, outcome);
    }

    fn overtakes(&self, now: Timestamp, record: &Record, begun: &Record) -> bool {
        (**self).overtakes(now, record, begun)
    }

    fn lookahead(&self) -> usize {
        (**self).lookahead()
    }

    fn is_in_order(&self) -> bool {
        (**self).is_in_order()
    }

    fn drops_expired(&self) -> bool {
        (**self).drops_expired()
    }
}

/// The application's own rule as a [`Choice`]. The function has to keep the law of [`Choice::pick`]: a position inside
/// the queue, and `Send` or `Wait` in the end.
pub fn from_fn<F>(function: F) -> FromFn<F>
where
    F: FnMut(Timestamp, &[Record], &LinkView) -> Decision + Send,
{
    FromFn(function)
}

/// A function as a [`Choice`]; made by [`from_fn`].
#[derive(Clone, Debug)]
pub struct FromFn<F>(F);

impl<F> Choice for FromFn<F>
where
    F: FnMut(Timestamp, &[Record], &LinkView) -> Decision + Send,
{
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        (self.0)(now, queue, link)
    }
}
