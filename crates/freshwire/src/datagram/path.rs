//! Records over datagrams, for receivers of another protocol such as RTP: the application owns sockets and rate control.

use std::io;

use freshwire_choice::{LinkView, Record};
use freshwire_io::udp::DepartureNote;
use freshwire_record::Timestamp;

use crate::stats::PathRate;
use crate::turn::datagrams::PacketPieces;

/// A path of datagrams. The engine asks it before each packet, so its pace decides how late the policy chooses.
///
/// The engine calls it on the thread that has the turn, and never in parallel. No call may block.
pub trait DatagramPath: Send {
    /// The path as policies see it, with `committed` bytes of the record in progress not sent yet.
    fn view(&self, now: Timestamp, committed: u64) -> LinkView;

    /// When `bytes` more bytes may leave in one burst: `now` or earlier if at once.
    fn ready_at(&self, now: Timestamp, bytes: u64) -> Timestamp;

    /// Takes pieces of the stream: whole packets of `record` as the sink's framing writes them; `None` is for packets that take the
    /// place of dropped records. The path may gather packets for one system call until [`flush`](Self::flush). A packet that
    /// the system does not take is lost, as on the way.
    fn send(&mut self, now: Timestamp, record: Option<&Record>, packets: &[u8]);

    /// Takes such pieces without a copy: the path names the datagrams that are in them, and where they go, by
    /// [`PacketPieces::send`]. The engine hands them over before the next [`flush`](Self::flush), those of many receivers with one system
    /// call. What the system does not take is lost. Returns `false` if the path wants copies: then [`send`](Self::send) follows, with the
    /// same pieces. Default: `false`.
    fn gather(&mut self, now: Timestamp, record: Option<&Record>, pieces: &mut PacketPieces<'_>) -> bool {
        let _ = (now, record, pieces);
        false
    }

    /// Whether the path notes when packets leave, for sinks with [`SinkConfig::departures`](crate::SinkConfig::departures). Default:
    /// `false`; such a sink is refused.
    fn notes_departures(&self) -> bool {
        false
    }

    /// As [`send`](Self::send), for the pieces that end `record`: the path notes when the last of these packets leaves, with the
    /// number `id`. Called if the path notes departures and the sink asks for them.
    fn send_last(&mut self, now: Timestamp, record: &Record, packets: &[u8], id: u32) {
        let _ = id;
        self.send(now, Some(record), packets);
    }

    /// Adds what was noted since the last call, in the order of sending for each stage.
    ///
    /// # Errors
    ///
    /// If the sink has to end.
    fn departures(&mut self, out: &mut Vec<DepartureNote>) -> io::Result<()> {
        let _ = out;
        Ok(())
    }

    /// Hands over what [`send`](Self::send) has gathered. Returns the bytes that the path itself handed over and the number of its system
    /// calls since the last flush.
    ///
    /// # Errors
    ///
    /// If the sink has to end, for example because the receiver is gone.
    fn flush(&mut self, now: Timestamp) -> io::Result<Flushed>;

    /// The state of the path, for the statistics of the sink.
    fn known(&self) -> KnownPath;
}

/// Bytes and calls that a [`DatagramPath`] handed to the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Bytes of packets.
    pub bytes: u64,
    /// System calls.
    pub calls: u64,
}

/// The receiver's state as its [`DatagramPath`] knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KnownPath {
    /// The rate for an adaptive encoder.
    pub rate: Option<PathRate>,
    /// Bytes that the receiver has reported as received.
    pub acked: u64,
    /// Packets that were sent again because the receiver reported them as missing.
    pub repaired: u64,
    /// Requests for packets that were refused because their record can be of no use any more.
    pub late_repairs: u64,
}
