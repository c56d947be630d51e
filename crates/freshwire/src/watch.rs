//! Waiting for a sink: by a file, or in an async program.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use freshwire_io::poll::Event;
use freshwire_ring::{Fate, Meta};

use crate::error::PushError;
use crate::sender::Sender;
use crate::sink::ended::Ended;
use crate::sink::handle::Sink;
use crate::sink::id::{SinkId, StaleSink};
use crate::sink::shared::SinkShared;

impl Sink {
    /// Returns a file that becomes readable when something has become of records, or the sink has ended: a push may find
    /// space, and [`Sender::poll_fate`] a fate. For `poll`, `epoll` and their kin; [`SinkWatch`] is for async programs.
    ///
    /// # Errors
    ///
    /// If the system refuses a file descriptor. [`io::ErrorKind::Unsupported`] for
    /// [`CarrierInUse::KernelRing`](crate::sink::CarrierInUse::KernelRing), whose records no thread of this program handles.
    pub fn events(&self) -> io::Result<SinkEvents> {
        check(self)?;
        let event = self.shared.signal().event()?;
        Ok(SinkEvents { shared: Arc::clone(&self.shared), event })
    }
}

impl Sink {
    /// Returns a file that becomes readable when the sink has ended, and stays so. For programs that wait for the end alone:
    /// [`events`](Self::events) also tells of each record.
    ///
    /// # Errors
    ///
    /// If the system refuses a file descriptor.
    pub fn end_event(&self) -> io::Result<EndEvent> {
        Ok(EndEvent(self.shared.end_event()?))
    }
}

/// The end of a sink as a file, from [`Sink::end_event`]. All values of one sink have the same file, which is readable from the end on.
#[derive(Clone, Debug)]
pub struct EndEvent(Event);

impl AsFd for EndEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EndEvent {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Whether changes of the sink are noted.
fn check(sink: &Sink) -> io::Result<()> {
    if sink.shared.kernel.is_some() { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
}

/// Changes of a sink as a file, from [`Sink::events`]. The file is readable from the first change on until it is
/// [cleared](Self::clear). All values of one sink have the same file, so let one place wait for it.
///
/// ```no_run
/// # use freshwire::{Meta, PushError, Sender, Sink};
/// # fn wait_readable(_: impl std::os::fd::AsFd) {}
/// # fn push(sender: &mut Sender, sink: &Sink, payload: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
/// let events = sink.events()?;
/// while let Err(PushError::Full) = sender.push(sink.id(), payload, &Meta::default()) {
///     wait_readable(&events); // poll(2) or a runtime's equivalent
///     events.clear(); // before the next attempt, so that no change is missed
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SinkEvents {
    shared: Arc<SinkShared>,
    event: Event,
}

impl SinkEvents {
    /// Makes the file unreadable until the next change. Call it before looking at the sender, not after.
    pub fn clear(&self) {
        self.shared.signal().clear();
    }

    /// Reason for the end of the sink; `None` while it is served.
    pub fn ended(&self) -> Option<Ended> {
        self.shared.ended()
    }
}

impl AsFd for SinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for SinkEvents {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_fd().as_raw_fd()
    }
}

/// Waits for a sink in an async program, in any runtime. A [`Sender`] never blocks, so async code calls it directly; what
/// takes time are space in a full ring, and fates. All methods are cancel safe. Use one value for each sink.
///
/// ```no_run
/// use std::time::Duration;
/// use freshwire::{Engine, Meta, RingConfig, Sender, SinkConfig, choice};
/// use freshwire::sink::CloseMode;
/// use freshwire::watch::SinkWatch;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new()?.spawn()?;
/// let mut sender = Sender::new(&RingConfig::default(), &engine.handle())?;
/// let stream = tokio::net::TcpStream::connect("viewer:5000").await?.into_std()?;
/// let sink = sender.add_sink(stream, SinkConfig::new(choice::fifo()))?;
/// let watch = SinkWatch::new(&sink)?;
/// for _ in 0..1000 {
///     watch.push(&mut sender, b"waits for space", &Meta::default()).await?;
/// }
/// while let Some(fate) = watch.next_fate(&mut sender).await? {
///     println!("{fate}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SinkWatch {
    id: SinkId,
    shared: Arc<SinkShared>,
}

impl SinkWatch {
    /// Watches a sink.
    ///
    /// # Errors
    ///
    /// As [`Sink::events`].
    pub fn new(sink: &Sink) -> io::Result<Self> {
        check(sink)?;
        sink.shared.signal().watch();
        Ok(Self { id: sink.id(), shared: Arc::clone(&sink.shared) })
    }

    /// Waits until something has become of records since the last wait, or the sink has ended. May return early, so look
    /// again.
    pub async fn changed(&self) {
        poll_fn(|context| self.shared.signal().poll(context)).await;
    }

    /// Waits until [`Sender::has_room`] for a record of `len` bytes, or until the sink has ended.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub async fn writable(&self, sender: &mut Sender, len: usize, meta: &Meta) -> Result<(), StaleSink> {
        while !sender.has_room(self.id, len, meta)? && !self.shared.has_ended() {
            self.changed().await;
        }
        Ok(())
    }

    /// Queues a record as [`Sender::push`] does, and waits while the ring is full.
    ///
    /// # Errors
    ///
    /// As [`Sender::push`], except for missing space.
    pub async fn push(&self, sender: &mut Sender, payload: &[u8], meta: &Meta) -> Result<u64, PushError> {
        loop {
            self.writable(sender, payload.len(), meta).await?;
            match sender.push(self.id, payload, meta) {
                // Other sinks of the sender have taken the blocks of the arena since.
                Err(PushError::Full | PushError::OutOfBlocks) => {}
                result => return result,
            }
        }
    }

    /// Waits for the next fate of the sink's records. Returns `None` after the sink's end, when all are reported.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub async fn next_fate(&self, sender: &mut Sender) -> Result<Option<Fate>, StaleSink> {
        loop {
            // Before the look: what became of records until the end is known then.
            let has_ended = self.shared.has_ended();
            if let Some(fate) = sender.poll_fate(self.id)? {
                return Ok(Some(fate));
            }
            if has_ended {
                return Ok(None);
            }
            self.changed().await;
        }
    }
}
