//! The sending side's account.

use std::time::Duration;

use freshwire::Sink;
use freshwire_io::tcp::TcpSocket;

use crate::demo::wire::Dropped;

/// The sending side's account so far.
#[derive(Default)]
pub(super) struct Source {
    pub(super) drops: Vec<Dropped>,
    pub(super) horizon_max_bytes: u64,
    /// How late the camera itself was at worst; a camera that TCP keeps waiting is not late by itself.
    pub(super) lateness: Duration,
    /// The sender ended the stream between two units.
    pub(super) closed: bool,
    pub(super) horizon: Option<Horizon>,
}

pub(super) enum Horizon {
    /// The kernel's queue.
    Socket(TcpSocket),
    /// The sink's statistics.
    Sink(Sink),
}

impl Source {
    /// Bytes that nobody can take back and that are not on the wire.
    pub(super) fn horizon_bytes(&self) -> u64 {
        match &self.horizon {
            // A socket that is closed has no queue.
            Some(Horizon::Socket(socket)) => socket.unsent().unwrap_or(0),
            Some(Horizon::Sink(sink)) => sink.stats().horizon,
            None => 0,
        }
    }
}
