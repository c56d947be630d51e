//! A lock whose waiter lends its precedence to the holder.
//!
//! The pusher runs before all ordinary threads. If it waits for a thread of the program that has lost its processor to a third
//! one, datagrams are lost meanwhile. The standard library's lock does not inherit priorities; the C library's can.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use libc::pthread_mutex_t;

/// A value behind a lock with priority inheritance.
pub(crate) struct Lock<T> {
    mutex: Box<UnsafeCell<pthread_mutex_t>>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, which the lock gives to one thread at a time.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T: std::fmt::Debug> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        let mutex = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        // SAFETY: plain bytes, which the next call initializes.
        let mut attributes = unsafe { std::mem::zeroed::<libc::pthread_mutexattr_t>() };
        // SAFETY: a local to initialize.
        unsafe { libc::pthread_mutexattr_init(&raw mut attributes) };
        // SAFETY: initialized above. If the system knows no inheritance the lock works without.
        unsafe { libc::pthread_mutexattr_setprotocol(&raw mut attributes, libc::PTHREAD_PRIO_INHERIT) };
        // SAFETY: nobody else knows the mutex yet.
        unsafe { libc::pthread_mutex_init(mutex.get(), &raw const attributes) };
        // SAFETY: initialized above.
        unsafe { libc::pthread_mutexattr_destroy(&raw mut attributes) };
        Self { mutex, value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        // SAFETY: initialized in `new`, and at a fixed address.
        let result = unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        assert_eq!(result, 0, "a thread locks what it holds");
        Guard { lock: self, thread: PhantomData }
    }

    /// The lock, if it is free.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        // SAFETY: as in `lock`.
        let result = unsafe { libc::pthread_mutex_trylock(self.mutex.get()) };
        (result == 0).then_some(Guard { lock: self, thread: PhantomData })
    }

    /// The lock, if it becomes free within this time.
    pub(crate) fn lock_within(&self, time: Duration) -> Option<Guard<'_, T>> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let nanos = now.tv_nsec + i64::from(time.subsec_nanos());
        let until = libc::timespec {
            tv_sec: now.tv_sec + i64::try_from(time.as_secs()).unwrap_or(0) + nanos / 1_000_000_000,
            tv_nsec: nanos % 1_000_000_000,
        };
        // SAFETY: as in `lock`.
        let result = unsafe { libc::pthread_mutex_timedlock(self.mutex.get(), &raw const until) };
        (result == 0).then_some(Guard { lock: self, thread: PhantomData })
    }
}

impl<T> Drop for Lock<T> {
    fn drop(&mut self) {
        // SAFETY: a guard would borrow the lock, so nobody holds it.
        unsafe { libc::pthread_mutex_destroy(self.mutex.get()) };
    }
}

/// The right to use the value.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// The thread that locked has to unlock: not `Send`.
    thread: PhantomData<*const ()>,
}

impl<T> std::fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard has the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard has the lock, and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread has the lock.
        unsafe { libc::pthread_mutex_unlock(self.lock.mutex.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }

    #[test]
    fn a_held_lock_is_refused_in_time() {
        let lock = Lock::new(());
        let guard = lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(lock.try_lock().is_none());
                assert!(lock.lock_within(Duration::from_millis(5)).is_none());
            });
        });
        drop(guard);
        assert!(lock.lock_within(Duration::from_millis(5)).is_some());
    }
}
