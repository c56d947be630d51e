use super::sync::Condvar;

/// What has happened that threads may wait for, and how many wait. Notifying costs a system call even if nobody waits, so it is
/// left out then.
#[derive(Default)]
pub(in crate::a1) struct Activity {
    /// How often something has happened.
    pub(in crate::a1) count: u64,
    /// Threads of the application that sleep until they are notified.
    pub(super) waiting: usize,
    is_new: bool,
}

impl Activity {
    /// Something has happened that a thread may wait for without knowing the connection.
    pub(in crate::a1) fn note(&mut self) {
        self.count += 1;
        self.is_new = true;
    }

    /// The same, and notifies those who wait for this connection.
    pub(in crate::a1) fn note_at(&mut self, changed: &Condvar) {
        self.note();
        if self.waiting > 0 {
            changed.notify_all();
        }
    }

    /// Whether something has happened since the last call.
    pub(super) fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }
}
