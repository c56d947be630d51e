use std::time::{Duration, Instant};

use freshwire_record::Rate;

/// A publisher may send as much as its rate allows in this time at once.
const WINDOW: Duration = Duration::from_secs(4);

/// Bytes in a window of time.
#[derive(Debug)]
pub(crate) struct Meter {
    since: Instant,
    bytes: u64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), bytes: 0 }
    }

    /// Counts these bytes. `false`: they are more than this rate allows.
    pub(crate) fn allows(&mut self, bytes: usize, most: Rate) -> bool {
        self.bytes += bytes as u64;
        if self.since.elapsed() > WINDOW {
            *self = Self::new();
        }
        self.bytes <= most.bytes_in(WINDOW)
    }
}
