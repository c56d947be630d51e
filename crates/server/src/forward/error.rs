use std::io;
use std::time::Duration;

use freshwire::Ended;

use crate::hub::HubError;

/// Why a target does not have the stream, or no longer. Each text goes on "TARGET: ".
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error("cannot be reached: {0}; check host, port and firewall")]
    Connect(io::Error),
    #[error("no TLS session: {0}")]
    Tls(io::Error),
    #[error("took longer than {0:?} to {1}")]
    Slow(Duration, &'static str),
    #[error("ended the connection while it was asked to {0}; servers do so when the key is wrong or in use")]
    Closed(&'static str),
    #[error("speaks no RTMP: {0}")]
    Protocol(String),
    #[error("refuses to {step}: {reason}")]
    Refused { step: &'static str, reason: String },
    #[cfg(feature = "moq")]
    #[error(transparent)]
    Relay(#[from] freshwire_moq::MoqError),
    #[error("the stream cannot be sent: {0}")]
    Hub(#[from] HubError),
    #[error("the connection ended: {0}")]
    Ended(Ended),
    #[error("the connection was closed by the server")]
    ClosedByServer,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl ForwardError {
    /// Whether a relay has refused the token or the path. Platforms with a wrong key are tried as if they were away.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            #[cfg(feature = "moq")]
            Self::Relay(freshwire_moq::MoqError::Refused(_)) => true,
            _ => false,
        }
    }
}
