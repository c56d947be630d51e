use std::iter::Sum;

use crate::crypto::{Protection, PublicKey};
use crate::remote::Remote;
use crate::wire::Qos;

/// Names a connection of an [`Endpoint`](super::Endpoint), from its begin until it is removed. It is never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle {
    /// The number that the peer puts into its packets.
    pub(super) id: u32,
    /// Tells connections apart that have the same number one after the other.
    pub(super) serial: u64,
}

/// What happened at an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointEvent {
    /// Somebody wants to connect. [`Endpoint::accept`](super::Endpoint::accept) or
    /// [`Endpoint::refuse`](super::Endpoint::refuse) it.
    Incoming(Incoming),
    /// The connection is established: both ends have proved their keys.
    Connected(ConnectionHandle),
    /// The connection never stood, and its handle is void.
    Failed(ConnectionHandle, ConnectError),
    /// The connection is over and sends nothing any more. What it has received can still be read until it is removed
    /// with [`Endpoint::remove`](super::Endpoint::remove).
    Ended(ConnectionHandle),
}

/// An initiator that waits for the application's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incoming {
    /// The connection that it may become.
    pub handle: ConnectionHandle,
    /// Where it is; it has shown that it receives there.
    pub from: Remote,
    /// The initiator's public key.
    pub key: PublicKey,
    /// The least protection that is good enough for it.
    pub protection: Protection,
    /// The quality of service that it asks for, as this end sees it.
    pub qos: Qos,
    /// The most that it will ever ask for, as this end sees it.
    pub maximum: Qos,
}

/// Why an initiator is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A number for programs; those below 256 are the protocol's own.
    pub code: u64,
    /// A text for people, of at most 256 bytes.
    pub text: String,
}

impl Refusal {
    /// The initiator's key is not on the list.
    pub const NOT_ALLOWED: u64 = 1;
    /// The responder has as many connections as it can.
    pub const BUSY: u64 = 2;

    /// A refusal with a code of the application's.
    pub fn new(code: u64, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// Why a connection never stood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody answers at the address.
    #[error("no answer")]
    NoAnswer,
    /// Somebody hands out cookies at the address, and does not answer the handshake.
    #[error("the peer does not answer the handshake: it has another key, or takes no more connections now")]
    NoResponse,
    /// An answer came that cannot be read.
    #[error("the peer's answer is not authentic: it has not the same pre-shared key")]
    NotAuthentic,
    /// The initiator has got an answer and was not heard of again.
    #[error("the peer did not complete the handshake")]
    NotCompleted,
    /// The responder speaks another version of the protocol.
    #[error("the peer speaks version {0} of the protocol")]
    Version(u32),
    /// The responder does not want the connection.
    #[error("refused by the peer: {} (code {})", .0.text, .0.code)]
    Refused(Refusal),
    /// The responder's answer does not make sense.
    #[error("the peer breaks the protocol: {0}")]
    Protocol(&'static str),
}

/// A handle of a connection that does not exist any more, or that is not in the state for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection is not there, or not in the state for this")]
pub struct WrongHandle;

/// What an endpoint has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Datagrams that are no packet of this protocol.
    pub malformed: u64,
    /// Packets for a connection that is not there, or that is in no state to take them.
    pub unknown: u64,
    /// Cookies that were handed out.
    pub retries: u64,
    /// Initiations with a cookie that is too old, or not for their address.
    pub wrong_cookies: u64,
    /// Handshake messages and resets that were not authentic.
    pub unauthentic: u64,
    /// Resets that were sent.
    pub resets: u64,
    /// Initiators that were refused, by the application or by the endpoint itself.
    pub refused: u64,
    /// Initiations, and packets for connections that are not there, that were not answered because of a limit.
    pub over_limit: u64,
    /// Handshake packets of this endpoint that found the queue full.
    pub queue_full: u64,
}

impl Sum for EndpointStats {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            malformed: sum.malformed + one.malformed,
            unknown: sum.unknown + one.unknown,
            retries: sum.retries + one.retries,
            wrong_cookies: sum.wrong_cookies + one.wrong_cookies,
            unauthentic: sum.unauthentic + one.unauthentic,
            resets: sum.resets + one.resets,
            refused: sum.refused + one.refused,
            over_limit: sum.over_limit + one.over_limit,
            queue_full: sum.queue_full + one.queue_full,
        })
    }
}
