use std::time::Duration;

/// Buckets per power of two: percentiles are at most 1/16 too high.
const STEPS: u32 = 16;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// How late packets were handed over, as a histogram of fixed size.
pub(super) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { buckets: vec![0; bucket_of(u64::MAX) + 1], count: 0, max: Duration::ZERO }
    }

    pub(super) fn add(&mut self, lateness: Duration) {
        let nanos = u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)] += 1;
        self.count += 1;
        self.max = self.max.max(lateness);
    }

    pub(super) fn max(&self) -> Duration {
        self.max
    }

    /// The upper edge of the bucket in which `share` of all values are reached, at most the maximum.
    pub(super) fn percentile(&self, share: f64) -> Duration {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Duration::from_nanos(upper_edge(bucket)).min(self.max);
            }
        }
        self.max
    }
}

fn bucket_of(nanos: u64) -> usize {
    let shift = nanos.max(1).ilog2().saturating_sub(STEP_BITS);
    (shift * STEPS) as usize + (nanos >> shift) as usize
}

fn upper_edge(bucket: usize) -> u64 {
    let steps = STEPS as usize;
    if bucket < 2 * steps {
        return bucket as u64;
    }
    let shift = bucket / steps - 1;
    let mantissa = (bucket % steps + steps) as u64;
    ((mantissa + 1) << shift).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_everything_in_order() {
        let values = [0, 1, 15, 16, 31, 32, 33, 1000, 123_456, u64::MAX / 2, u64::MAX];
        for pair in values.windows(2) {
            assert!(bucket_of(pair[0]) <= bucket_of(pair[1]), "{pair:?}");
        }
        for value in values {
            let edge = upper_edge(bucket_of(value));
            assert!(edge >= value && edge - value <= value / 16, "{value}: {edge}");
        }
    }

    #[test]
    fn percentiles_are_close() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.percentile(0.5), Duration::ZERO);
        for micros in 1..=1000 {
            histogram.add(Duration::from_micros(micros));
        }
        for (share, micros) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let percentile = histogram.percentile(share).as_micros();
            assert!((micros..=micros + micros / 16 + 1).contains(&percentile), "{share}: {percentile}");
        }
        assert_eq!(histogram.max(), Duration::from_millis(1));
    }
}
