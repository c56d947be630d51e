use std::io;
use std::net::TcpStream;

use freshwire_io::poll::Waker;
use freshwire_ring::{
    ClaimError, Config, Consumer, CreateError, Edit, EditError, Fate, Meta, Producer, PushError, Region,
    Replaced, TooLate,
};

use crate::engine::Handle;
use crate::sink::{Sink, SinkConfig};

/// Why a sender could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SenderError {
    /// The shared memory could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The region or a ring is in use by another sender or engine.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The stream does not take the sink's settings.
    #[error("the stream does not take the sink's settings: {0}")]
    Stream(#[from] io::Error),
}

/// The application's side: puts records on rings and, until a record is begun on the wire, drops, modifies or replaces
/// it. One arena holds the payloads of all its sinks.
///
/// Nothing blocks: a full ring is a [`PushError`], and the application waits, drops or replaces.
pub struct Sender {
    producer: Producer,
    waker: Waker,
    engine: Handle,
    next_ring: usize,
    /// Rings whose sink is at its end.
    left: Vec<usize>,
}

impl Sender {
    /// Makes the shared memory for `config.rings` sinks.
    pub fn new(config: &Config, engine: &Handle) -> Result<Self, SenderError> {
        Self::over(&Region::create(config)?, engine)
    }

    /// Feeds an existing region, for instance one that outlived its producer; its rings keep what was ready.
    pub fn over(region: &Region, engine: &Handle) -> Result<Self, SenderError> {
        Ok(Self {
            producer: region.producer()?,
            waker: engine.waker(),
            engine: engine.clone(),
            next_ring: 0,
            left: Vec::new(),
        })
    }

    /// Serves `stream` from a ring of the region that no sink uses: one that never had a sink, or was
    /// [given back](Self::reuse).
    pub fn add_sink(&mut self, stream: TcpStream, config: SinkConfig) -> Result<Sink, SenderError> {
        let consumer = self.free_ring()?;
        self.engine.add(stream, consumer, config).map_err(SenderError::Stream)
    }

    fn free_ring(&mut self) -> Result<Consumer, ClaimError> {
        let region = self.producer.region();
        // The engine may need another moment to let go of a ring whose sink was closed just now.
        for (at, &ring) in self.left.iter().enumerate() {
            if let Ok(consumer) = region.consumer(ring) {
                self.left.swap_remove(at);
                return Ok(consumer);
            }
        }
        let consumer = region.consumer(self.next_ring)?;
        self.next_ring += 1;
        Ok(consumer)
    }

    /// Says that the sink of this ring was dropped or has ended, so that another sink may have the ring.
    pub fn reuse(&mut self, ring: usize) {
        if ring < self.next_ring && !self.left.contains(&ring) {
            self.left.push(ring);
        }
    }

    /// The region, to be shared with a second process by its file descriptor.
    pub fn region(&self) -> &Region {
        self.producer.region()
    }

    /// Puts a record on the ring of a sink and returns its index there. No system call while the engine is awake, no
    /// allocation.
    pub fn push(&mut self, ring: usize, payload: &[u8], meta: &Meta) -> Result<u64, PushError> {
        let pushed = self.producer.push(ring, payload, meta)?;
        self.wake_if(pushed.notify);
        Ok(pushed.index)
    }

    /// Puts one payload on several rings; it is copied once. Returns how many rings took it: a full one is passed over,
    /// and its sink misses this record.
    pub fn push_to_all(
        &mut self,
        rings: impl IntoIterator<Item = usize>,
        payload: &[u8],
        meta: &Meta,
    ) -> Result<usize, PushError> {
        let stored = self.producer.store(payload)?;
        let (mut taken, mut notify) = (0, false);
        for ring in rings {
            match self.producer.push_stored(ring, &stored, meta) {
                Ok(pushed) => {
                    taken += 1;
                    notify |= pushed.notify;
                }
                Err(PushError::Full | PushError::Closed) => {}
                Err(error) => {
                    self.wake_if(notify);
                    return Err(error);
                }
            }
        }
        self.wake_if(notify);
        Ok(taken)
    }

    /// Drops the queued records with this number; returns how many slots they had. Exact: what is counted is never sent.
    pub fn drop_seq(&mut self, ring: usize, user_seq: u64) -> usize {
        self.producer.drop_seq(ring, user_seq)
    }

    /// Modifies a queued record in place: `change` has it to itself, and the engine passes it over meanwhile.
    /// [`TooLate`]: it was begun, dropped, or is held by another party.
    pub fn modify(
        &mut self,
        ring: usize,
        user_seq: u64,
        change: impl FnOnce(&mut Edit<'_>) -> Result<(), EditError>,
    ) -> Result<Result<(), EditError>, TooLate> {
        let mut edit = self.producer.edit(ring, user_seq)?;
        let changed = change(&mut edit);
        let notify = edit.release()?;
        self.wake_if(notify);
        Ok(changed)
    }

    /// Puts a record in the place of the newest queued one with the same key, or at the end if there is none.
    pub fn replace(&mut self, ring: usize, payload: &[u8], meta: &Meta) -> Result<Replaced, PushError> {
        let replaced = self.producer.replace(ring, payload, meta)?;
        self.wake_if(replaced.pushed().notify);
        Ok(replaced)
    }

    /// What became of the oldest record that is at its end, in order of pushing.
    pub fn poll_fate(&mut self, ring: usize) -> Option<Fate> {
        self.producer.poll_fate(ring)
    }

    /// The producer itself, for what is not wrapped here: quiet pushes, holding back, queue listings. Calls that say that
    /// the sender has to be notified are followed by [`Sender::notify`].
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// Wakes the engine. One system call.
    pub fn notify(&self) {
        self.waker.wake();
    }

    fn wake_if(&self, notify: bool) {
        if notify {
            self.waker.wake();
        }
    }
}
