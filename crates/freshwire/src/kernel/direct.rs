use std::sync::{Arc, Weak};

use freshwire_io::kernel_ring::RingSocket;
use freshwire_record::Timestamp;
use freshwire_ring::{Edit, EditError, Meta, ModifyError, Producer, PushError, Pushed, Replaced};

/// The application's side of a ring in the kernel, without an engine between them.
pub(crate) struct Direct {
    pub(crate) producer: Producer,
    /// The engine has the socket, and closes it at the end.
    socket: Weak<RingSocket>,
    /// The policy drops what is past its deadline. If it does not, the kernel must not either.
    drops_expired: bool,
}

impl Direct {
    pub(crate) fn new(producer: Producer, socket: &Arc<RingSocket>, drops_expired: bool) -> Self {
        Self { producer, socket: Arc::downgrade(socket), drops_expired }
    }

    pub(crate) fn push(&mut self, payload: &[u8], meta: &Meta) -> Result<u64, PushError> {
        self.put(meta, |producer, meta| producer.push(0, payload, meta))
    }

    /// Puts a record on the ring by `push`.
    pub(crate) fn put(
        &mut self,
        meta: &Meta,
        push: impl FnOnce(&mut Producer, &Meta) -> Result<Pushed, PushError>,
    ) -> Result<u64, PushError> {
        let meta = self.timed(meta);
        let pushed = push(&mut self.producer, &meta)?;
        self.notify_if(pushed.notify);
        Ok(pushed.index)
    }

    pub(crate) fn replace(&mut self, payload: &[u8], meta: &Meta) -> Result<Replaced, PushError> {
        let replaced = self.producer.replace(0, payload, &self.timed(meta))?;
        self.notify_if(replaced.pushed().notify);
        Ok(replaced)
    }

    pub(crate) fn modify(
        &mut self,
        seq: u64,
        change: impl FnOnce(&mut Edit<'_>) -> Result<(), EditError>,
    ) -> Result<(), ModifyError> {
        let drops_expired = self.drops_expired;
        let notify = self.producer.modify(0, seq, |edit| {
            let changed = change(edit);
            if !drops_expired {
                edit.set_deadline(Timestamp::MAX);
            }
            changed
        })?;
        self.notify_if(notify);
        Ok(())
    }

    fn timed(&self, meta: &Meta) -> Meta {
        let deadline = if self.drops_expired { meta.deadline } else { Timestamp::MAX };
        Meta { deadline, ..*meta }
    }

    fn notify_if(&self, asleep: bool) {
        if asleep {
            self.notify();
        }
    }

    pub(crate) fn notify(&self) {
        if let Some(socket) = self.socket.upgrade() {
            // Fails when the sending direction has ended; the ring says so to the next push.
            let _ended = socket.notify();
        }
    }
}
