//! A line of the result file `state.jsonl`.
//!
//! Times count from the start of the run, which is tick 0 of the source. At tick `n` each object gets a new value; its
//! age counts from that tick, whenever the source came to it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cells::{self, measurement};
use crate::schema::{Environment, LinkConfig, Trust};

/// Everything that was chosen before a run; runs with equal plans repeat each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// How values are sent: one of the names in [`super::scheme`].
    pub(super) scheme: String,
    /// The congestion control of the sending socket by its kernel name; with A1 its own.
    pub(super) congestion: String,
    /// Objects, each with a key.
    pub(super) objects: u32,
    /// New values of each object a second.
    pub(super) updates_per_s: f64,
    /// Bytes of a value on the stream.
    pub(super) value_bytes: u32,
    /// After what time a value is worth nothing, for the schemes that go by that, in milliseconds.
    pub(super) lifetime_ms: f64,
    /// How many values may be on their way, for the scheme that has a gate.
    pub(super) gate: u32,
    /// The path; none is this machine's loopback.
    pub(super) link: Option<LinkConfig>,
    /// How the receiving program reads.
    pub(super) reader: Reader,
    /// How long the source makes values, in seconds.
    pub(super) duration_s: f64,
    /// The beginning that does not count, in seconds.
    pub(super) warm_up_s: f64,
    /// Decides which packets the link loses.
    pub(super) seed: u64,
}

/// How the receiving program reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Reader {
    /// As it comes.
    Fast,
    /// This share of the bytes that the source makes, evenly.
    Slow {
        /// More than 0, less than 1.
        share: f64,
    },
    /// Not at all for a while, otherwise as it comes.
    Stalled {
        /// From when, in seconds.
        from_s: f64,
        /// For how long, in seconds.
        for_s: f64,
    },
    /// All that is there, then nothing until the next turn.
    Bursts {
        /// From one turn to the next, in milliseconds.
        every_ms: f64,
    },
}

/// A plan and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(super) plan: Plan,
    pub(super) environment: Environment,
    /// Whether the machine kept up with the run.
    pub(super) trust: Trust,
    /// The sending program's account.
    pub(super) sender: SenderAccount,
    /// Every value that the receiving program read, in order.
    pub(super) arrivals: Arrivals,
    /// The numbers that follow; filled in when the run is appended to a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metrics: Option<Metrics>,
}

/// The sending program's account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SenderAccount {
    /// Values that were handed over, to the socket, a mailbox or a ring.
    pub(super) offered: u64,
    /// Values that a ring refused.
    pub(super) refused: u64,
    /// Ticks that passed while the program was blocked in a write.
    pub(super) skipped_ticks: u64,
    /// Bytes of the application's memory for values on their way: a tick's buffer, mailboxes or a ring's region.
    pub(super) application_bytes: u64,
    /// Bytes in the kernel's two queues, the sender's until acknowledged and the receiver's until read: mean and most; none
    /// over A1.
    pub(super) kernel_bytes: Option<(f64, u64)>,
    /// How late the source came to its ticks, at the 99th percentile, in microseconds.
    pub(super) lateness_us: u64,
    /// Records by their fates; none without a ring.
    pub(super) fates: Option<Fates>,
}

/// Records by their fates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fates {
    /// Delivered to the other host.
    pub(super) acked: u64,
    /// Handed over without word of their delivery.
    pub(super) sent: u64,
    /// Dropped, for whatever reason.
    pub(super) dropped: u64,
    /// Overwritten before they were polled, once a tick.
    pub(super) lost: u64,
    /// From a value's tick to the acknowledgement, by the fates: the median in microseconds.
    pub(super) acked_after_us: Option<u64>,
}

/// Values in order of their reading, column by column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrivals {
    /// The value's object.
    pub(super) keys: Vec<u32>,
    /// The tick that it is of.
    pub(super) ticks: Vec<u32>,
    /// Microseconds since the one before, of the first since the start.
    pub(super) gaps_us: Vec<u64>,
}

impl Arrivals {
    pub(super) fn of(read: &[(u32, u32, u64)]) -> Self {
        let mut arrivals = Self::default();
        let mut before_us = 0;
        for &(key, tick, at_ns) in read {
            arrivals.keys.push(key);
            arrivals.ticks.push(tick);
            arrivals.gaps_us.push((at_ns / 1000).saturating_sub(before_us));
            before_us = before_us.max(at_ns / 1000);
        }
        arrivals
    }

    /// Key, tick and time in nanoseconds of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        let mut at_us = 0;
        self.keys.iter().zip(&self.ticks).zip(&self.gaps_us).map(move |((key, tick), gap)| {
            at_us += gap;
            (*key, *tick, at_us * 1000)
        })
    }
}

impl Plan {
    pub(super) fn is_a1(&self) -> bool {
        crate::scheme::is_a1(&self.scheme)
    }

    /// When a tick is, from the start.
    pub(super) fn tick_at(&self, tick: u32) -> Duration {
        Duration::from_nanos(self.tick_ns(tick))
    }

    pub(super) fn tick_ns(&self, tick: u32) -> u64 {
        (f64::from(tick) * 1e9 / self.updates_per_s) as u64
    }

    pub(super) fn ticks(&self) -> u32 {
        (self.duration_s * self.updates_per_s) as u32
    }

    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.duration_s)
    }

    /// Bytes that the source makes in a second.
    pub(super) fn bytes_per_s(&self) -> f64 {
        f64::from(self.objects) * self.updates_per_s * f64::from(self.value_bytes)
    }
}

impl cells::Plan for Plan {
    fn cell(&self) -> Self {
        Self { seed: 0, link: self.link.as_ref().map(LinkConfig::without_seed), ..self.clone() }
    }
}

measurement!(Run, Plan);

/// The numbers that follow from a run, all of it from the end of the warm-up to the end of the source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Metrics {
    /// Values that the program read in a second.
    pub(super) values_per_s: f64,
    /// Age of an object's newest value at the program: the mean over time and objects, in nanoseconds.
    pub(super) age_mean_ns: f64,
    /// Its 95th percentile over time, all objects together.
    pub(super) age_p95_ns: f64,
    /// Its mean over time of the object that has it worst.
    pub(super) worst_key_age_ns: f64,
    /// Values of the object that came least often, of the mean over objects; none if nothing came.
    pub(super) least_share: Option<f64>,
    /// The same of the object that came most often.
    pub(super) most_share: Option<f64>,
    /// The longest time without a value of an object.
    pub(super) worst_silence_ns: u64,
    /// How long all objects together take for a value each at the rate that was read; none if nothing came.
    pub(super) fair_round_ns: Option<f64>,
    /// From a value's tick to its reading, the median over values that were read; none if nothing came.
    pub(super) delay_p50_ns: Option<u64>,
    /// The mean age over objects, 100 ms after a stalled reader has returned.
    pub(super) after_return_ns: Option<f64>,
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Two objects, ten ticks a second, two seconds of which the first does not count; nothing has come.
    pub(in crate::state) fn run(scheme: &str, reader: Reader) -> Run {
        Run {
            plan: Plan {
                scheme: scheme.to_owned(),
                congestion: "cubic".to_owned(),
                objects: 2,
                updates_per_s: 10.0,
                value_bytes: 64,
                lifetime_ms: 500.0,
                gate: 8,
                link: None,
                reader,
                duration_s: 2.0,
                warm_up_s: 1.0,
                seed: 1,
            },
            environment: Environment::default(),
            trust: Trust::of(&[]),
            sender: SenderAccount::default(),
            arrivals: Arrivals::default(),
            metrics: None,
        }
    }

    #[test]
    fn the_reference_file_is_what_this_program_writes() {
        let mut runs = [
            run("freshwire", Reader::Fast),
            run("mailbox", Reader::Stalled { from_s: 1.2, for_s: 0.3 }),
            run("tcp", Reader::Slow { share: 0.1 }),
        ];
        for (run, late) in runs.iter_mut().zip([3_000_000, 170_000_000]) {
            let value =
                |n: u32| (n % 2, n * 2 / 3, run.plan.tick_ns(n * 2 / 3) + late + u64::from(n) * 123_000);
            run.arrivals = Arrivals::of(&(0..24).filter(|n| n % 7 != 4).map(value).collect::<Vec<_>>());
            run.sender.offered = 40;
        }
        crate::testing::assert_reference("state", &mut runs, |_, _| ());
    }

    #[test]
    fn arrivals_come_back_with_their_times() {
        let read = [(1, 0, 1_500_999), (0, 3, 1_500_999), (1, 4, 9_000_000)];
        let back: Vec<_> = Arrivals::of(&read).iter().collect();
        assert_eq!(back, [(1, 0, 1_500_000), (0, 3, 1_500_000), (1, 4, 9_000_000)]);
    }
}
