use std::convert::Infallible;
use std::future::{Future, pending};
use std::time::{Duration, SystemTime};

use freshwire::now;
use freshwire::websocket::{self, Event, Keepalive, KeepaliveStep, Opcode, Role};
use hyper::{HeaderMap, Method, Request, StatusCode, Version, header};
use sha1::Digest as _;
use tokio::io::AsyncReadExt as _;

use super::reply::{self, Reply};
use super::requester::text_of;
use super::shutdown::stopped;
use crate::config::Origins;
use crate::context::Context;
use crate::hub::{Stream, Viewer};
use crate::lease::{AWAY, Lease, POLICY, Withdrawal};
use crate::net::Reader;
use crate::statistics::{self, Question};

/// How often a viewer hears how it is served.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// Messages of a viewer are short.
const MAX_MESSAGE_BYTES: usize = 1 << 10;

/// Frames between two reports, also those without a message, and messages that are answered; a client that says more is closed.
const MAX_FRAMES: u64 = 2000;
const MAX_ANSWERS: u32 = 20;

/// Checks that a request may become a WebSocket of a page of one of these origins; the head of the answer that makes it one.
pub(super) fn accept<B>(request: &Request<B>, origins: &Origins) -> Result<Vec<u8>, Box<Reply>> {
    let headers = request.headers();
    let refuse = |status, text| Err(Box::new(reply::text(status, text)));
    if request.method() != Method::GET || !has_token(headers, &header::UPGRADE, "websocket") {
        let refusal = reply::text(StatusCode::UPGRADE_REQUIRED, "this is for WebSocket clients");
        return Err(Box::new(reply::with_header(refusal, header::UPGRADE, "websocket")));
    }
    if request.version() != Version::HTTP_11 || !has_token(headers, &header::CONNECTION, "upgrade") {
        return refuse(StatusCode::BAD_REQUEST, "a WebSocket begins with HTTP/1.1 and `Connection: Upgrade`");
    }
    if text_of(headers, &header::SEC_WEBSOCKET_VERSION) != Some("13") {
        let refusal = reply::text(StatusCode::UPGRADE_REQUIRED, "the WebSocket version is 13");
        return Err(Box::new(reply::with_header(refusal, header::SEC_WEBSOCKET_VERSION, "13")));
    }
    let Some(key) = text_of(headers, &header::SEC_WEBSOCKET_KEY).filter(|key| key.len() == KEY_CHARS) else {
        return refuse(StatusCode::BAD_REQUEST, "the WebSocket key is missing or not 16 bytes in base64");
    };
    if !origins.allow(headers) {
        let why =
            "pages of other sites may not play this stream; trusted_origins in [http] names those that may";
        return refuse(StatusCode::FORBIDDEN, why);
    }
    let accept = accept_key(key);
    let protocol = subprotocol(headers).map(|name| format!("sec-websocket-protocol: {name}\r\n"));
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-accept: {accept}\r\n{}\r\n",
        protocol.unwrap_or_default()
    );
    Ok(head.into_bytes())
}

/// The first subprotocol that the client offers. The messages are the same under any name, and a browser whose offer is not
/// answered closes the connection (RFC 6455, section 4.1).
fn subprotocol(headers: &HeaderMap) -> Option<&str> {
    let offers = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let mut names = offers.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    names.next().map(str::trim).filter(|name| !name.is_empty() && name.bytes().all(is_token))
}

/// A character of a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether one of the header's comma-separated values is this.
fn has_token(headers: &HeaderMap, name: &header::HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|value| value.trim().eq_ignore_ascii_case(token))
}

/// A service over a WebSocket.
pub(super) trait SocketService {
    /// The answer to a text message.
    fn reply(&self, text: &str) -> Option<String>;

    /// How it is served, in words for the client; an error once it is not any more. `keepalive` hears of what the client has acknowledged.
    fn report(&mut self, keepalive: &mut Keepalive) -> Result<Option<String>, ServiceEnd>;

    /// Lets the engine write frames between two messages.
    fn interject(&self, frames: Vec<u8>);

    /// Does what is to be done between the calls. Cancel safe, and without an end.
    fn attend(&self) -> impl Future<Output = Infallible> + Send {
        pending()
    }

    /// Lets the engine write the close frame, and ends it.
    fn finish(self, last: Vec<u8>);
}

/// It is not served any more.
pub(super) struct ServiceEnd;

/// Reads what the client says, answers it, and reports how it is served, until one of them has enough or what was granted is withdrawn.
pub(super) async fn attend<S: SocketService>(
    mut reader: Reader,
    early: &[u8],
    mut served: S,
    mut lease: Lease,
    context: &Context,
) {
    let mut frames = websocket::Reader::new(Role::Server, MAX_MESSAGE_BYTES);
    let mut shutdown = context.shutdown.clone();
    let mut reports = tokio::time::interval(REPORT_EVERY);
    let mut buffer = [0; MAX_MESSAGE_BYTES];
    let limits = context.limits();
    let mut keepalive = Keepalive::new(limits.keepalive, limits.keepalive_timeout, now());
    let (mut counted, mut answers) = (0, 0);
    frames.push(early);
    loop {
        for event in frames.by_ref() {
            match event {
                Ok(event) => {
                    if let Event::Text(text) = event
                        && let Some(answer) = served.reply(&text)
                    {
                        answers += 1;
                        served.interject(message(&answer));
                    }
                }
                Err(violation) => tracing::debug!(%violation, "a WebSocket client broke the protocol"),
            }
        }
        let output = frames.take_output();
        if frames.is_closed() {
            return served.finish(output);
        }
        if frames.frames() - counted > MAX_FRAMES || answers > MAX_ANSWERS {
            return served.finish(farewell(POLICY, "too many messages"));
        }
        if !output.is_empty() {
            served.interject(output);
        }
        tokio::select! {
            read = reader.read(&mut buffer) => match read {
                Ok(count @ 1..) => {
                    keepalive.heard(now());
                    frames.push(&buffer[..count]);
                }
                Ok(0) | Err(_) => return,
            },
            _ = reports.tick() => {
                (counted, answers) = (frames.frames(), 0);
                match served.report(&mut keepalive) {
                    Ok(Some(report)) => served.interject(message(&report)),
                    Ok(None) => {}
                    Err(ServiceEnd) => return,
                }
                match keepalive.step(now()) {
                    KeepaliveStep::Wait => {}
                    KeepaliveStep::Ping => served.interject(ping()),
                    KeepaliveStep::End => return served.finish(farewell(UNEXPECTED, NO_ANSWER)),
                }
            }
            never = served.attend() => match never {},
            why = lease.withdrawn(context) => return served.finish(withdrawn(why)),
            _ = stopped(&mut shutdown) => return served.finish(farewell(AWAY, "the server stops")),
        }
    }
}

fn message(text: &str) -> Vec<u8> {
    let mut message = Vec::new();
    websocket::header(Opcode::Text, text.len() as u64, &mut message);
    message.extend_from_slice(text.as_bytes());
    message
}

pub(super) fn ping() -> Vec<u8> {
    let mut frame = Vec::new();
    websocket::ping(&[], &mut frame);
    frame
}

/// A close frame.
pub(super) fn farewell(code: u16, reason: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    websocket::close(code, reason, &mut frame);
    frame
}

/// The close frame for a client that has lost what it was granted.
pub(super) fn withdrawn(why: Withdrawal) -> Vec<u8> {
    farewell(why.close_code(), &why.to_string())
}

/// A viewer of pictures.
pub(super) struct StreamService<'a> {
    stream: &'a Stream,
    viewer: Viewer,
    acked: u64,
}

impl<'a> StreamService<'a> {
    pub(super) fn new(stream: &'a Stream, viewer: Viewer) -> Self {
        Self { stream, viewer, acked: 0 }
    }
}

impl SocketService for StreamService<'_> {
    fn reply(&self, text: &str) -> Option<String> {
        match Question::read(text)? {
            Question::Ping { at } => Some(statistics::pong(at, self.stream.wall_clock(), SystemTime::now())),
            Question::Ack { .. } => None,
        }
    }

    fn report(&mut self, keepalive: &mut Keepalive) -> Result<Option<String>, ServiceEnd> {
        let snapshot = self.viewer.snapshot().filter(|_| self.viewer.ended().is_none()).ok_or(ServiceEnd)?;
        keepalive.acknowledged(&snapshot.sink, now());
        // While the path takes nothing, reports would only pile up and delay what comes after.
        let is_stuck = snapshot.sink.acked < snapshot.sink.bytes && snapshot.sink.acked == self.acked;
        self.acked = snapshot.sink.acked;
        Ok((!is_stuck).then(|| statistics::report(&snapshot, self.stream)))
    }

    fn interject(&self, frames: Vec<u8>) {
        self.viewer.interject(frames);
    }

    fn finish(self, last: Vec<u8>) {
        self.viewer.finish_with(last);
    }
}

/// The proof that the server has read the key (RFC 6455, section 4.2.2).
fn accept_key(key: &str) -> String {
    let digest = sha1::Sha1::new().chain_update(key).chain_update(KEY_SUFFIX).finalize();
    data_encoding::BASE64.encode(&digest)
}

const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
// RFC 6455, section 7.4.1.
/// Other servers end connections so whose clients do not answer pings.
pub(super) const UNEXPECTED: u16 = 1011;
pub(super) const NO_ANSWER: &str = "no answer to a ping within limits.keepalive_timeout";

/// 16 bytes in base64.
const KEY_CHARS: usize = 24;

#[cfg(test)]
mod tests;
