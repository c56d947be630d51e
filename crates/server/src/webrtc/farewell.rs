//! The last words to a page: why its session ends.

use std::time::{Duration, Instant};

use super::session::Session;
use crate::lease::{AWAY, Withdrawal};
use crate::statistics;

/// How long the page has to confirm that it has heard. SCTP sends again what was lost after one second (RFC 9260, `RTO.Min`).
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is seen whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// Tells the page why its session ends, if one listens. Returns `false` if none does.
pub(super) fn say(session: &Session, withdrawal: Option<Withdrawal>, reason: &str) -> bool {
    let code = withdrawal.map_or(AWAY, Withdrawal::close_code);
    session.say_last(&statistics::end(code, reason))
}

/// Waits until the page has heard what was said: the end of the session would come before what has to be sent again.
pub(super) async fn heard(session: &Session) {
    let said = Instant::now();
    while session.is_unheard() && said.elapsed() < PATIENCE {
        tokio::time::sleep(LOOK).await;
        session.look();
    }
}
