//! Locks, condition variables and atomics of [`threads`](super::threads). In the model they are loom's.

pub(in crate::a1) use std::sync::Condvar;
pub(super) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, Ordering},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
