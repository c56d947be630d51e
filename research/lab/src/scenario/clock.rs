//! Waiting for an instant.

use freshwire_record::Timestamp;

/// Sleeps until `instant`; returns at once if it has passed.
pub(crate) fn wait_until(instant: Timestamp) {
    loop {
        let left = instant.saturating_since(freshwire_io::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left);
    }
}
