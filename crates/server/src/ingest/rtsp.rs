//! Streams over RTP from cameras, which are asked for them.

mod challenge;
mod client;
mod error;
mod playing;
mod transport;

use std::time::{Duration, Instant};

use super::Outlet;

pub use crate::config::Camera;
pub use crate::rtsp::feed::{Feed, SelectionError, TrackSelection};
pub use client::{MAX_CAMERA_BODY_BYTES, MAX_CAMERA_HEAD_BYTES, MAX_EARLY_BYTES};
pub use error::PullError;

/// Feeds a stream, or one of its renditions, from a camera, in its connection or, where the camera does nothing else, over UDP.
/// When the camera is away, it is asked again and again, at most every [`LONGEST_PAUSE`]. Never returns; drop the future to stop.
pub async fn pull(camera: Camera, outlet: impl Into<Outlet>) {
    let outlet = outlet.into();
    let mut pause = SHORTEST_PAUSE;
    loop {
        let start = Instant::now();
        let result = playing::play(&camera, &outlet).await;
        if start.elapsed() > LONGEST_PAUSE {
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

/// Longest pause between two attempts to get a stream.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
