//! The result file, from which every number that is shown comes.

use std::collections::BTreeSet;

use freshwire_record::Rate;
use serde::{Deserialize, Serialize};

use super::metrics::Metrics;
use super::quality::Quality;
use super::video::{FPS, Stream};
use super::wire::Outcome;
use crate::schema::{Environment, LinkConfig};
use crate::table::{Table, percent};

/// The version of the file.
pub(super) const SCHEMA: u32 = 1;

/// All of a demo. Instants are in nanoseconds since the capture of the first frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Demo {
    pub(super) schema: u32,
    pub(super) environment: Environment,
    pub(super) link: LinkConfig,
    /// A picture older than this is late for the viewer.
    pub(super) deadline_ms: u64,
    pub(super) fps: u32,
    /// Mean rate of the stream.
    pub(super) stream_kbit: f64,
    /// The access units in decoding order.
    pub(super) units: Vec<UnitInfo>,
    /// One for each way of sending.
    pub(super) viewers: Vec<Viewing>,
}

/// An access unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct UnitInfo {
    pub(super) layer: u8,
    pub(super) bytes: usize,
    /// The camera's frame, in display order.
    pub(super) frame: usize,
    pub(super) captured_ns: u64,
    pub(super) emitted_ns: u64,
}

/// One viewer's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Viewing {
    pub(super) metrics: Metrics,
    pub(super) quality: Quality,
    pub(super) outcome: Outcome,
}

impl Demo {
    /// Puts everything together.
    pub(super) fn new(
        environment: Environment,
        link: LinkConfig,
        deadline_ms: u64,
        stream: &Stream,
        viewers: Vec<Viewing>,
    ) -> Self {
        let units = stream.units.iter().enumerate().map(|(at, unit)| UnitInfo {
            layer: unit.layer,
            bytes: unit.bytes.len(),
            frame: unit.frame,
            captured_ns: stream.captured(unit.frame).as_nanos() as u64,
            emitted_ns: stream.emitted(at).as_nanos() as u64,
        });
        Self {
            schema: SCHEMA,
            environment,
            link,
            deadline_ms,
            fps: FPS,
            stream_kbit: stream.bytes() as f64 * 8e-3 / stream.duration().as_secs_f64(),
            units: units.collect(),
            viewers,
        }
    }

    /// Nothing was torn and no decoder complained.
    pub(super) fn is_clean(&self) -> bool {
        self.viewers.iter().all(|viewing| {
            viewing.outcome.torn == 0
                && viewing.outcome.undecodable == 0
                && viewing.quality.decoder_errors == 0
        })
    }

    /// Why a run's timing cannot be believed.
    pub(super) fn faults(&self) -> Vec<String> {
        let untrusted = self.viewers.iter().filter(|viewing| !viewing.outcome.trust.trustworthy);
        untrusted
            .map(|viewing| {
                let reason = viewing.outcome.trust.reason.as_deref().unwrap_or("no reason given");
                format!("{}: {reason}", viewing.outcome.scheme.label())
            })
            .collect()
    }

    /// The comparison.
    pub(super) fn table(&self) -> Table {
        type Show = fn(&Viewing) -> String;
        let rows: [(&str, Show); 14] = [
            ("age of what is on the screen, median", |v| seconds(v.metrics.age_p50_s)),
            ("age of what is on the screen, 95th percentile", |v| seconds(v.metrics.age_p95_s)),
            ("age of what is on the screen, worst", |v| seconds(v.metrics.age_max_s)),
            ("time with a picture older than the deadline", |v| percent(v.metrics.late_share)),
            ("frames shown on time", |v| format!("{} of {}", v.metrics.on_time, v.metrics.frames)),
            ("frames shown at all", |v| format!("{} of {}", v.metrics.shown, v.metrics.frames)),
            ("freezes: number, total, longest", |v| {
                let m = &v.metrics;
                format!("{}, {}, {}", m.freezes, seconds(m.freeze_total_s), seconds(m.freeze_longest_s))
            }),
            ("SSIM 1 s behind the camera, mean", |v| format!("{:.3}", v.quality.ssim_mean)),
            ("SSIM 1 s behind the camera, 5th percentile", |v| format!("{:.3}", v.quality.ssim_p5)),
            ("frames dropped by the sender", |v| v.outcome.drops.len().to_string()),
            ("torn frames", |v| (v.outcome.torn + v.outcome.undecodable).to_string()),
            ("decoder errors", |v| v.quality.decoder_errors.to_string()),
            ("horizon, largest", |v| format!("{:.1} kB", v.outcome.horizon_max_bytes as f64 / 1e3)),
            ("congestion control", |v| v.outcome.congestion.clone()),
        ];
        let mut head = vec![String::new()];
        head.extend(self.viewers.iter().map(|viewing| viewing.outcome.scheme.label().to_owned()));
        let row = |name: &str, show: &dyn Fn(&Viewing) -> String| {
            let mut row = vec![name.to_owned()];
            row.extend(self.viewers.iter().map(show));
            row
        };
        let mut rows: Vec<Vec<String>> = rows.iter().map(|(name, show)| row(name, show)).collect();
        let reasons: BTreeSet<&str> = self.viewers.iter().flat_map(reasons_of).collect();
        rows.extend(reasons.into_iter().map(|reason| {
            row(&format!("dropped as {reason}"), &|viewing| {
                reasons_of(viewing).filter(|&one| one == reason).count().to_string()
            })
        }));
        Table {
            caption: format!(
                "{:.0} kbit/s of live video for {:.0} s over {}",
                self.stream_kbit,
                self.units.len() as f64 / f64::from(self.fps),
                link_text(&self.link)
            ),
            head,
            rows,
            labels: 1,
        }
    }
}

fn reasons_of(viewing: &Viewing) -> impl Iterator<Item = &str> {
    viewing.outcome.drops.iter().map(|drop| drop.reason.as_str())
}

/// A link in words.
pub(super) fn link_text(link: &LinkConfig) -> String {
    let rate = link
        .rate_bps
        .map_or("an unlimited rate".to_owned(), |bits| Rate::from_bits_per_sec(bits).to_string() + "/s");
    format!("{rate}, {} loss, {} ms delay", percent(link.loss), link.delay_ms)
}

/// A time for people.
pub(super) fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}
