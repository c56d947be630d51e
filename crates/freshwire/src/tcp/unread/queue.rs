//! The unread bytes of a receiver on this machine, as its kernel reports. The queue is a standing one if it is above the bound for an interval
//! (CoDel, RFC 8289). A program that waited for a processor empties it in between, a slow one does not.
//!
//! ```text
//!         ┌── below the bound at one look ──┐                 at no look of an interval
//!  free ◄─┴──────────── over ◄──────────────┴─ at a look ──────────────────────────────► limited to the allowance
//!    ▲                                                                                      │ empty after half of
//!    └────── allowance > FREE_SHARE × bound, or empty just after the limit ◄────────────────┘ it: allowance × 2
//! ```

use std::time::Duration;

use freshwire_record::Timestamp;

/// How long a queue has to last. CoDel's 100 ms are for round trips of the Internet. Here it is the time in which a program gets a
/// processor: with ten busy programs on two cores, 15 to 30 ms. Data sent meanwhile is stale at a slow reader.
const INTERVAL: Duration = Duration::from_millis(60);

/// Looks at a queue that is over the bound, and the number that an interval has at least: between two the reader may have had a turn.
const OVER_LOOK: Duration = Duration::from_millis(5);
const INTERVAL_LOOKS: u32 = 4;

/// A queue that is empty so soon after the limit was set waited for a processor: CoDel's interval.
const PARDON: Duration = Duration::from_millis(100);

/// The pause between two looks at a reader that has no room: a part of the time since it had some, within these.
const LOOK: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
const LOOK_SHARE: u32 = 8;

/// A reader that has had room for so long counts as held back no longer. Its limit stays until it has been fast: a slow one would else
/// have an interval's values before it again, each time that its publisher paused.
const ROOMY: Duration = Duration::from_secs(1);

/// A reader that has emptied its queue with this many times the bound in it is fast.
const FREE_SHARE: u64 = 16;

#[derive(Debug)]
pub(in crate::tcp) struct Queue {
    bound: u64,
    /// As of the last answer.
    unread: u64,
    /// Bytes written since then.
    written: u64,
    /// Bytes written since the queue was empty last.
    fed: u64,
    over: Option<Over>,
    limit: Option<Limit>,
}

/// A queue that has not been below the bound since its first look.
#[derive(Clone, Copy, Debug)]
struct Over {
    since: Timestamp,
    looks: u32,
    looked_at: Timestamp,
}

/// A queue that has stood.
#[derive(Clone, Copy, Debug)]
struct Limit {
    since: Timestamp,
    allowance: u64,
    /// When it had room last, and when it had none.
    roomy_at: Timestamp,
    short_at: Timestamp,
}

impl Queue {
    pub(super) fn new(bound: u64) -> Self {
        Self { bound, unread: 0, written: 0, fed: 0, over: None, limit: None }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.unread
    }

    /// Whether an answer is needed: a question for each `bound` bytes costs little beside their writes.
    pub(super) fn is_due(&self) -> bool {
        self.over.is_some() || self.limit.is_some() || self.written >= self.bound
    }

    /// Takes in what lies unread or unsent; `None` if the peer's socket is closed.
    pub(super) fn update(&mut self, now: Timestamp, unread: Option<u64>) {
        let was_short = self.is_over();
        self.written = 0;
        let Some(unread) = unread else {
            *self = Self::new(self.bound);
            return;
        };
        self.unread = unread;
        let is_standing = self.is_standing(now);
        let emptied = if unread == 0 { std::mem::take(&mut self.fed) } else { 0 };
        match &mut self.limit {
            None if is_standing => {
                let allowance = self.bound;
                self.limit = Some(Limit { since: now, allowance, roomy_at: now, short_at: now });
            }
            None => {}
            Some(limit) => {
                if is_standing {
                    limit.allowance = self.bound;
                } else if emptied >= limit.allowance / 2 {
                    limit.allowance *= 2;
                }
                if was_short {
                    limit.short_at = now;
                }
                let has_waited = unread == 0 && now < limit.since + PARDON;
                if has_waited || limit.allowance > self.bound * FREE_SHARE {
                    self.limit = None;
                }
            }
        }
        if !self.is_over()
            && let Some(limit) = &mut self.limit
        {
            limit.roomy_at = now;
        }
    }

    /// Whether the queue has been over the bound for an interval.
    fn is_standing(&mut self, now: Timestamp) -> bool {
        if self.unread < self.bound {
            self.over = None;
            return false;
        }
        let over = self.over.get_or_insert(Over { since: now, looks: 0, looked_at: now });
        if over.looks == 0 || now >= over.looked_at + OVER_LOOK {
            (over.looks, over.looked_at) = (over.looks + 1, now);
        }
        over.looks >= INTERVAL_LOOKS && now >= over.since + INTERVAL
    }

    pub(super) fn is_over(&self) -> bool {
        self.room() == Some(0)
    }

    /// Whether records are held back, or were recently.
    pub(super) fn is_limited(&self, now: Timestamp) -> bool {
        self.is_over() || self.limit.is_some_and(|limit| now < limit.short_at + ROOMY)
    }

    pub(super) fn room(&self) -> Option<u64> {
        let unread = self.unread + self.written;
        // A record may be larger than the bound.
        let least = u64::from(unread == 0);
        Some(self.limit?.allowance.saturating_sub(unread).max(least))
    }

    pub(super) fn wrote(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
        self.fed = self.fed.saturating_add(bytes);
    }

    pub(super) fn look_at(&self, now: Timestamp) -> Option<Timestamp> {
        let Some(limit) = self.limit else { return self.over.map(|_| now + OVER_LOOK) };
        if !self.is_over() {
            return self.is_limited(now).then_some(now + ROOMY);
        }
        let pause = now.saturating_since(limit.roomy_at) / LOOK_SHARE;
        Some(now + pause.clamp(LOOK.0, LOOK.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: u64 = 10 << 10;
    const MILLISECOND: Duration = Duration::from_millis(1);

    /// A publisher, a sink and a reader in virtual time.
    struct Scene {
        queue: Queue,
        now: Timestamp,
        look_at: Option<Timestamp>,
        /// Bytes of a value, their number in a burst, and the time between two bursts.
        value: u64,
        burst: u64,
        every: u64,
        /// Values that wait at the sender: newer ones replace them.
        waiting: u64,
        published: u64,
        sent: u64,
        unread: u64,
    }

    impl Scene {
        fn new(value: u64, burst: u64, every: u64) -> Self {
            let (queue, now) = (Queue::new(BOUND), Timestamp::ZERO + MILLISECOND);
            Self {
                queue,
                now,
                look_at: None,
                value,
                burst,
                every,
                waiting: 0,
                published: 0,
                sent: 0,
                unread: 0,
            }
        }

        /// Runs for that number of milliseconds; in each the program may read what `reads` says. Returns the most unread bytes.
        fn run(&mut self, milliseconds: u64, mut reads: impl FnMut(u64) -> u64) -> u64 {
            let mut most = 0;
            for at in 0..milliseconds {
                self.now += MILLISECOND;
                if at % self.every == 0 {
                    self.published += self.burst;
                    self.waiting = self.burst;
                }
                if self.waiting > 0 || self.look_at.is_some_and(|at| at <= self.now) {
                    self.turn();
                }
                most = most.max(self.unread);
                self.unread -= reads(at).min(self.unread);
            }
            most
        }

        fn turn(&mut self) {
            loop {
                if self.queue.is_due() {
                    self.queue.update(self.now, Some(self.unread));
                }
                self.look_at = self.queue.look_at(self.now);
                let room = self.queue.room().unwrap_or(u64::MAX);
                let records = room.div_ceil(self.value).min(self.waiting);
                if records == 0 {
                    return;
                }
                self.queue.wrote(records * self.value);
                self.unread += records * self.value;
                self.waiting -= records;
                self.sent += records;
            }
        }
    }

    /// Sizes and rates that a program can read at ten megabytes a millisecond.
    fn scenes() -> impl Iterator<Item = Scene> {
        [10, 100, 330, 1000, 4000, 16_000, 64_000].into_iter().flat_map(|value| {
            [1, 10, 100, 500].into_iter().flat_map(move |burst| {
                [5, 20, 50, 200].into_iter().map(move |every| Scene::new(value, burst, every))
            })
        })
    }

    #[test]
    fn a_reader_that_keeps_up_gets_every_value() {
        for mut scene in scenes() {
            scene.run(5_000, |_| u64::MAX);
            assert_eq!(scene.sent, scene.published, "{} bytes x {}", scene.value, scene.burst);
        }
    }

    #[test]
    fn a_reader_without_a_processor_gets_every_value() {
        // For 40 ms out of 60 the machine runs something else.
        for mut scene in scenes() {
            scene.run(5_000, |at| if at % 60 < 40 { 0 } else { u64::MAX });
            assert_eq!(scene.sent, scene.published, "{} bytes x {}", scene.value, scene.burst);
        }
    }

    #[test]
    fn a_reader_that_was_stopped_gets_every_value_again() {
        for mut scene in scenes() {
            scene.run(1_000, |_| u64::MAX);
            scene.run(2_000, |_| 0);
            // Noticed within a look, and found to be fast within some rounds of its publisher.
            scene.run(100 + 10 * scene.every, |_| u64::MAX);
            let (sent, published) = (scene.sent, scene.published);
            scene.run(3_000, |_| u64::MAX);
            let shares = (scene.sent - sent, scene.published - published);
            assert_eq!(shares.0, shares.1, "{} bytes x {} every {}", scene.value, scene.burst, scene.every);
        }
    }

    #[test]
    fn a_slow_reader_gets_what_it_reads_and_no_more() {
        for (value, burst, every) in
            [(10, 500, 5), (100, 100, 5), (330, 50, 20), (1000, 100, 20), (4000, 20, 50)]
        {
            for share in [2, 10, 100] {
                let mut scene = Scene::new(value, burst, every);
                let pace = (value * burst / every / share).max(1);
                // Bytes that came in an interval are read first.
                scene.run(value * burst * (100 / every + 2) / pace + 1_000, |_| pace);
                let most = scene.run(5_000, |_| pace);
                // One value over the bound, as always; and what a burst found room for while the reader emptied its queue.
                let bound = BOUND + value.max(BOUND);
                assert!(most <= bound, "{value} bytes, a share of 1/{share}: {most} bytes unread");
                let sent = scene.sent;
                scene.run(5_000, |_| pace);
                let read = (scene.sent - sent) * value;
                assert!(
                    read * 10 >= 5_000 * pace * 9,
                    "{value} bytes, a share of 1/{share}: {read} bytes read"
                );
            }
        }
    }

    #[test]
    fn a_stalled_reader_has_an_interval_and_the_bound_before_it() {
        let mut scene = Scene::new(200, 50, 16);
        let most = scene.run(60_000, |_| 0);
        assert!(most <= 10_000 * 6 + BOUND, "{most} bytes");
        assert!(scene.queue.is_over());
        // Looked at ten times a second, not more.
        let until = scene.queue.look_at(scene.now).unwrap().saturating_since(scene.now);
        assert_eq!(until, LOOK.1);
    }

    #[test]
    fn a_peer_that_closed_holds_nothing_back() {
        let mut scene = Scene::new(200, 50, 16);
        scene.run(1_000, |_| 0);
        scene.queue.update(scene.now, None);
        assert_eq!((scene.queue.room(), scene.queue.look_at(scene.now)), (None, None));
    }
}
