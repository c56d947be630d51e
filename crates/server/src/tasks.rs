//! The server's tasks. A panic ends the task in which it happens and nothing else. It is logged and counted, and a
//! task that serves for as long as the server is restarted.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;

use crate::counter::Counter;

/// The pause before a task begins again after its first panic; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause before a task begins again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A task that has run for this long since its last panic is well, and its next pause is the first one again.
const WELL_AFTER: Duration = Duration::from_secs(30);

/// Starts tasks, and counts their panics. Clones are handles to the same count.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    panics: Counter,
    /// When each of the lasting tasks that are not well has panicked last.
    unwell: Mutex<BTreeMap<String, Instant>>,
}

impl Tasks {
    /// No task yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a task that is for one client. A panic ends it.
    pub fn spawn(
        &self,
        name: &'static str,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let tasks = self.clone();
        tokio::spawn(async move {
            if let Err(panic) = AssertUnwindSafe(future).catch_unwind().await {
                tasks.0.panics.add_one();
                tracing::error!(task = name, panic = text_of(&*panic), "a task has panicked and is given up");
            }
        })
    }

    /// Runs what `begin` gives until it returns. After a panic it begins again, after a pause that grows.
    pub async fn keep<F: Future<Output = ()>>(&self, name: String, mut begin: impl FnMut() -> F) {
        let _entry = Entry { tasks: self, name: &name };
        let mut pause = FIRST_PAUSE;
        loop {
            let start = Instant::now();
            // `begin` may panic before it gives a future.
            let run = async { begin().await };
            let Err(panic) = AssertUnwindSafe(run).catch_unwind().await else { return };
            if start.elapsed() > WELL_AFTER {
                pause = FIRST_PAUSE;
            }
            self.0.panics.add_one();
            self.lock().insert(name.clone(), Instant::now());
            tracing::error!(task = name, panic = text_of(&*panic), again_in = ?pause, "a task has panicked");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Counts a panic that was caught elsewhere.
    pub(crate) fn count_panic(&self) {
        self.0.panics.add_one();
    }

    /// How many tasks have panicked so far.
    pub fn panics(&self) -> u64 {
        self.0.panics.value()
    }

    /// The lasting tasks that panicked in the last 30 s.
    pub fn unwell(&self, now: Instant) -> Vec<String> {
        let mut unwell = self.lock();
        unwell.retain(|_, at| now.saturating_duration_since(*at) < WELL_AFTER);
        unwell.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.0.unwell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that is no more is not unwell.
struct Entry<'a> {
    tasks: &'a Tasks,
    name: &'a str,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.tasks.lock().remove(self.name);
    }
}

/// The text of a panic.
pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_lasting_task_begins_again() {
        let tasks = Tasks::new();
        let start = AtomicU32::new(0);
        tasks
            .keep("listener".to_owned(), || {
                let count = start.fetch_add(1, Ordering::Relaxed);
                assert!(count != 0, "before it gives a future");
                async move { assert!(count > 2, "within it") }
            })
            .await;
        assert_eq!((start.into_inner(), tasks.panics()), (4, 3));
        assert!(tasks.unwell(Instant::now()).is_empty(), "it has ended");
    }

    #[tokio::test]
    async fn a_task_that_panics_is_unwell_for_a_while() {
        let tasks = Tasks::new();
        let kept = tasks.clone();
        let kept = tokio::spawn(async move {
            let mut first = true;
            let begin = || {
                let panics = std::mem::take(&mut first);
                async move {
                    assert!(!panics, "once");
                    std::future::pending().await
                }
            };
            kept.keep("camera".to_owned(), begin).await;
        });
        while tasks.panics() == 0 {
            // Pause: until the next look.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(tasks.unwell(Instant::now()), ["camera"]);
        assert!(tasks.unwell(Instant::now() + WELL_AFTER).is_empty());
        kept.abort();
    }

    #[tokio::test]
    async fn a_task_for_one_client_is_given_up() {
        let tasks = Tasks::new();
        tasks.spawn("a connection", async { panic!("{} is odd", 7) }).await.expect("no panic comes through");
        assert_eq!(tasks.panics(), 1);
        assert!(tasks.unwell(Instant::now()).is_empty());
    }
}
