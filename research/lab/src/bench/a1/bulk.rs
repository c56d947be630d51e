//! The measurement of one subject.

use std::time::Duration;

use freshwire_io::now;
use freshwire_record::Timestamp;

/// After this long without a datagram no more come.
pub(super) const SILENCE: Duration = Duration::from_millis(100);

/// The bytes from one sender to one receiver.
pub(super) struct Bulk {
    pub(super) sent: u64,
    pub(super) bytes: u64,
    pub(super) begin: Timestamp,
    pub(super) end: Timestamp,
}

/// Half of each of `count` round trips of `ping`, while `echo` answers at the other end.
pub(super) fn round_trips(
    count: u32,
    mut ping: impl FnMut() -> anyhow::Result<()>,
    echo: impl FnOnce() -> anyhow::Result<()> + Send,
) -> anyhow::Result<Vec<f64>> {
    std::thread::scope(|scope| {
        let echo = scope.spawn(echo);
        let halves = (0..count).map(|_| {
            let begin = now();
            ping()?;
            Ok(half(begin))
        });
        let halves = halves.collect::<anyhow::Result<Vec<f64>>>();
        echo.join().map_err(|_| anyhow::anyhow!("the other end panicked"))??;
        halves
    })
}

/// Half of a round trip that began then, in nanoseconds.
pub(super) fn half(begin: Timestamp) -> f64 {
    now().saturating_since(begin).as_nanos() as f64 / 2.0
}
