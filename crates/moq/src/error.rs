use std::time::Duration;

/// Why a relay refuses a stream, or stopped carrying it. Logs put "RELAY: " in front.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoqError {
    /// No connection.
    #[error("cannot be reached: {0}; check host, port, certificate and firewall (QUIC is UDP)")]
    Connect(String),
    /// The relay does not let this client have the path.
    #[error("refuses the path: {0}; give a token that covers it (?jwt=TOKEN), or another path")]
    Refused(String),
    /// The connection has ended.
    #[error("the connection ended: {0}")]
    Ended(String),
    /// Nobody announces the broadcast.
    #[error("nobody announces {name:?} there after {waited:?}; start its publisher, or correct the path")]
    Unannounced {
        /// The broadcast.
        name: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The broadcast has ended.
    #[error("the broadcast has ended")]
    Over,
    /// Nothing has come of a broadcast for so long.
    #[error("nothing has come for {0:.0?}; the stream is asked for again")]
    Silent(Duration),
    /// The broadcast's catalog cannot be used.
    #[error("the catalog cannot be used: {0}")]
    Catalog(String),
    /// A track cannot be described or written.
    #[error("the track {track:?} cannot be published: {reason}")]
    Publish {
        /// Its name.
        track: String,
        /// Why.
        reason: String,
    },
    /// A track cannot be read.
    #[error("the track {track:?} cannot be read: {reason}")]
    Read {
        /// Its name.
        track: String,
        /// Why.
        reason: String,
    },
    /// The relay of this process cannot run.
    #[error("the relay cannot run: {0}")]
    Relay(String),
}

impl From<moq_tokio::Error> for MoqError {
    fn from(error: moq_tokio::Error) -> Self {
        if is_refusal(&error) { Self::Refused(error.to_string()) } else { Self::Connect(error.to_string()) }
    }
}

impl MoqError {
    /// How a connection has ended that was established.
    pub(crate) fn of_end(error: &moq_tokio::Error) -> Self {
        if is_refusal(error) { Self::Refused(error.to_string()) } else { Self::Ended(error.to_string()) }
    }
}

/// Whether the relay does not let this client have the path: at once, or in the session.
fn is_refusal(error: &moq_tokio::Error) -> bool {
    use moq_net::{Error, SessionError};
    matches!(
        error,
        moq_tokio::Error::Connect(_)
            | moq_tokio::Error::MoqNet(Error::Unauthorized | Error::Session(SessionError::Unauthorized))
    )
}
