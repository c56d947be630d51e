//! What targets of every kind have in common.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::Destination;
use crate::context::Context;
use crate::targets::TargetStatus;

/// A source that delivers nothing for so long has ended, and so has its connection to the target. As for publishers over RTSP.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

/// Why a target gets no more, without a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The source delivers nothing, or the stream was removed.
    Source,
    /// The server stops.
    Stop,
}

/// A stream and one of its targets. Its state is known to `/api/streams` as long as this exists.
pub(super) struct Forward {
    pub(super) context: Arc<Context>,
    pub(super) name: String,
    pub(super) target: Destination,
    pub(super) status: Arc<TargetStatus>,
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.context.targets.remove(&self.name, &self.target);
    }
}

pub(super) async fn stops(stopping: &mut watch::Receiver<bool>) {
    // A sender that is gone has stopped, too.
    let _ = stopping.wait_for(|&stops| stops).await;
}
