//! The one way in which these tests wait for something.
#![allow(dead_code, reason = "not every test needs both")]

use std::time::Duration;

use freshwire::now;

/// Long enough for a machine under load. Only a failure takes this long.
const LIMIT: Duration = Duration::from_secs(20);

/// Waits for a condition; panics with `what` if it is not met in time.
pub(crate) fn until(what: &str, mut is_met: impl FnMut() -> bool) {
    found(what, || is_met().then_some(()));
}

/// Waits for a value; panics with `what` if there is none in time.
pub(crate) fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < deadline, "not within {LIMIT:?}: {what}");
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(1));
    }
}
