//! Changes of nodes, connections and byte streams as files, for the event loops of others.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use freshwire_io::poll::Event;

use crate::sink::signal::Signal;

/// Changes as a file, from [`Connection::events`](super::Connection::events), [`Node::events`](super::Node::events),
/// [`Connecting::events`](super::Connecting::events), [`ByteReader::events`](super::ByteReader::events) or
/// [`ByteWriter::events`](super::ByteWriter::events). The file is readable from the first change on until it is
/// [cleared](Self::clear). All values from the same call on the same object have the same file.
///
/// ```no_run
/// # use std::time::Duration;
/// # use freshwire::a1::{Closed, Connection};
/// # fn wait_readable(_: impl std::os::fd::AsFd) {}
/// # fn handle(_: freshwire::a1::Message) {}
/// # fn receive(connection: &Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let events = connection.events()?;
/// loop {
///     events.clear(); // before the look, so that no message is missed
///     while let Some(message) = connection.recv(Duration::ZERO)? {
///         handle(message);
///     }
///     wait_readable(&events); // poll(2) or a runtime's equivalent
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Events {
    signal: Arc<Signal>,
    event: Event,
}

impl Events {
    pub(super) fn new(signal: Arc<Signal>) -> io::Result<Self> {
        Ok(Self { event: signal.event()?, signal })
    }

    /// Makes the file unreadable until the next change. Call it before looking for what is new, not after.
    pub fn clear(&self) {
        self.signal.clear();
    }

    /// Makes the file readable. A program with several places that wait for it calls this where one of them has
    /// cleared the file and leaves something for the others.
    pub fn set(&self) {
        self.signal.set();
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_fd().as_raw_fd()
    }
}

/// A signal that is made at the first request.
#[derive(Default)]
pub(super) struct LazySignal(Option<Arc<Signal>>);

impl LazySignal {
    /// The signal of several places.
    pub(super) fn of(signal: Arc<Signal>) -> Self {
        Self(Some(signal))
    }

    pub(super) fn get(&mut self) -> Arc<Signal> {
        Arc::clone(self.0.get_or_insert_default())
    }

    pub(super) fn set(&self) {
        if let Some(signal) = &self.0 {
            signal.set();
        }
    }
}
