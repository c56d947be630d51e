use std::io;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, SystemTime};

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::{HeaderMap, Method, Request, StatusCode, Version, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use super::asker::text_of;
use super::origin::Origins;
use super::reply::{self, Reply};
use super::shutdown::stopped;
use super::statistics::{self, Question};
use crate::context::Context;
use crate::hub::{Stream, Viewer};
use crate::net::Reader;

/// How often a viewer hears how it is served.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// What a viewer says is short.
const MAX_MESSAGE_BYTES: usize = 1 << 10;

/// Questions answered between two reports; a client that asks more is closed.
const MAX_QUESTIONS: u32 = 20;

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
    let accept = derive_accept_key(key.as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-accept: {accept}\r\n\r\n"
    );
    Ok(head.into_bytes())
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

/// Reads what the viewer says, answers it, and reports how it is served, until one of them has enough.
pub(super) async fn attend(
    reader: Reader,
    early: Vec<u8>,
    stream: &Stream,
    viewer: &Viewer,
    context: &Context,
) {
    let config = WebSocketConfig::default()
        .read_buffer_size(MAX_MESSAGE_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let half = Half { reader, out: Vec::new() };
    let mut socket = WebSocketStream::from_partially_read(half, early, Role::Server, Some(config)).await;
    let mut shutdown = context.shutdown.clone();
    let mut reports = tokio::time::interval(REPORT_EVERY);
    let mut questions = 0;
    let mut acked = 0;
    loop {
        let said = tokio::select! {
            message = socket.next() => match message {
                Some(Ok(message)) => {
                    questions += 1;
                    if questions > MAX_QUESTIONS {
                        let _ = socket.close(Some(close(CloseCode::Policy, "too many messages"))).await;
                        break;
                    }
                    reply_to(&message, stream)
                }
                Some(Err(_)) | None => break,
            },
            _ = reports.tick() => {
                let Some(snapshot) = viewer.snapshot().filter(|_| viewer.ended().is_none()) else { return };
                questions = 0;
                // While the path takes nothing, reports would only pile up and delay what comes after.
                let is_stuck = snapshot.sink.acked < snapshot.sink.bytes && snapshot.sink.acked == acked;
                acked = snapshot.sink.acked;
                (!is_stuck).then(|| statistics::report(&snapshot, stream))
            }
            _ = stopped(&mut shutdown) => {
                let _ = socket.close(Some(close(CloseCode::Away, "the server stops"))).await;
                break;
            }
        };
        if let Some(text) = said
            && socket.send(Message::text(text)).await.is_err()
        {
            break;
        }
        pass_on(&mut socket, viewer);
    }
    pass_on(&mut socket, viewer);
}

/// Lets the engine write what the session has written.
fn pass_on(socket: &mut WebSocketStream<Half>, viewer: &Viewer) {
    let out = std::mem::take(&mut socket.get_mut().out);
    if !out.is_empty() {
        viewer.interject(out);
    }
}

fn reply_to(message: &Message, stream: &Stream) -> Option<String> {
    let Message::Text(text) = message else { return None };
    match Question::read(text)? {
        Question::Ping { at } => Some(statistics::pong(at, stream.wall_clock(), SystemTime::now())),
    }
}

fn close(code: CloseCode, reason: &'static str) -> CloseFrame {
    CloseFrame { code, reason: reason.into() }
}

/// The reading half of a connection; what is written waits until the engine is told.
struct Half {
    reader: Reader,
    out: Vec<u8>,
}

impl AsyncRead for Half {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Half {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// 16 bytes in base64.
const KEY_CHARS: usize = 24;

#[cfg(test)]
mod tests;
