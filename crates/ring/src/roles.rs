//! How a process takes a role at a region.

use crate::consumer::Consumer;
use crate::editor::Editor;
use crate::error::ClaimError;
use crate::producer::Producer;
use crate::region::Region;

impl Region {
    /// Takes the role of the producer: the only one that pushes. If the process that had it is dead, what it left is
    /// taken over: records that were ready stay so, records that it was editing are dropped.
    ///
    /// # Errors
    ///
    /// [`ClaimError::AlreadyClaimed`] while a living process has the role, [`ClaimError::Corrupt`] if the indexes
    /// cannot be continued.
    pub fn producer(&self) -> Result<Producer, ClaimError> {
        Producer::claim(self, false)
    }

    /// Takes the role of the producer from another process even if that process still lives, for one that hangs.
    /// Refused if the claim is held within this process. The other process's later pushes garble the ring's
    /// contents, so end it.
    ///
    /// # Errors
    ///
    /// [`ClaimError::AlreadyClaimed`] if this process has the role, [`ClaimError::Corrupt`] if the indexes cannot
    /// be continued.
    pub fn take_over_producer(&self) -> Result<Producer, ClaimError> {
        Producer::claim(self, true)
    }

    /// Takes the role of the sender of one ring. What a former sender had taken and not finished is dropped
    /// ([`Reason::SenderLost`](crate::Reason::SenderLost)); a closed ring is open again.
    ///
    /// # Errors
    ///
    /// [`ClaimError::AlreadyClaimed`] while a living process has the role, [`ClaimError::Kernel`] if the kernel
    /// has it, [`ClaimError::NoSuchRing`], [`ClaimError::Corrupt`] if the indexes cannot be continued.
    pub fn consumer(&self, ring: usize) -> Result<Consumer, ClaimError> {
        Consumer::claim(self, ring, false)
    }

    /// Takes the role of the sender from another process even if that process still lives, for one that hangs.
    /// Refused if the claim is held within this process.
    ///
    /// # Errors
    ///
    /// As [`consumer`](Self::consumer); [`ClaimError::AlreadyClaimed`] only if this process has the role.
    pub fn take_over_consumer(&self, ring: usize) -> Result<Consumer, ClaimError> {
        Consumer::claim(self, ring, true)
    }

    /// A handle for a second party that lists, drops, edits and re-ranks. There may be any number.
    pub fn editor(&self) -> Editor {
        Editor::new(self)
    }
}
