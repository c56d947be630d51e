use std::io;
use std::net::TcpStream;

use freshwire_io::poll::Waker;
use freshwire_ring::{
    ClaimError, Config, Consumer, CreateError, Edit, EditError, Fate, Meta, Producer, PushError, Region,
    Replaced, Stored, TooLate,
};

use crate::carrier::CarrierError;
use crate::direct::Direct;
use crate::engine::{AddError, Handle};
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
    /// The sink cannot have the kernel's ring.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
}

impl From<AddError> for SenderError {
    fn from(error: AddError) -> Self {
        match error {
            AddError::Stream(error) => Self::Stream(error),
            AddError::Carrier(error) => Self::Carrier(error),
        }
    }
}

/// The application's side: puts records on rings and, until a record is begun on the wire, drops, modifies or replaces
/// it. One arena holds the payloads of all its sinks.
///
/// A sink with [`CarrierInUse::KernelRing`](crate::CarrierInUse::KernelRing) has its records in the kernel's own ring instead;
/// the calls are the same, and [`region_of`](Self::region_of) says where they lie.
///
/// Nothing blocks: a full ring is a [`PushError`], and the application waits, drops or replaces.
pub struct Sender {
    producer: Producer,
    waker: Waker,
    engine: Handle,
    next_ring: usize,
    /// Rings whose sink is at its end.
    left: Vec<usize>,
    /// By ring: those whose records lie in the kernel's own.
    direct: Vec<Option<Direct>>,
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
            direct: Vec::new(),
        })
    }

    /// Serves `stream` from a ring of the region that no sink uses: one that never had a sink, or was
    /// [given back](Self::reuse).
    pub fn add_sink(&mut self, stream: TcpStream, config: SinkConfig) -> Result<Sink, SenderError> {
        let consumer = self.free_ring()?;
        let ring = consumer.ring();
        let (sink, direct) = self.engine.admit(stream, consumer, config, true)?;
        if let Some(place) = self.direct.get_mut(ring) {
            *place = direct;
        } else if direct.is_some() {
            self.direct.resize_with(ring, || None);
            self.direct.push(direct);
        }
        Ok(sink)
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

    /// The region, to be shared with a second process by its file descriptor. Rings of sinks with
    /// [`CarrierInUse::KernelRing`](crate::CarrierInUse::KernelRing) are empty there.
    pub fn region(&self) -> &Region {
        self.producer.region()
    }

    /// Where the records of a sink's ring lie, and the ring's number there: for an [`Editor`](freshwire_ring::Editor), whose
    /// calls that say that the sender has to be notified are followed by [`Sender::notify`].
    pub fn region_of(&self, ring: usize) -> (&Region, usize) {
        match self.direct.get(ring) {
            Some(Some(direct)) => (direct.region(), 0),
            _ => (self.producer.region(), ring),
        }
    }

    fn direct(&mut self, ring: usize) -> Option<&mut Direct> {
        self.direct.get_mut(ring)?.as_mut()
    }

    /// Puts a record on the ring of a sink and returns its index there. No system call while the engine is awake, no
    /// allocation.
    pub fn push(&mut self, ring: usize, payload: &[u8], meta: &Meta) -> Result<u64, PushError> {
        if let Some(direct) = self.direct(ring) {
            return direct.push(payload, meta);
        }
        let pushed = self.producer.push(ring, payload, meta)?;
        self.wake_if(pushed.notify);
        Ok(pushed.index)
    }

    /// Puts one payload on several rings; it is copied once, and once more into each ring of the kernel's. Returns how many rings took it: a full one is passed over,
    /// and its sink misses this record.
    pub fn push_to_all(
        &mut self,
        rings: impl IntoIterator<Item = usize>,
        payload: &[u8],
        meta: &Meta,
    ) -> Result<usize, PushError> {
        let mut stored = None;
        let (mut taken, mut notify) = (0, false);
        for ring in rings {
            let pushed = match self.direct(ring) {
                Some(direct) => match direct.push(payload, meta) {
                    Err(PushError::OutOfBlocks) => Err(PushError::Full),
                    pushed => pushed.map(|_| false),
                },
                None => self.push_once(&mut stored, ring, payload, meta),
            };
            match pushed {
                Ok(asleep) => {
                    taken += 1;
                    notify |= asleep;
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

    /// Pushes a payload that is stored when the first ring needs it. True: the engine has to be notified.
    fn push_once(
        &mut self,
        stored: &mut Option<Stored>,
        ring: usize,
        payload: &[u8],
        meta: &Meta,
    ) -> Result<bool, PushError> {
        let stored = match stored {
            Some(stored) => stored,
            None => stored.insert(self.producer.store(payload)?),
        };
        self.producer.push_stored(ring, stored, meta).map(|pushed| pushed.notify)
    }

    /// Drops the queued records with this number; returns how many slots they had. Exact: what is counted is never sent.
    pub fn drop_seq(&mut self, ring: usize, user_seq: u64) -> usize {
        if let Some(direct) = self.direct(ring) {
            return direct.producer.drop_seq(0, user_seq);
        }
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
        if let Some(direct) = self.direct(ring) {
            return direct.modify(user_seq, change);
        }
        let mut edit = self.producer.edit(ring, user_seq)?;
        let changed = change(&mut edit);
        let notify = edit.release()?;
        self.wake_if(notify);
        Ok(changed)
    }

    /// Puts a record in the place of the newest queued one with the same key, or at the end if there is none.
    pub fn replace(&mut self, ring: usize, payload: &[u8], meta: &Meta) -> Result<Replaced, PushError> {
        if let Some(direct) = self.direct(ring) {
            return direct.replace(payload, meta);
        }
        let replaced = self.producer.replace(ring, payload, meta)?;
        self.wake_if(replaced.pushed().notify);
        Ok(replaced)
    }

    /// What became of the oldest record that is at its end, in order of pushing.
    pub fn poll_fate(&mut self, ring: usize) -> Option<Fate> {
        if let Some(direct) = self.direct(ring) {
            return direct.producer.poll_fate(0);
        }
        self.producer.poll_fate(ring)
    }

    /// The producer itself, for what is not wrapped here: quiet pushes, holding back, queue listings. Calls that say that
    /// the sender has to be notified are followed by [`Sender::notify`]. It does not fill rings of the kernel's.
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// Wakes the engine, and the senders of rings in the kernel. One system call for each.
    pub fn notify(&self) {
        self.waker.wake();
        self.direct.iter().flatten().for_each(Direct::notify);
    }

    fn wake_if(&self, notify: bool) {
        if notify {
            self.waker.wake();
        }
    }
}
