//! Waiting for what another process does.

use std::time::{Duration, Instant};

/// Far longer than anything here needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The shortest and the longest pause between two looks.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// Waits until it is true. `what` says what did not come, with a log.
#[track_caller]
pub(crate) fn wait_until(mut is_true: impl FnMut() -> bool, what: impl Fn() -> String) {
    let give_up = Instant::now() + PATIENCE;
    let [mut pause, longest] = PAUSES;
    while !is_true() {
        assert!(Instant::now() < give_up, "{}", what());
        // Pause: until the next look.
        std::thread::sleep(pause);
        pause = longest.min(2 * pause);
    }
}
