//! A sink whose records the kernel takes from a ring of its own.
//!
//! ```text
//!  in order, raw:   application ──push──► the kernel's ring ──► TCP      the engine ends the connection, no more
//!  anything else:   application ──push──► ring ──► policy ──► the kernel's ring ──► TCP
//!                                                 Feed: about a segment's worth, taken back until the kernel commits it
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use freshwire_choice::Reason;
use freshwire_io::kernel_ring::RingSocket;
use freshwire_io::tcp::TcpSocket;
use freshwire_record::Timestamp;
use freshwire_ring::{Consumer, Editor};

use super::feed::Feed;
use crate::sink::ended::{CloseMode, Ended, SinkError};
use crate::sink::shared::SinkShared;
use crate::turn::Scratch;
use crate::turn::TurnOutcome;

/// How often the end of the last acknowledgement is looked for after the stream's end, and that of the last record.
const FLUSH_WATCH: Duration = Duration::from_millis(25);

/// The side that fills the kernel's ring.
pub(crate) enum Source {
    /// The application. Its ring in its own region stays claimed and empty.
    Application { editor: Editor, slots: u32, _claim: Consumer },
    /// The engine.
    Engine(Box<Feed>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// Send what the policy still wants, then finish.
    Drain,
    /// The sending direction is closed; waiting for the last acknowledgement.
    Flush,
}

pub(crate) struct KernelSink {
    socket: Arc<RingSocket>,
    source: Source,
    closing: Closing,
    give_up_at: Timestamp,
    stall: Stall,
    shared: EndGuard,
}

/// Says that the sink has ended when nothing else did: the engine was gone before it had the sink.
struct EndGuard(Arc<SinkShared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            self.0.end(Ended::Broken(SinkError::Stopped));
        }
    }
}

/// Notices a peer that takes nothing.
struct Stall {
    timeout: Option<Duration>,
    acked: u64,
    progress_at: Option<Timestamp>,
}

impl KernelSink {
    pub(crate) fn new(
        socket: Arc<RingSocket>,
        source: Source,
        stall_timeout: Option<Duration>,
        shared: Arc<SinkShared>,
    ) -> Self {
        Self {
            socket,
            source,
            closing: Closing::No,
            give_up_at: Timestamp::MAX,
            stall: Stall { timeout: stall_timeout, acked: 0, progress_at: None },
            shared: EndGuard(shared),
        }
    }

    pub(crate) fn socket(&self) -> &TcpSocket {
        self.socket.tcp()
    }

    pub(crate) fn shared(&self) -> &Arc<SinkShared> {
        &self.shared.0
    }

    pub(crate) fn notified(&self) -> bool {
        match &self.source {
            Source::Application { .. } => false,
            Source::Engine(feed) => feed.notified(),
        }
    }

    /// `None`: the engine does not fill the ring.
    pub(crate) fn interject(&mut self, bytes: &[u8]) -> Option<bool> {
        match &mut self.source {
            Source::Application { .. } => None,
            Source::Engine(feed) => Some(feed.interject(bytes, &self.socket)),
        }
    }

    pub(crate) fn turn(&mut self, now: Timestamp, scratch: &mut Scratch) -> Result<TurnOutcome, SinkError> {
        if now >= self.give_up_at {
            return self.abort(SinkError::Lingered);
        }
        let next = match self.closing {
            Closing::Flush => self.flush(now)?,
            Closing::No | Closing::Drain => self.serve(now, scratch)?,
        };
        let stall_at = self.stall.at(now, self.socket.tcp())?;
        if now >= stall_at {
            return self.abort(SinkError::Stalled);
        }
        let latest = self.give_up_at.min(stall_at);
        Ok(match next {
            TurnOutcome::Room(at) => TurnOutcome::Room(at.min(latest)),
            TurnOutcome::Time(at) => TurnOutcome::Time(at.min(latest)),
            TurnOutcome::Push(at) => TurnOutcome::Push(at.min(latest)),
            next => next,
        })
    }

    fn abort(&self, error: SinkError) -> Result<TurnOutcome, SinkError> {
        self.socket.tcp().abort()?;
        Err(error)
    }

    fn serve(&mut self, now: Timestamp, scratch: &mut Scratch) -> io::Result<TurnOutcome> {
        let draining = self.closing == Closing::Drain;
        match &mut self.source {
            Source::Application { .. } if !draining => return Ok(TurnOutcome::Push(Timestamp::MAX)),
            Source::Application { editor, slots, .. } => {
                if editor.unfinished(0) > 0 {
                    self.socket.set_free_slots_wanted(*slots)?;
                    return Ok(TurnOutcome::Room(now + FLUSH_WATCH));
                }
            }
            Source::Engine(feed) => {
                let next = feed.turn(now, &self.socket, &self.shared.0, scratch)?;
                if !draining || !feed.is_idle() {
                    return Ok(next);
                }
                feed.refuse(now);
            }
        }
        self.finish()
    }

    fn finish(&mut self) -> io::Result<TurnOutcome> {
        self.socket.tcp().finish()?;
        self.closing = Closing::Flush;
        Ok(TurnOutcome::Again)
    }

    fn flush(&mut self, now: Timestamp) -> io::Result<TurnOutcome> {
        if let Source::Engine(feed) = &mut self.source {
            feed.settle(now, &self.shared.0);
        }
        if self.socket.tcp().unacknowledged()? == 0 {
            return Ok(TurnOutcome::Ended);
        }
        match self.socket.tcp().take_error()? {
            Some(error) => Err(error),
            None => Ok(TurnOutcome::Push(now + FLUSH_WATCH)),
        }
    }
}

/// Ending.
impl KernelSink {
    pub(crate) fn give_up_at(&mut self, instant: Timestamp) {
        self.give_up_at = instant;
    }

    /// Begins to close. Returns true when the connection is at its end already.
    pub(crate) fn close(&mut self, mode: CloseMode, now: Timestamp) -> io::Result<bool> {
        match mode {
            CloseMode::Drain if self.closing == Closing::No => self.closing = Closing::Drain,
            CloseMode::Drain => {}
            CloseMode::FinishRecord if self.closing == Closing::Flush => {}
            CloseMode::FinishRecord => {
                if let Source::Engine(feed) = &mut self.source {
                    feed.take_all_back(now);
                    feed.refuse(now);
                }
                // The kernel finishes the record in progress and drops the others.
                self.finish()?;
            }
            CloseMode::Abort => {
                self.socket.tcp().abort()?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing != Closing::No
    }

    pub(crate) fn is_flushing(&self) -> bool {
        self.closing == Closing::Flush
    }

    pub(crate) fn is_delivered(&self) -> bool {
        self.is_flushing() && self.socket.tcp().unacknowledged().is_ok_and(|bytes| bytes == 0)
    }

    /// Drops what is left for `reason`, closes the socket, which ends the record in progress, and reports the end.
    pub(crate) fn end(self, reason: Reason, now: Timestamp, ended: Ended) {
        let Self { socket, source, shared: leaving, .. } = self;
        let shared = &leaving.0;
        if let Source::Application { editor, .. } = &source {
            editor.drop_where(0, reason, |_| true);
        }
        if let Some(kernel) = &shared.kernel {
            // For whoever asks later.
            let _last = kernel.snapshot();
            shared.save_late_acks();
        }
        drop(socket);
        if let Source::Engine(mut feed) = source {
            feed.end(reason, now, shared);
        }
        shared.end(ended);
    }
}

impl Stall {
    /// When the peer will have taken nothing for the timeout, although there is something to take.
    fn at(&mut self, now: Timestamp, socket: &TcpSocket) -> io::Result<Timestamp> {
        let Some(timeout) = self.timeout else { return Ok(Timestamp::MAX) };
        let acked = socket.info()?.bytes_acked;
        if acked != self.acked || socket.unacknowledged()? == 0 {
            self.acked = acked;
            self.progress_at = Some(now);
        }
        Ok(*self.progress_at.get_or_insert(now) + timeout)
    }
}
