use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ServeError;
use crate::config::StreamConfig;
use crate::context::Context;
use crate::hub::Stream;
use crate::ingest::{self, Source};
use crate::tasks::Tasks;

/// The sources that run. Dropping it ends them.
pub(super) struct Sources {
    running: BTreeMap<String, Running>,
    expected: watch::Sender<Vec<String>>,
}

struct Running {
    source: Source,
    /// `None`: somebody publishes it, or not.
    task: Option<JoinHandle<()>>,
}

impl Default for Sources {
    fn default() -> Self {
        Self { running: BTreeMap::new(), expected: watch::channel(Vec::new()).0 }
    }
}

impl Sources {
    /// The names of the streams that should be delivering.
    pub(super) fn expected(&self) -> watch::Receiver<Vec<String>> {
        self.expected.subscribe()
    }

    /// Starts what is new, ends what is gone and leaves the rest alone. On an error nothing has changed.
    pub(super) fn apply(
        &mut self,
        context: &Context,
        wanted: &BTreeMap<String, StreamConfig>,
    ) -> Result<(), ServeError> {
        for (name, stream) in wanted {
            if let Source::File(path) = &stream.source {
                std::fs::File::open(path).map_err(|error| ServeError::Source {
                    name: name.clone(),
                    origin: stream.source.to_string(),
                    reason: format!("{error}; give a file that exists, test, -, or rtsp://HOST/PATH"),
                })?;
            }
        }
        let removed: Vec<_> =
            self.running.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        let streams = context.hub.exchange(&removed, wanted.keys())?;
        for name in &removed {
            tracing::info!(stream = name, "removed");
        }
        let stays = |name: &String, running: &mut Running| {
            wanted.get(name).is_some_and(|stream| stream.source == running.source)
        };
        self.running.retain(stays);
        for (stream, (name, wanted)) in streams.into_iter().zip(wanted) {
            if self.running.contains_key(name) {
                continue;
            }
            tracing::info!(stream = name, source = %wanted.source, "added");
            let fetched = wanted.source != Source::Publish;
            let task = fetched.then(|| fetch(context.tasks.clone(), wanted.source.clone(), stream));
            self.running.insert(name.clone(), Running { source: wanted.source.clone(), task });
        }
        let delivering = self.running.iter().filter(|(_, running)| running.task.is_some());
        self.expected.send_replace(delivering.map(|(name, _)| name.clone()).collect());
        Ok(())
    }

    /// Ends all.
    pub(super) fn stop(&mut self) {
        self.running.clear();
    }
}

/// A source that panics is begun again, as one that fails.
fn fetch(tasks: Tasks, source: Source, stream: Arc<Stream>) -> JoinHandle<()> {
    let name = format!("source of {}", stream.name());
    tokio::spawn(async move {
        tasks.keep(name, || ingest::run(source.clone(), Arc::clone(&stream))).await;
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
