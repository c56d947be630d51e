//! Percentiles of times without keeping every one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// Parts of a factor of two: a bucket is at most this fraction of its value wide.
const PARTS: u32 = 64;

/// Counts times in buckets of 1.6 % width. Memory: one counter for each bucket that was met.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    buckets: BTreeMap<u32, u64>,
    count: u64,
    max: Duration,
}

/// A summary of many times, in milliseconds. Percentiles are at most 1.6 % too high.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Half of them are below.
    pub p50_ms: f64,
    /// 95 % of them are below.
    pub p95_ms: f64,
    /// 99 % of them are below.
    pub p99_ms: f64,
    /// None is above.
    pub max_ms: f64,
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, time: Duration) {
        *self.buckets.entry(bucket(time)).or_default() += 1;
        self.count += 1;
        self.max = self.max.max(time);
    }

    /// Counts those of another, too.
    pub fn merge(&mut self, other: &Self) {
        for (&bucket, &count) in &other.buckets {
            *self.buckets.entry(bucket).or_default() += count;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// `None` without any time.
    pub fn summary(&self) -> Option<Summary> {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        (self.count > 0).then(|| Summary {
            p50_ms: ms(self.quantile(0.50)),
            p95_ms: ms(self.quantile(0.95)),
            p99_ms: ms(self.quantile(0.99)),
            max_ms: ms(self.max),
        })
    }

    fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (&bucket, &count) in &self.buckets {
            seen += count;
            if seen >= wanted {
                return upper_end(bucket).min(self.max);
            }
        }
        self.max
    }
}

/// The number of the bucket of a time: its microseconds up to [`PARTS`], then `PARTS` buckets to a factor of two.
fn bucket(time: Duration) -> u32 {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let doublings = micros.checked_ilog2().unwrap_or(0).saturating_sub(PARTS.ilog2());
    doublings * PARTS + (micros >> doublings) as u32
}

fn upper_end(bucket: u32) -> Duration {
    let doublings = (bucket / PARTS).saturating_sub(1);
    let part = u64::from(bucket - doublings * PARTS);
    Duration::from_micros(((part + 1) << doublings) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_times_and_is_narrow() {
        for micros in (0..10_000).chain([123_456, 7_000_000, 86_400_000_000]) {
            let end = upper_end(bucket(Duration::from_micros(micros))).as_micros() as u64;
            assert!(end >= micros && end <= micros + micros / u64::from(PARTS), "{micros} in {end}");
        }
        assert!(bucket(Duration::MAX) > bucket(Duration::from_secs(1 << 40)));
    }

    #[test]
    fn percentiles_of_a_ramp() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.summary(), None);
        for ms in 1..=1000 {
            histogram.add(Duration::from_millis(ms));
        }
        let summary = histogram.summary().unwrap();
        for (value, exact) in [(summary.p50_ms, 500.0), (summary.p95_ms, 950.0), (summary.p99_ms, 990.0)] {
            assert!((exact..exact * 1.016).contains(&value), "{value} for {exact}");
        }
        assert_eq!(summary.max_ms, 1000.0);
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!(twice.summary(), Some(summary));
    }
}
