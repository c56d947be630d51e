use crate::config::RenditionNameError;

/// A viewer or a publisher is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Somebody publishes this stream already.
    #[error("stream {0} has a publisher already")]
    Busy(String),
    /// No stream may be added.
    #[error("{0} streams are the limit; raise max_streams")]
    TooManyStreams(usize),
    /// No rendition may be added to the stream.
    #[error(
        "the stream has {} renditions, which is the limit: {}; end the publisher of another one, or take one out of the configuration",
        .0.len(), .0.join(", ")
    )]
    TooManyRenditions(Vec<String>),
    /// The name cannot be that of a rendition.
    #[error(transparent)]
    RenditionName(#[from] RenditionNameError),
    /// The stream has no rendition of this name.
    #[error("the stream has no rendition {name:?}; it has {}", known.join(", "))]
    NoRendition {
        /// The requested name.
        name: String,
        /// Its renditions so far.
        known: Vec<String>,
    },
    /// No viewer may be added.
    #[error("the stream has {0} viewers, which is the limit; raise max_viewers")]
    TooManyViewers(usize),
    /// The connection does not take its settings, or memory is missing.
    #[error("{0}")]
    Io(String),
}
