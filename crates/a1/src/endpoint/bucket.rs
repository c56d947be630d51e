use std::time::Duration;

use freshwire_record::Timestamp;

/// Allows `per_second` events a second, and those saved up in one second at once.
pub(super) struct Bucket {
    /// The time that one of them takes.
    price: Duration,
    /// The saved allowance, as time.
    saved: Duration,
    updated: Timestamp,
}

impl Bucket {
    /// A full bucket. Zero per second allows none.
    pub(super) fn new(per_second: u32) -> Self {
        let price = if per_second == 0 { Duration::MAX } else { FULL / per_second };
        Self { price, saved: FULL, updated: Timestamp::ZERO }
    }

    /// Takes one; false if there is none.
    pub(super) fn take(&mut self, now: Timestamp) -> bool {
        self.saved = self.saved.saturating_add(now.saturating_since(self.updated)).min(FULL);
        self.updated = self.updated.max(now);
        match self.saved.checked_sub(self.price) {
            Some(rest) => {
                self.saved = rest;
                true
            }
            None => false,
        }
    }
}

/// Time whose allowance a full bucket holds. Chosen, not measured.
const FULL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_its_rate() {
        let mut bucket = Bucket::new(10);
        let taken = |bucket: &mut Bucket, at_ms| {
            let now = Timestamp::ZERO + Duration::from_millis(at_ms);
            (0..100).take_while(|_| bucket.take(now)).count()
        };
        assert_eq!(taken(&mut bucket, 0), 10);
        assert_eq!(taken(&mut bucket, 99), 0);
        assert_eq!(taken(&mut bucket, 100), 1);
        assert_eq!(taken(&mut bucket, 350), 2);
        assert_eq!(taken(&mut bucket, 100_000), 10);
        assert_eq!(taken(&mut Bucket::new(0), 100_000), 0);
    }
}
