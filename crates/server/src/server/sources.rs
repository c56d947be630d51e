use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::error::ServeError;
use crate::broker;
use crate::brokers::{BrokerPlace, BrokerStatus};
use crate::config::{Rung, Source, StreamConfig};
use crate::context::Context;
use crate::hub::Stream;
use crate::ingest::{
    self, Outlet,
    ladder::{self, Ladder},
};
use crate::tasks::Tasks;

/// The sources that run. Dropping it ends them.
pub(super) struct Sources {
    running: BTreeMap<String, RunningSource>,
    expected: watch::Sender<Vec<String>>,
}

struct RunningSource {
    config: StreamConfig,
    /// One for each rendition that is fetched; what is published has none.
    tasks: Vec<JoinHandle<()>>,
    /// The broker that its values come from.
    _broker: Option<BrokerPlace>,
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
        context: &Arc<Context>,
        wanted: &BTreeMap<String, StreamConfig>,
    ) -> Result<(), ServeError> {
        for (name, stream) in wanted {
            let renditions = stream.renditions.iter().map(|rendition| &rendition.source);
            for source in renditions.chain([&stream.source]) {
                let Source::File(path) = source else { continue };
                std::fs::File::open(path).map_err(|error| ServeError::Source {
                    name: name.clone(),
                    origin: source.to_string(),
                    reason: format!("{error}; give a file that exists, test, -, or rtsp://HOST/PATH"),
                })?;
            }
        }
        let removed: Vec<_> =
            self.running.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        let streams = context.hub.exchange(&removed, wanted.keys())?;
        let valued = || wanted.iter().filter(|(_, stream)| stream.source.has_values());
        // Values of another source are of another stream.
        let stays = |name: &String, wanted: &StreamConfig| {
            self.running.get(name).is_some_and(|running| running.config.source == wanted.source)
        };
        context
            .topics
            .keep(valued().filter(|(name, wanted)| stays(name, wanted)).map(|(name, _)| name.clone()));
        context.topics.keep(valued().map(|(name, _)| name.clone()));
        for name in &removed {
            tracing::info!(stream = name, "removed");
        }
        let stays = |name: &String, running: &mut RunningSource| {
            // Targets come and go by themselves.
            let same = |wanted: &StreamConfig| {
                let (forward, relays) = (wanted.forward.clone(), wanted.relays.clone());
                let with_targets = StreamConfig { forward, relays, ..running.config.clone() };
                *wanted == with_targets
            };
            wanted.get(name).is_some_and(same)
        };
        self.running.retain(stays);
        for (stream, (name, wanted)) in streams.into_iter().zip(wanted) {
            if self.running.contains_key(name) {
                continue;
            }
            tracing::info!(stream = name, source = %wanted.source, "added");
            let main = (wanted.source.clone(), Outlet::from(Arc::clone(&stream)));
            let others = wanted.renditions.iter().map(|rendition| {
                let outlet = Outlet::rendition(Arc::clone(&stream), &rendition.name);
                (rendition.source.clone(), outlet)
            });
            let outlets = std::iter::once(main).chain(others);
            let fetched = outlets.filter(|(source, _)| source.is_fetched());
            let rungs: Vec<_> = wanted.ladder.iter().map(Rung::name).collect();
            let names = wanted.renditions.iter().map(|rendition| rendition.name.as_str());
            if let Err(error) = stream.expect_renditions(names.chain(rungs.iter().map(String::as_str))) {
                tracing::warn!(stream = name, %error, "a configured rendition has to wait for a place");
            }
            let fetch = |(source, outlet)| fetch(context.tasks.clone(), source, outlet);
            let mut tasks: Vec<_> = fetched.map(fetch).collect();
            let broker = match &wanted.source {
                // Known at once: what clients send is for the broker from the first request on.
                Source::Broker(address) => Some(context.brokers.add(name, address)),
                _ => None,
            };
            tasks.extend(broker.as_ref().and_then(|broker| subscribe(context, name, &broker.status)));
            if !wanted.ladder.is_empty() {
                let ladder = Ladder { rungs: wanted.ladder.clone(), encoder: wanted.encoder.clone() };
                tasks.push(make(context.tasks.clone(), stream, ladder));
            }
            self.running
                .insert(name.clone(), RunningSource { config: wanted.clone(), tasks, _broker: broker });
        }
        // What a relay has is fetched on demand.
        let is_steady = |source: &Source| source.is_fetched() && !matches!(source, Source::Relay(_));
        let delivering = self.running.iter().filter(|(_, running)| is_steady(&running.config.source));
        self.expected.send_replace(delivering.map(|(name, _)| name.clone()).collect());
        Ok(())
    }

    /// Ends all.
    pub(super) fn stop(&mut self) {
        self.running.clear();
    }
}

/// A source that panics is started again, as one that fails.
fn fetch(tasks: Tasks, source: Source, outlet: Outlet) -> JoinHandle<()> {
    let name = format!("source of {}", outlet.name());
    tokio::spawn(async move {
        tasks.keep(name, || ingest::run(source.clone(), outlet.clone())).await;
    })
}

/// The same for values of a broker.
fn subscribe(context: &Arc<Context>, name: &str, broker: &Arc<BrokerStatus>) -> Option<JoinHandle<()>> {
    let topic = context.topics.find(name)?;
    Some(tokio::spawn(broker::run(Arc::clone(context), topic, Arc::clone(broker))))
}

/// The same for the renditions that the server makes.
fn make(tasks: Tasks, stream: Arc<Stream>, ladder: Ladder) -> JoinHandle<()> {
    let name = format!("ladder of {}", stream.name());
    tokio::spawn(async move {
        tasks.keep(name, || ladder::run(Arc::clone(&stream), ladder.clone())).await;
    })
}

impl Drop for RunningSource {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
