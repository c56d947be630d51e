use std::time::Duration;

use freshwire_record::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The present on `CLOCK_MONOTONIC`, the one clock that all of Freshwire's live code reads.
pub fn now() -> Timestamp {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Timestamp::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Processor time that the calling thread has used.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_advances() {
        let before = now();
        // Pause: longer than one millisecond, in the same order as the two clocks.
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(now().saturating_since(before) >= std::time::Duration::from_millis(2));
    }
}
