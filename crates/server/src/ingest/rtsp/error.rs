use std::io;
use std::time::Duration;

use freshwire_media::sdp::SdpError;

use crate::config::CameraError;
use crate::hub::HubError;
use crate::rtsp::feed::SelectionError;

/// How long a camera may take to answer, or to send something.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Why a camera gives no stream, or no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// Not a URL, or not of RTSP.
    #[error(transparent)]
    Url(#[from] CameraError),
    /// The connection cannot be made, or breaks.
    #[error("the camera cannot be reached: {0}")]
    Io(io::Error),
    /// It answers with what is no RTSP, or with more than is taken.
    #[error("the camera breaks the protocol: {0}")]
    Message(String),
    /// It says no.
    #[error("the camera refuses {method}: {status} {reason}")]
    Refused {
        /// The method.
        method: &'static str,
        /// The status of the answer.
        status: u16,
        /// Its reason for people.
        reason: String,
    },
    /// It wants to know who asks, and we cannot say or are not believed.
    #[error("the camera {0}")]
    Credentials(&'static str),
    /// It sends us from one place to the next.
    #[error("the camera redirects too often")]
    Redirects,
    /// It does not answer, or sends nothing any more.
    #[error("the camera {0} for {1:?}")]
    Silent(&'static str, Duration),
    /// It has ended the stream.
    #[error("the camera has ended the stream")]
    Ended,
    /// Its session description.
    #[error(transparent)]
    Description(#[from] SdpError),
    /// None of its tracks can be taken.
    #[error(transparent)]
    Tracks(#[from] SelectionError),
    /// The stream is published by somebody else.
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// Bounds an exchange with the camera.
pub(super) async fn within<T>(future: impl Future<Output = T>, what: &'static str) -> Result<T, PullError> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| PullError::Silent(what, PATIENCE))
}
