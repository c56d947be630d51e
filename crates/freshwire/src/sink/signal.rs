use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use freshwire_io::poll::Event;

/// A flag that one place of a program waits for, by a file or as a task. Setting a flag that nobody has cleared, or that
/// nobody waits for, costs no system call and no lock.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    /// Somebody waits, or has waited.
    is_watched: AtomicBool,
    is_set: AtomicBool,
    event: OnceLock<Event>,
    task: Mutex<Option<Waker>>,
}

impl Signal {
    #[inline]
    pub(crate) fn set(&self) {
        // Acquire: the file is seen too. A watcher does not wait for earlier changes.
        if self.is_watched.load(Ordering::Acquire) {
            self.set_watched();
        }
    }

    fn set_watched(&self) {
        // AcqRel: whoever clears the flag sees what happened before.
        if self.is_set.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(event) = self.event.get() {
            event.signal();
        }
        // In `poll` the flag is read and the waker stored under the lock: a task that has read the flag before has its waker here.
        let waker = self.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Watches from now on, beginning with the flag set.
    pub(crate) fn watch(&self) {
        self.is_watched.store(true, Ordering::Release);
        self.set_watched();
    }

    /// The file, readable from the next time that the flag is set, and now.
    pub(crate) fn event(&self) -> io::Result<Event> {
        if let Some(event) = self.event.get() {
            return Ok(event.clone());
        }
        let new = Event::new()?;
        // An earlier change had no file to signal.
        new.signal();
        // Another thread may have been first; then its file is everybody's.
        let event = self.event.get_or_init(|| new).clone();
        self.watch();
        Ok(event)
    }

    /// Clears the flag.
    pub(crate) fn clear(&self) {
        if let Some(event) = self.event.get() {
            event.clear();
        }
        // After the file: a change in between is seen by the look that follows, one from now on signals again.
        self.is_set.swap(false, Ordering::AcqRel);
    }

    /// Waits until the flag is set, and clears it.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut task = self.lock();
        if self.is_set.load(Ordering::Acquire) {
            drop(task);
            self.clear();
            return Poll::Ready(());
        }
        *task = Some(context.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_once_for_each_time_that_it_waits() {
        let (signal, counter) = (Signal::default(), Arc::new(Counter::default()));
        let waker = Waker::from(Arc::clone(&counter));
        let context = Context::from_waker(&waker);
        signal.set();
        assert!(signal.poll(&context).is_pending(), "nobody watched");
        signal.watch();
        assert!(signal.poll(&context).is_ready(), "the first look is due");
        assert!(signal.poll(&context).is_pending());
        signal.set();
        signal.set();
        assert_eq!(counter.0.load(Ordering::Relaxed), 2, "by `watch` and by the first `set`");
        assert!(signal.poll(&context).is_ready());
        assert!(signal.poll(&context).is_pending());
    }

    #[test]
    fn a_task_on_another_thread_misses_no_change() {
        const CHANGES: usize = 1000;
        let (signal, changes) = (Signal::default(), AtomicUsize::new(0));
        signal.watch();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..CHANGES {
                    changes.fetch_add(1, Ordering::Relaxed);
                    signal.set();
                }
            });
            struct Unpark(std::thread::Thread);
            impl Wake for Unpark {
                fn wake(self: Arc<Self>) {
                    self.0.unpark();
                }
            }
            let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
            // A change that is missed would leave this thread parked.
            while changes.load(Ordering::Relaxed) < CHANGES {
                if signal.poll(&Context::from_waker(&waker)).is_pending() {
                    let (parked, patience) = (freshwire_io::now(), std::time::Duration::from_secs(20));
                    std::thread::park_timeout(patience);
                    assert!(freshwire_io::now() < parked + patience, "a change was missed");
                }
            }
        });
    }
}
