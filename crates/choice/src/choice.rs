use freshwire_record::Timestamp;

use crate::{LinkView, Outcome, Reason, Record};

/// Answer of a policy. Positions refer to the given queue slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[must_use]
pub enum Decision {
    /// Commit the record at this position.
    Send(usize),
    /// Remove the record at this position, report the outcome, and ask again.
    Drop(usize, Reason),
    /// Commit nothing. Ask again when the queue or the link changes, or at the given time.
    Wait(Option<Timestamp>),
}

/// Whether to finish a record in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Go on.
    Continue,
    /// Abandon it at this chunk boundary.
    Abandon(Reason),
}

/// A policy. It is asked at each commit point and holds no record itself.
///
/// Contract for callers: call [`pick`](Choice::pick) until it returns [`Decision::Send`] or
/// [`Decision::Wait`], and remove the record after each `Drop`. Call [`outcome`](Choice::outcome) exactly
/// once for every record that left the queue, regardless of who removed it, and once more with `Dropped` if a
/// committed record was abandoned.
pub trait Choice: Send {
    /// Decides over `queue`, oldest first. With a queue of n records it returns `Send` or `Wait` after at
    /// most n + 1 calls.
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision;

    /// Asked at each chunk boundary of a record in progress, if the framing can abandon it. `remaining` is
    /// the number of its bytes not yet committed.
    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        let _ = (now, record, remaining, link);
        Progress::Continue
    }

    /// Reports a record that left the queue: [`Outcome::Sent`] at its commit point, or [`Outcome::Dropped`]. No policy receives
    /// another outcome.
    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        let _ = (record, outcome);
    }

    /// Names a queued record that is of no use whatever the path does, because it has expired or `newcomer`
    /// supersedes it. Called when `newcomer` finds no space. The caller removes the record, reports the
    /// outcome and repeats the call as long as it needs space. The default names records past their deadline,
    /// if the policy [drops them](Choice::drops_expired).
    fn stale(&mut self, now: Timestamp, queue: &[Record], newcomer: &Record) -> Option<(usize, Reason)> {
        let _ = newcomer;
        let at = queue.iter().position(|record| record.deadline < now)?;
        self.drops_expired().then_some((at, Reason::Expired))
    }

    /// Returns `true` if the queued `record` shall be sent between the pieces of `in_progress`, the record
    /// being sent, where the framing permits. The oldest of several such records is sent.
    fn overtakes(&self, now: Timestamp, record: &Record, in_progress: &Record) -> bool {
        let _ = (now, record, in_progress);
        false
    }

    /// How many of the oldest records `pick` needs to see. The caller may pass more.
    fn lookahead(&self) -> usize {
        usize::MAX
    }

    /// Returns `true` if the policy only sends in order and, if it [does so](Choice::drops_expired), drops
    /// expired records. The owner of the queue can then do without asking.
    fn is_in_order(&self) -> bool {
        false
    }

    /// Returns `true` if the policy never starts a record past its deadline. The owner of the queue may then
    /// drop such records.
    fn drops_expired(&self) -> bool {
        false
    }

    /// Returns `true` if only the newest value of each key counts. Unread data at the receiver is then worth
    /// little, and the sender keeps it small.
    fn is_for_state(&self) -> bool {
        false
    }

    /// Receives a handle that has the policy asked again, for answers that depend on more than queue and link, as those of a
    /// [`gate`](crate::gate()). Called once, before the first [`pick`](Choice::pick).
    fn attach(&mut self, ask_again: AskAgain) {
        let _ = ask_again;
    }
}

/// Has a policy asked again, from any thread. Never blocks.
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

    fn overtakes(&self, now: Timestamp, record: &Record, in_progress: &Record) -> bool {
        (**self).overtakes(now, record, in_progress)
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

/// Turns a function into a [`Choice`]. The function must keep the contract of [`Choice::pick`]: positions
/// inside the queue, and eventually `Send` or `Wait`. It receives no outcomes; to modify another policy,
/// place it [around](FromFn::around) that one.
pub fn from_fn<F>(function: F) -> FromFn<F>
where
    F: FnMut(Timestamp, &[Record], &LinkView) -> Decision + Send,
{
    FromFn(function)
}

/// A function as a [`Choice`]; created by [`from_fn`].
#[derive(Clone, Debug)]
pub struct FromFn<F>(F);

impl<F> FromFn<F>
where
    F: FnMut(Timestamp, &[Record], &LinkView) -> Decision + Send,
{
    /// Puts the function in front of another policy, which is asked when the function returns [`Decision::Wait`] without a time.
    /// The other policy receives every outcome, and answers all calls but [`Choice::pick`].
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

/// A function in front of another policy; created by [`FromFn::around`].
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

    fn overtakes(&self, now: Timestamp, record: &Record, in_progress: &Record) -> bool {
        self.inner.overtakes(now, record, in_progress)
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
