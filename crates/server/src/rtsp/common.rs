//! The common part of every request.

use std::io;
use std::time::{Duration, Instant};

use rtsp_types::Method;
use rtsp_types::headers::{CSEQ, PROXY_REQUIRE, REQUIRE, SESSION};

use freshwire_record::Rate;

use super::message::Request;
use super::reply::Reply;
use crate::net::Meter;

/// A viewer over UDP that is not heard of for this long is gone.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// The methods there are.
pub(super) const METHODS: &str =
    "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, TEARDOWN, GET_PARAMETER, SET_PARAMETER, ANNOUNCE, RECORD";

/// Why a request is refused whatever it wants; `session` is the session of the connection.
pub(super) fn refusal(request: &Request, session: Option<&str>) -> Option<Reply> {
    if !request.is_version_1() {
        return Some(Reply::refuse(505, "RTSP Version Not Supported; use 1.0"));
    }
    let cseq = request.header(&CSEQ).map(str::trim).unwrap_or_default();
    if cseq.is_empty() || cseq.len() > 10 || !cseq.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Reply::refuse(400, "Bad Request: no valid CSeq"));
    }
    if let Some(wanted) = request.header(&REQUIRE).or(request.header(&PROXY_REQUIRE)) {
        return Some(Reply::refuse(551, "Option not supported").header("Unsupported", wanted));
    }
    match request.method() {
        Method::Extension(_) => {
            return Some(Reply::refuse(501, "Not Implemented").header("Allow", METHODS));
        }
        Method::Redirect | Method::PlayNotify => {
            return Some(Reply::refuse(405, "Method Not Allowed").header("Allow", METHODS));
        }
        _ => {}
    }
    let named = request.header(&SESSION).map(|value| value.split(';').next().unwrap_or_default().trim());
    named.filter(|&named| Some(named) != session).map(|_| Reply::refuse(454, "Session Not Found"))
}

/// The answer to OPTIONS.
pub(super) fn options() -> Reply {
    Reply::ok().header("Public", METHODS)
}

/// The answer to a method that does not fit what was done before.
pub(super) fn wrong_state(why: &str) -> Reply {
    Reply::refuse(455, format!("Method Not Valid in This State: {why}"))
}

/// The `CSeq` to answer with.
pub(super) fn cseq(request: &Request) -> Option<&str> {
    request.header(&CSEQ).map(str::trim)
}

/// Random bytes, for what nobody may guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::from)?;
    Ok(bytes)
}

/// A new session's name.
pub(super) fn session_id() -> io::Result<String> {
    Ok(format!("{:016x}", u64::from_be_bytes(random()?)))
}

/// Slows down a client that asks without end.
#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    count: u32,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), count: 0 }
    }

    /// Waits if there were too many requests in this second.
    pub(crate) async fn request(&mut self) {
        self.count += 1;
        let passed = self.since.elapsed();
        if passed < SECOND && self.count <= REQUESTS_PER_SECOND {
            return;
        }
        if self.count > REQUESTS_PER_SECOND {
            tokio::time::sleep(SECOND.saturating_sub(passed)).await;
        }
        *self = Self { since: Instant::now(), count: 1 };
    }
}

/// Bounds what a client says besides requests: reports, answers, packets of nothing that was set up.
#[derive(Debug)]
pub(crate) struct ControlTraffic(Meter);

impl ControlTraffic {
    pub(crate) fn new() -> Self {
        Self(Meter::new())
    }

    /// Counts a message of this many bytes. The error says why the connection has to end.
    pub(crate) fn hear(&mut self, bytes: usize) -> Result<(), String> {
        let most = Rate::from_bits_per_sec(MOST_TALK);
        if self.0.allows(bytes + PACKET_COST, most) {
            Ok(())
        } else {
            Err("it sends too many packets".to_owned())
        }
    }
}

/// Bytes that a packet counts for besides its own: empty ones cost time as well.
pub(crate) const PACKET_COST: usize = 64;
/// Bits a second. A player's reports have 5 % of the stream's rate at most (RFC 3550, section 6.2), and few players report more often than each second.
const MOST_TALK: u64 = 2_000_000;
const SECOND: Duration = Duration::from_secs(1);
/// A player sends a dozen in its whole life.
const REQUESTS_PER_SECOND: u32 = 50;
