use std::sync::Arc;
use std::sync::atomic::Ordering;

use freshwire::sink::SinkError;
use freshwire::stats::SinkSnapshot;
use freshwire::{Ended, Sink};

use super::error::HubError;
use super::identity::Identity;
use super::snapshot::ViewerSnapshot;
use super::stream::Stream;
use super::view_request::ViewRequest;

/// The protocol of viewers over WebRTC, in statistics.
pub(crate) const WEBRTC: &str = "webrtc";

/// One viewer; dropping it disconnects after the record in progress.
pub struct Viewer {
    /// `None` after [`finish_with`](Self::finish_with).
    sink: Option<Sink>,
    stream: Arc<Stream>,
    identity: Arc<Identity>,
}

impl Stream {
    /// Serves a viewer from now on.
    ///
    /// # Errors
    ///
    /// [`HubError::TooManyViewers`], [`HubError::NoRendition`]; [`HubError::Io`] if the connection does not take its settings.
    pub fn view(self: &Arc<Self>, request: ViewRequest) -> Result<Viewer, HubError> {
        let (sink, identity) = self.add_viewer(request)?;
        Ok(Viewer { sink: Some(sink), stream: Arc::clone(self), identity })
    }
}

impl Viewer {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.identity.id
    }

    /// Sends bytes between two records, such as the answer to a request. A viewer that asks and does not read the answers
    /// is disconnected.
    pub fn interject(&self, bytes: Vec<u8>) {
        if let Some(sink) = &self.sink {
            sink.interject(bytes);
        }
    }

    /// Ends it: the unit in progress, then these bytes.
    pub fn finish_with(mut self, last: Vec<u8>) {
        if let Some(sink) = self.sink.take() {
            self.stream.leave(self.identity.id, sink.id());
            sink.finish_with(last);
        }
    }

    /// Offers it no more units; queued ones are dropped, the one in progress is finished.
    pub fn pause(&self) {
        self.stream.pause(self.identity.id, true);
    }

    /// Goes on with the next keyframe.
    pub fn resume(&self) {
        self.stream.pause(self.identity.id, false);
    }

    /// Asks the source of what it gets for a keyframe, because its decoder needs one.
    pub fn ask_for_key(&self) {
        self.stream.ask_for_key(self.identity.id);
    }

    /// How it ended, `None` while it is served. Nothing calls: look once a second.
    pub fn ended(&self) -> Option<Ended> {
        let given_up = || Ended::Broken(SinkError::RingStuck);
        self.identity
            .monitor
            .ended()
            .or_else(|| self.identity.is_given_up.load(Ordering::Relaxed).then(given_up))
    }

    /// What its path has done so far.
    pub(crate) fn sink_snapshot(&self) -> SinkSnapshot {
        self.identity.monitor.stats()
    }

    /// Its counters; `None` once it has ended.
    pub fn snapshot(&self) -> Option<ViewerSnapshot> {
        self.stream.viewer_snapshot(self.identity.id)
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        if let Some(sink) = &self.sink {
            self.stream.leave(self.identity.id, sink.id());
        }
    }
}
