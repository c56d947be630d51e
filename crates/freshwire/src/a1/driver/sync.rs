//! Locks and condition variables of the driver. Loom replaces them, so that it can try every interleaving.

#[cfg(not(loom_driver))]
pub(in crate::a1) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom_driver))]
pub(super) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, Ordering},
    thread::yield_now,
};

#[cfg(loom_driver)]
pub(in crate::a1) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(loom_driver)]
pub(super) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, Ordering},
    thread::yield_now,
};
