//! One source, hundreds of sinks: what a server needs beyond [`Sender::push_to_all`](crate::Sender::push_to_all). Requires the
//! feature `fanout`.
//!
//! The feature adds calls to [`Sender`](crate::Sender): [`producer`](crate::Sender::producer) for
//! pushes without wake-ups, [`send_at_once`](crate::Sender::send_at_once) past the rings, [`serve`](crate::Sender::serve) on the
//! calling thread, [`region_of`](crate::Sender::region_of) and [`reuse`](crate::Sender::reuse). They expect an
//! application that knows the ring ABI (`spec/ring.md`) and keeps its own account of its sinks.

pub use freshwire_ring::PushError as RingPushError;
pub use freshwire_ring::{Producer, Stored, prefetch};

pub use crate::turn::offer::Target;

/// Largest payload of [`Sender::send_at_once`](crate::Sender::send_at_once), in bytes. A choice, not measured: segmentation
/// offload takes at most 64 KiB at once (`GSO_MAX_SIZE`), so one write passes the kernel in one piece.
pub const MAX_AT_ONCE: u32 = 64 << 10;
