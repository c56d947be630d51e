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

    /// Asked when there is no place for `newcomer`: a queued record that is of no more use whatever the path does, because it has expired
    /// or a newer one takes its place. The caller removes it, reports the outcome and asks again, as long as it needs room. The
    /// default names what is past its deadline, if the policy [drops that](Choice::drops_expired).
    fn stale(&mut self, now: Timestamp, queue: &[Record], newcomer: &Record) -> Option<(usize, Reason)> {
        let _ = newcomer;
        let at = queue.iter().position(|record| record.deadline < now)?;
        self.drops_expired().then_some((at, Reason::Expired))
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

    /// True if of each key only the newest value counts, so that what a receiving program has not read yet is worth little: whoever
    /// sends then keeps that small.
    fn is_for_state(&self) -> bool {
        false
    }

    /// Hands over how to have the policy asked again, for one whose answer changes by something that is neither in the queue nor on
    /// the link, as that of a [`gate`](crate::gate()) does. Called once, before the first question.
    fn attach(&mut self, ask_again: AskAgain) {
        let _ = ask_again;
    }
}

/// Has a policy asked again, from any thread. Does not wait.
pub type AskAgain = std::sync::Arc<dyn Fn() + Send + Sync>;

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

    fn stale(&mut self, now: Timestamp, queue: &[Record], newcomer: &Record) -> Option<(usize, Reason)> {
        (**self).stale(now, queue, newcomer)
    }

    fn is_for_state(&self) -> bool {
        (**self).is_for_state()
    }

    fn attach(&mut self, ask_again: AskAgain) {
        (**self).attach(ask_again);
    }
}

/// The application's own rule as a [`Choice`]. The function has to keep the law of [`Choice::pick`]: a position inside
/// the queue, and `Send` or `Wait` in the end. It learns of no outcome; one that changes what another policy says goes
/// [around](FromFn::around) that.
pub fn from_fn<F>(function: F) -> FromFn<F>
where
    F: FnMut(Timestamp, &[Record], &LinkView) -> Decision + Send,
{
    FromFn(function)
}

/// A function as a [`Choice`]; made by [`from_fn`].
#[derive(Clone, Debug)]
pub struct FromFn<F>(F);

impl<F> FromFn<F>
where
    F: FnMut(Timestamp, &[Record], &LinkView) -> Decision + Send,
{
    /// The function before another policy: where it says [`Decision::Wait`] without a time, the other one is asked. That one learns
    /// of every outcome, whoever decided, and answers everything but [`Choice::pick`].
    ///
    /// ```
    /// use freshwire_choice::{Decision, LinkView, Reason, Record, from_fn, latest};
    ///
    /// // Nothing above layer 3, and for the rest the newest value of each key.
    /// let shed = from_fn(|_, queue: &[Record], _: &LinkView| {
    ///     match queue.iter().position(|record| record.layer > 3) {
    ///         Some(at) => Decision::Drop(at, Reason::LayerShed),
    ///         None => Decision::Wait(None),
    ///     }
    /// });
    /// let policy = shed.around(latest());
    /// ```
    pub fn around<C: Choice>(self, inner: C) -> Around<F, C> {
        Around { function: self.0, inner }
    }
}

impl<F> Choice for FromFn<F>
where
    F: FnMut(Timestamp, &[Record], &LinkView) -> Decision + Send,
{
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        (self.0)(now, queue, link)
    }
}

/// A function before another policy; made by [`FromFn::around`].
#[derive(Clone, Debug)]
pub struct Around<F, C> {
    function: F,
    inner: C,
}

impl<F, C> Choice for Around<F, C>
where
    F: FnMut(Timestamp, &[Record], &LinkView) -> Decision + Send,
    C: Choice,
{
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        match (self.function)(now, queue, link) {
            Decision::Wait(None) => self.inner.pick(now, queue, link),
            decision => decision,
        }
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        self.inner.progress(now, record, remaining, link)
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        self.inner.outcome(record, outcome);
    }

    fn stale(&mut self, now: Timestamp, queue: &[Record], newcomer: &Record) -> Option<(usize, Reason)> {
        self.inner.stale(now, queue, newcomer)
    }

    fn overtakes(&self, now: Timestamp, record: &Record, begun: &Record) -> bool {
        self.inner.overtakes(now, record, begun)
    }

    // The function has to see all, and nobody may pass it over.
    fn lookahead(&self) -> usize {
        usize::MAX
    }

    fn is_for_state(&self) -> bool {
        self.inner.is_for_state()
    }

    fn attach(&mut self, ask_again: AskAgain) {
        self.inner.attach(ask_again);
    }
}
