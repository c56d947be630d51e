//! Sinks for browsers: a socket that became a WebSocket (RFC 6455) in somebody's HTTP server.
//!
//! The HTTP server answers the upgrade and hands the socket over. [`Messages`] writes each record as a message; [`Session`]
//! reads the client's frames and answers pings and the close. Neither reads the socket: call
//! [`received`](Session::received) with the bytes, from whatever waits for them.
//!
//! ```no_run
//! use std::io::Read;
//! use std::net::TcpStream;
//! use freshwire::websocket::{Event, Messages, Session};
//! use freshwire::{Sender, SenderError, SinkConfig, choice};
//!
//! // `leftover` are bytes that the HTTP server has read behind the request.
//! fn serve(sender: &mut Sender, upgraded: TcpStream, leftover: &[u8]) -> Result<(), SenderError> {
//!     let mut reading = upgraded.try_clone()?;
//!     let sink = sender.add_sink(upgraded, SinkConfig::new(choice::latest()).framing(Messages::text()))?;
//!     let mut session = Session::new(sink, 1 << 16);
//!     let mut events = session.received(leftover);
//!     std::thread::spawn(move || {
//!         let mut buffer = [0; 4096];
//!         while !session.is_closed() {
//!             for event in events.drain(..) {
//!                 if let Event::Text(text) = event {
//!                     println!("the client says {text}");
//!                 }
//!             }
//!             match reading.read(&mut buffer) {
//!                 Ok(count @ 1..) => events = session.received(&buffer[..count]),
//!                 _ => break,
//!             }
//!         }
//!     });
//!     Ok(())
//! }
//! ```
//!
//! Proxies end a connection on which nothing happens, and a client may vanish without a word: call
//! [`keep_alive`](Session::keep_alive) about once a second.
//!
//! A message in progress cannot be given up; `freshwire_media::framing::websocket` says why. [`event_stream`](crate::framing::event_stream)
//! has server-sent events, which need no reader.

mod keepalive;

pub use freshwire_media::framing::websocket::{
    Event, MAX_CONTROL_BYTES, MessageKind, Messages, Opcode, Reader, Role, Violation, close, header, ping,
};

pub use keepalive::{Keepalive, KeepaliveStep};

use std::time::Duration;

use crate::sink::ended::Ended;
use crate::sink::handle::{Monitor, Sink};
use crate::sink::id::SinkId;
use crate::stats::SinkSnapshot;
use crate::{Timestamp, now};

/// The server's side of one WebSocket: a [`Sink`] with [`Messages`], and the reader of the client's frames.
///
/// Dropping it closes the connection without a close frame, after the message in progress.
pub struct Session {
    /// `None` after the close frame.
    sink: Option<Sink>,
    id: SinkId,
    monitor: Monitor,
    reader: Reader,
    violation: Option<Violation>,
    keepalive: Keepalive,
}

impl Session {
    /// Begins behind the handshake. Client messages of more than `max_message_bytes` end the session with code 1009.
    pub fn new(sink: Sink, max_message_bytes: usize) -> Self {
        let (id, monitor) = (sink.id(), sink.monitor());
        let reader = Reader::new(Role::Server, max_message_bytes);
        Self { sink: Some(sink), id, monitor, reader, violation: None, keepalive: Keepalive::default() }
    }

    /// Asks the client after a silence of `every`, by default [`Keepalive::DEFAULT_EVERY`], and ends the session if it does not answer within
    /// `timeout`, by default [`Keepalive::DEFAULT_TIMEOUT`]. Has an effect only where [`keep_alive`](Self::keep_alive) is called.
    #[must_use]
    pub fn keepalive(mut self, every: Duration, timeout: Duration) -> Self {
        self.keepalive = Keepalive::new(every, timeout, now());
        self
    }

    /// Sends a ping if one is due, so that proxies keep the connection, or ends the session with code 1011 if the client has not answered one in
    /// time. Call it at the returned time, or about once a second. `None` once the session is closed.
    pub fn keep_alive(&mut self) -> Option<Timestamp> {
        if self.is_closed() {
            return None;
        }
        let at = now();
        self.keepalive.acknowledged(&self.monitor.stats(), at);
        match self.keepalive.step(at) {
            KeepaliveStep::Wait => {}
            KeepaliveStep::Ping => self.ping(&[]),
            KeepaliveStep::End => {
                self.close(UNEXPECTED, "no answer to a ping");
                return None;
            }
        }
        Some(self.keepalive.next())
    }

    /// Handle of the sink, for [`Sender::push`](crate::Sender::push) and the other calls.
    pub fn id(&self) -> SinkId {
        self.id
    }

    /// Current statistics of the sink.
    pub fn stats(&self) -> SinkSnapshot {
        self.monitor.stats()
    }

    /// Reason for the end of the sink; `None` while it is served.
    pub fn ended(&self) -> Option<Ended> {
        self.monitor.ended()
    }

    /// Takes in bytes that the client has sent, answers pings and the close, and returns what they contain. A breach of the
    /// protocol ends the session with the close frame that RFC 6455 asks for; [`violation`](Self::violation) has it.
    pub fn received(&mut self, bytes: &[u8]) -> Vec<Event> {
        if !bytes.is_empty() {
            self.keepalive.heard(now());
        }
        self.reader.push(bytes);
        let mut events = Vec::new();
        for event in self.reader.by_ref() {
            match event {
                Ok(event) => events.push(event),
                Err(violation) => self.violation = Some(violation),
            }
        }
        let output = self.reader.take_output();
        if self.reader.is_closed() {
            self.finish(output);
        } else if !output.is_empty() {
            self.send(output);
        }
        events
    }

    /// The breach of the protocol that ended the session.
    pub fn violation(&self) -> Option<Violation> {
        self.violation
    }

    /// Asks whether the client is there, with at most [`MAX_CONTROL_BYTES`] that come back in an [`Event::Pong`].
    pub fn ping(&self, payload: &[u8]) {
        let mut frame = Vec::new();
        ping(payload, &mut frame);
        self.send(frame);
    }

    /// Sends a message of its own between two records. The session ends if the client leaves more than 64 KiB of them
    /// unread.
    pub fn say(&self, kind: MessageKind, payload: &[u8]) {
        let mut message = Vec::new();
        header(kind.into(), payload.len() as u64, &mut message);
        message.extend_from_slice(payload);
        self.send(message);
    }

    fn send(&self, frames: Vec<u8>) {
        if let Some(sink) = &self.sink {
            sink.interject(frames);
        }
    }

    /// Ends the session: the message in progress, then the close frame. Returns at once, and bytes that come later are
    /// ignored. `reason` is cut to 123 bytes.
    pub fn close(&mut self, code: u16, reason: &str) {
        let mut frame = Vec::new();
        close(code, reason, &mut frame);
        self.finish(frame);
    }

    /// True if nothing more is sent: the client or this side has closed, or the sink has ended.
    pub fn is_closed(&self) -> bool {
        self.sink.is_none() || self.monitor.ended().is_some()
    }

    fn finish(&mut self, last: Vec<u8>) {
        if let Some(sink) = self.sink.take() {
            sink.finish_with(last);
        }
    }
}

/// RFC 6455, section 7.4.1: other servers end connections so whose clients do not answer pings.
const UNEXPECTED: u16 = 1011;
