//! One payload for several sinks.

use std::borrow::Cow;

use freshwire_ring::{Meta, Producer, PushError as RingError, Stored};

/// A payload of the application's bytes, or of the arena, which gets the other where a sink needs that.
pub(super) struct Payload<'a> {
    len: usize,
    bytes: Option<Cow<'a, [u8]>>,
    stored: Option<Stored>,
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { len: bytes.len(), bytes: Some(Cow::Borrowed(bytes)), stored: None }
    }
}

impl From<Stored> for Payload<'_> {
    fn from(stored: Stored) -> Self {
        Self { len: stored.len() as usize, bytes: None, stored: Some(stored) }
    }
}

impl Payload<'_> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts it on a ring of the arena. True: the engine has to be notified.
    pub(super) fn push(
        &mut self,
        producer: &mut Producer,
        ring: usize,
        meta: &Meta,
    ) -> Result<bool, RingError> {
        let stored = match &mut self.stored {
            Some(stored) => stored,
            none => none.insert(producer.store(self.bytes.as_deref().unwrap_or_default())?),
        };
        producer.push_stored(ring, stored, meta).map(|pushed| pushed.notify)
    }

    /// Its bytes, for a kernel ring. They are copied out of the arena for the first.
    pub(super) fn bytes(&mut self, producer: &Producer) -> Result<&[u8], RingError> {
        let bytes = match &mut self.bytes {
            Some(bytes) => bytes,
            none => {
                let mut copy = Vec::new();
                if let Some(stored) = &self.stored {
                    producer.read_stored(stored, &mut copy)?;
                }
                none.insert(Cow::Owned(copy))
            }
        };
        Ok(bytes)
    }
}
