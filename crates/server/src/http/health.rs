use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::hub::Hub;
use crate::tasks::Tasks;

const FAILING: &str = "failing";

/// A source that gave nothing for this long does not deliver.
const SILENCE: Duration = Duration::from_secs(5);

/// When each stream last got something.
#[derive(Debug, Default)]
pub(super) struct Deliveries(Mutex<BTreeMap<String, Delivery>>);

#[derive(Clone, Copy, Debug)]
struct Delivery {
    has_source: bool,
    units: u64,
    at: Option<Instant>,
}

/// Whether the server does what it is configured to do, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Health {
    status: &'static str,
    reasons: Vec<Reason>,
    /// Tasks that panicked since the server was started; each was logged.
    panics: u64,
}

/// Why the server is not healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Reason {
    Stream(Silence),
    Task { task: String, reason: &'static str },
}

/// A stream that lacks something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Silence {
    stream: String,
    reason: &'static str,
}

impl Health {
    pub(super) fn is_healthy(&self) -> bool {
        self.reasons.is_empty()
    }

    /// Adds the tasks that have panicked a short while ago.
    pub(super) fn add_tasks(&mut self, tasks: &Tasks, now: Instant) {
        self.panics = tasks.panics();
        for task in tasks.unwell(now) {
            self.add(Reason::Task { task, reason: "it has panicked and begins again" });
        }
    }

    /// Adds that no viewer is served any more.
    pub(super) fn add_ended_engine(&mut self) {
        let reason = "it has ended, restart the server";
        self.add(Reason::Task { task: "engine".to_owned(), reason });
    }

    fn add(&mut self, reason: Reason) {
        self.reasons.push(reason);
        self.status = FAILING;
    }
}

impl Deliveries {
    /// Looks what the streams have got. To be called more often than once in [`SILENCE`].
    pub(super) fn look(&self, hub: &Hub, now: Instant) {
        let streams = hub.streams();
        self.note(
            now,
            streams
                .iter()
                .map(|stream| stream.snapshot())
                .map(|stream| (stream.name, stream.origin.is_some(), stream.units)),
        );
    }

    fn note(&self, now: Instant, streams: impl Iterator<Item = (String, bool, u64)>) {
        let mut before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut after = BTreeMap::new();
        for (name, has_source, units) in streams {
            let old = before.get(&name).copied();
            let grew = units > old.map_or(0, |old| old.units);
            let at = if grew { Some(now) } else { old.and_then(|old| old.at) };
            after.insert(name, Delivery { has_source, units, at });
        }
        *before = after;
    }

    /// Whether all of these streams are delivering.
    pub(super) fn report(&self, expected: &[String], now: Instant) -> Health {
        let deliveries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reasons: Vec<_> = expected
            .iter()
            .filter_map(|name| {
                let reason = match deliveries.get(name) {
                    None | Some(Delivery { has_source: false, .. }) => "no source is connected",
                    Some(Delivery { at: Some(at), .. }) if now.saturating_duration_since(*at) < SILENCE => {
                        return None;
                    }
                    Some(Delivery { at: None, .. }) => "the source has not delivered yet",
                    Some(_) => "the source has delivered nothing for 5 s",
                };
                Some(Reason::Stream(Silence { stream: name.clone(), reason }))
            })
            .collect();
        Health { status: if reasons.is_empty() { "ok" } else { FAILING }, reasons, panics: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panics_are_reported() {
        let tasks = Tasks::new();
        let once = tasks.spawn("a connection", async { panic!("on purpose") });
        once.await.unwrap();
        let mut health = Deliveries::default().report(&[], Instant::now());
        health.add_tasks(&tasks, Instant::now());
        // One client's connection is gone, and nothing else.
        assert_eq!(serde_json::to_string(&health).unwrap(), r#"{"status":"ok","reasons":[],"panics":1}"#);
        let panics = || async { panic!("on purpose") };
        let kept = tasks.keep("rtsp".to_owned(), panics);
        let _ = tokio::time::timeout(Duration::from_millis(20), kept).await;
        health.add_ended_engine();
        assert!(!health.is_healthy() && health.status == FAILING);
    }

    #[test]
    fn a_stream_is_healthy_while_it_grows() {
        let deliveries = Deliveries::default();
        let expected = ["cam".to_owned()];
        let begin = Instant::now();
        let note = |after: u64, has_source, units| {
            let now = begin + Duration::from_secs(after);
            deliveries.note(now, std::iter::once(("cam".to_owned(), has_source, units)));
            let report = deliveries.report(&expected, now);
            assert!(deliveries.report(&[], now).is_healthy());
            match report.reasons.first()? {
                Reason::Stream(silence) => Some(silence.reason),
                Reason::Task { reason, .. } => Some(*reason),
            }
        };
        assert_eq!(deliveries.report(&expected, begin).status, "failing");
        assert_eq!(note(0, false, 0), Some("no source is connected"));
        assert_eq!(note(1, true, 0), Some("the source has not delivered yet"));
        assert_eq!(note(2, true, 10), None);
        assert_eq!(note(6, true, 10), None);
        assert_eq!(note(7, true, 10), Some("the source has delivered nothing for 5 s"));
        assert_eq!(note(8, true, 11), None);
        assert_eq!(note(9, false, 11), Some("no source is connected"));
    }
}
