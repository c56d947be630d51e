use std::collections::VecDeque;
use std::time::Duration;

use freshwire_media::demux::Event;
use freshwire_media::unit::{MediaTime, Unit};
use tokio::time::Instant;

use crate::hub::Publisher;

/// Publishes units at their decode times, for a source that comes faster than real time.
pub(super) struct Pace {
    publisher: Publisher,
    /// Which instant a media time is.
    base: Option<(Instant, MediaTime)>,
    waiting: VecDeque<Unit>,
    real_time: bool,
}

/// A pacer this much behind begins anew instead of hurrying: the machine slept, or the source stalled.
const BEHIND: Duration = Duration::from_secs(1);

/// The decode order of two tracks may be apart by this much in the source.
const INTERLEAVING: usize = 32;

impl Pace {
    /// Publishes units as they come.
    pub(super) fn immediate(publisher: Publisher) -> Self {
        Self { publisher, base: None, waiting: VecDeque::new(), real_time: false }
    }

    /// Publishes each unit when its decode time has come.
    pub(super) fn real_time(publisher: Publisher) -> Self {
        Self { real_time: true, ..Self::immediate(publisher) }
    }

    /// Takes what the source says. Returns when it has been published, but for a few units that are kept to bring both
    /// tracks into the order of their times.
    pub(super) async fn take(&mut self, event: Event) {
        match event {
            Event::Unit(unit) if self.real_time => {
                let at = self.waiting.partition_point(|before| before.head.dts <= unit.head.dts);
                self.waiting.insert(at, unit);
                if self.waiting.len() > INTERLEAVING {
                    self.publish_next().await;
                }
            }
            event => self.publish(event),
        }
    }

    /// Publishes what the source says at once.
    pub(super) fn publish(&mut self, event: Event) {
        match event {
            Event::Tracks(tracks) => self.publisher.tracks(tracks),
            Event::Unit(unit) => self.publisher.push(unit),
        }
    }

    /// Publishes what is left.
    pub(super) async fn finish(&mut self) {
        while !self.waiting.is_empty() {
            self.publish_next().await;
        }
    }

    async fn publish_next(&mut self) {
        let Some(unit) = self.waiting.pop_front() else { return };
        let now = Instant::now();
        let (instant, media) = *self.base.get_or_insert((now, unit.head.dts));
        let since = u64::try_from(unit.head.dts.as_nanos() - media.as_nanos()).unwrap_or(0);
        let due = instant + Duration::from_nanos(since);
        if due + BEHIND < now {
            self.base = Some((now, unit.head.dts));
        } else {
            tokio::time::sleep_until(due).await;
        }
        self.publisher.push(unit);
    }
}
