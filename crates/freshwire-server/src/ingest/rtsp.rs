//! Streams over RTP: from cameras, which are asked for them, and from those who publish by RTSP.

mod camera;
mod challenge;
mod client;
mod clocks;
mod feed;
mod playing;
mod transport;

use std::io;

use std::time::{Duration, Instant};

use freshwire_media::sdp::SdpError;

use super::Outlet;
use crate::hub::HubError;

pub use camera::Camera;
pub use client::{MAX_CAMERA_BODY_BYTES, MAX_CAMERA_HEAD_BYTES, MAX_EARLY_BYTES};
pub use feed::{Feed, SelectionError, TrackSelection};

/// Why a camera gives no stream, or no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// Not a URL, or not of RTSP.
    #[error("not a URL like rtsp://user:password@camera/path")]
    Url,
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
        /// What it says to people.
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

/// Feeds a stream, or one of its renditions, from a camera, in its connection or, where the camera does nothing else, over UDP.
/// When the camera is away, it is asked again and again, at most every [`LONGEST_PAUSE`]. Never returns; drop the future to stop.
pub async fn pull(camera: Camera, outlet: impl Into<Outlet>) {
    let outlet = outlet.into();
    let mut pause = SHORTEST_PAUSE;
    loop {
        let begun = Instant::now();
        let result = playing::play(&camera, &outlet).await;
        if begun.elapsed() > LONGEST_PAUSE {
            pause = SHORTEST_PAUSE;
        }
        if let Err(error) = result {
            let camera = camera.origin();
            tracing::warn!(stream = outlet.name(), camera, %error, again_in = ?pause, "no stream from the camera");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn within<T>(future: impl Future<Output = T>, what: &'static str) -> Result<T, PullError> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| PullError::Silent(what, PATIENCE))
}

/// Longest pause between two attempts to get a stream.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
