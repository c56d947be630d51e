use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::config::{Destination, StreamConfig};
use crate::context::Context;
use crate::forward;

/// The running connections to targets, by stream and target. Dropping it ends them.
#[derive(Default)]
pub(super) struct Forwards(BTreeMap<(String, Destination), JoinHandle<()>>);

impl Forwards {
    /// Starts new ones, ends those that are gone and leaves the rest alone.
    pub(super) fn apply(&mut self, context: &Arc<Context>, wanted: &BTreeMap<String, StreamConfig>) {
        let is_wanted = |name: &String, target: &Destination| {
            wanted.get(name).is_some_and(|stream| stream.destinations().any(|other| other == *target))
        };
        self.0.retain(|(name, target), task| {
            let stays = is_wanted(name, target);
            if !stays {
                tracing::info!(stream = name, %target, "no longer published: the configuration has it no more");
                task.abort();
            }
            stays
        });
        let targets =
            wanted.iter().flat_map(|(name, stream)| stream.destinations().map(move |to| (name, to)));
        for (name, target) in targets {
            let start = || {
                let (context, name, target) = (Arc::clone(context), name.clone(), target.clone());
                tokio::spawn(async move {
                    let begin = || forward::run(Arc::clone(&context), name.clone(), target.clone());
                    context.tasks.keep(format!("publisher of {name} to {target}"), begin).await;
                })
            };
            self.0.entry((name.clone(), target.clone())).or_insert_with(start);
        }
    }

    /// Waits until all have said goodbye, once the server stops.
    pub(super) async fn ended(&mut self) {
        for task in self.0.values_mut() {
            // One that has panicked or was aborted has ended as well.
            let _ = task.await;
        }
        self.0.clear();
    }
}

impl Drop for Forwards {
    fn drop(&mut self) {
        self.0.values().for_each(JoinHandle::abort);
    }
}
