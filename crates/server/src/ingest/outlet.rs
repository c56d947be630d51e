use std::sync::Arc;

use tokio::sync::mpsc;

use crate::hub::{HubError, Publisher, Stream};

/// Where a source's units go: a stream, or one of its renditions.
#[derive(Clone)]
pub struct Outlet {
    stream: Arc<Stream>,
    rendition: Option<String>,
}

impl Outlet {
    /// The rendition of this name of the stream. The name is checked when it is published.
    pub fn rendition(stream: Arc<Stream>, name: &str) -> Self {
        Self { stream, rendition: Some(name.to_owned()) }
    }

    /// The stream.
    #[cfg(feature = "moq")]
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Whether it is one rendition of the stream.
    #[cfg(feature = "moq")]
    pub(crate) fn is_rendition(&self) -> bool {
        self.rendition.is_some()
    }

    /// The name of the stream, with that of the rendition behind `~`.
    pub fn name(&self) -> String {
        match &self.rendition {
            Some(rendition) => format!("{}~{rendition}", self.stream.name()),
            None => self.stream.name().to_owned(),
        }
    }

    /// The right to feed it; see [`Stream::publish`].
    ///
    /// # Errors
    ///
    /// As [`Stream::publish`].
    pub fn publish(
        &self,
        origin: &str,
        key_requests: Option<mpsc::Sender<()>>,
    ) -> Result<Publisher, HubError> {
        match &self.rendition {
            Some(rendition) => self.stream.publish_rendition(rendition, origin, key_requests),
            None => self.stream.publish(origin, key_requests),
        }
    }
}

impl From<Arc<Stream>> for Outlet {
    fn from(stream: Arc<Stream>) -> Self {
        Self { stream, rendition: None }
    }
}
