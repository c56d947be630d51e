//! Words of both processes.

use std::io;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// [`Namespaces::NEAR_V4`](crate::Namespaces::NEAR_V4).
    Near,
    /// [`Namespaces::FAR_V4`](crate::Namespaces::FAR_V4).
    Far,
}

/// What a [`StandaloneLink`](super::StandaloneLink) cannot do, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StandaloneError {
    /// Namespaces are not permitted here.
    #[error("{0}")]
    NotPermitted(String),
    /// The link was closed, or its process has ended.
    #[error("the link has ended")]
    Ended,
    /// What the link was asked for failed.
    #[error("{0}")]
    Failed(String),
    /// The system refused something to this process.
    #[error("cannot {step}: {source}")]
    System {
        /// The step that failed, as a verb phrase for the message.
        step: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl StandaloneError {
    pub(super) fn system(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { step, source }
    }
}
