//! The driver of a node: its lock, its thread, and the application's threads that take the node's place.
//!
//! A thread with work takes the lock, does the work and sends the resulting packets, so that no thread waits for
//! another to send (Mapp 1997, "Implementation"). A thread that waits for a message waits for datagrams itself, so
//! that none has to wake it; the node's thread keeps the timers meanwhile. [`state`] decides which thread waits for
//! datagrams; [`times`] has every duration.
//!
//! The driver knows neither sockets nor the protocol: they are behind [`Platform`] and [`Protocol`], which a model replaces to try
//! every interleaving of the threads.

mod burst;
mod busy_poll;
#[cfg(test)]
mod model;
mod state;
mod sync;
mod threads;
mod times;

pub(super) use busy_poll::BusyPoll;
pub(super) use state::Interest;
pub(super) use sync::Condvar;
pub(super) use threads::{Activity, Driver, Platform, Protocol, SOCKET};
pub use times::DEFAULT_BUSY_POLL;
pub(super) use times::RING_SCAN;
