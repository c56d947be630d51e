use std::time::{Duration, Instant};

use serde::Serialize;

use crate::brokers::{BrokerSnapshot, BrokerState};
use crate::hub::Hub;
use crate::tasks::Tasks;

const FAILING: &str = "failing";

/// A source that gave nothing for this long does not deliver.
const SILENCE: Duration = Duration::from_secs(5);

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

    /// Adds the streams whose brokers give nothing.
    pub(super) fn add_brokers(&mut self, brokers: &[(String, BrokerSnapshot)]) {
        for (stream, broker) in brokers {
            if !matches!(broker.state, BrokerState::Subscribed { .. }) {
                self.add(Reason::Stream(Silence { stream: stream.clone(), reason: "the broker is away" }));
            }
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

/// Whether a stream has a source, and when that last gave something.
type Delivery = (bool, Option<Instant>);

/// Whether all of these streams are delivering.
pub(super) fn report(expected: &[String], hub: &Hub, now: Instant) -> Health {
    judge(expected, now, |name| {
        let stream = hub.find(name)?.snapshot();
        Some((stream.origin.is_some(), stream.fed))
    })
}

fn judge(expected: &[String], now: Instant, delivery: impl Fn(&str) -> Option<Delivery>) -> Health {
    let reasons: Vec<_> = expected
        .iter()
        .filter_map(|name| {
            let reason = match delivery(name) {
                None | Some((false, _)) => "no source is connected",
                Some((true, Some(at))) if now.saturating_duration_since(at) < SILENCE => return None,
                Some((true, None)) => "the source has not delivered yet",
                Some((true, Some(_))) => "the source has delivered nothing for 5 s",
            };
            Some(Reason::Stream(Silence { stream: name.clone(), reason }))
        })
        .collect();
    Health { status: if reasons.is_empty() { "ok" } else { FAILING }, reasons, panics: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panics_are_reported() {
        let tasks = Tasks::new();
        let once = tasks.spawn("a connection", async { panic!("on purpose") });
        once.await.unwrap();
        let mut health = judge(&[], Instant::now(), |_| None);
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
        let expected = ["cam".to_owned()];
        let begin = Instant::now();
        let after = |seconds: u64| begin + Duration::from_secs(seconds);
        let reason = |now: u64, delivery: Option<Delivery>| {
            let report = judge(&expected, after(now), |_| delivery);
            assert!(judge(&[], after(now), |_| delivery).is_healthy());
            match report.reasons.first()? {
                Reason::Stream(silence) => Some(silence.reason),
                Reason::Task { reason, .. } => Some(*reason),
            }
        };
        assert_eq!(judge(&expected, begin, |_| None).status, "failing");
        assert_eq!(reason(0, None), Some("no source is connected"));
        assert_eq!(reason(1, Some((true, None))), Some("the source has not delivered yet"));
        let delivered = |has_source| Some((has_source, Some(after(2))));
        assert_eq!(reason(2, delivered(true)), None);
        assert_eq!(reason(6, delivered(true)), None);
        assert_eq!(reason(7, delivered(true)), Some("the source has delivered nothing for 5 s"));
        assert_eq!(reason(3, delivered(false)), Some("no source is connected"));
    }
}
