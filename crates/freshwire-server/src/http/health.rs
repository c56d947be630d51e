use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::hub::Hub;

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
    reasons: Vec<Silence>,
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
                Some(Silence { stream: name.clone(), reason })
            })
            .collect();
        Health { status: if reasons.is_empty() { "ok" } else { "failing" }, reasons }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            report.reasons.first().map(|silence| silence.reason)
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
