//! Locks that a panic of another call does not close for good: the border has reported it.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[inline]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a value out, which is dropped without the lock.
pub(crate) fn take<T>(mutex: &Mutex<Option<T>>) -> Option<T> {
    lock(mutex).take()
}
