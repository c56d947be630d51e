//! The last words to a page: why its session ends.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::session::Session;
use crate::lease::Withdrawal;

/// The codes of a close frame in WebSocket (RFC 6455, section 7.4.1): the page may come again, or it may not have the stream.
const AWAY: u16 = 1001;
const POLICY: u16 = 1008;

/// How long the page has to confirm that it has heard. SCTP sends again what was lost after one second (RFC 9260, `RTO.Min`).
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is seen whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// The message, with the members of a close frame.
#[derive(Serialize)]
struct Farewell<'a> {
    r#type: &'static str,
    code: u16,
    reason: &'a str,
}

/// Tells the page why its session ends, if one listens. Returns `false` if none does.
pub(super) fn say(session: &Session, withdrawal: Option<Withdrawal>, reason: &str) -> bool {
    let code = match withdrawal {
        Some(Withdrawal::View | Withdrawal::Publish | Withdrawal::Site) => POLICY,
        Some(Withdrawal::Removed | Withdrawal::Codec) | None => AWAY,
    };
    let farewell = Farewell { r#type: "end", code, reason };
    // A structure of a number and texts has a text.
    session.say_last(&serde_json::to_string(&farewell).unwrap_or_default())
}

/// Waits until the page has heard what was said: the end of the session would come before what has to be sent again.
pub(super) async fn heard(session: &Session) {
    let said = Instant::now();
    while session.is_unheard() && said.elapsed() < PATIENCE {
        tokio::time::sleep(LOOK).await;
        session.look();
    }
}
