//! Sources that the server fetches by itself: files, standard input, cameras and the test picture.
//!
//! ```text
//!  test     pattern ──raw──► ffmpeg (x264) ──MPEG-TS──┐
//!  file     ffmpeg -c copy ─────────────────MPEG-TS──┼──► demux ──► pace ──► hub::Publisher
//!  Annex B file, standard input ──────────────────────┘
//!  rtsp://  retina ──► rtsp::pull ───────────────────────────────────────► hub::Publisher
//! ```

mod bytes;
mod encoder;
mod error;
mod file;
pub mod ladder;
mod outlet;
mod pace;
mod pattern;
mod program;
#[cfg(feature = "moq")]
mod relay;
pub mod rtsp;

use tracing::{info, warn};

use crate::config::Camera;
use error::{FIRST_PAUSE, LONGEST_PAUSE};

pub use crate::config::Source;
pub use error::SourceError;
pub use outlet::Outlet;
pub use pattern::{CLOCK_CELLS, PatternConfig, read_clock};

/// Feeds the stream, or one of its renditions, from the source until the caller drops the future. A source that ends
/// or fails is restarted, after a growing pause; each failure is logged. Returns only when there is nothing more to
/// fetch: standard input has ended, or the stream is published by others or has values of a broker.
pub async fn run(source: Source, outlet: impl Into<Outlet>) {
    let outlet = outlet.into();
    let stream = outlet.name();
    let mut pause = FIRST_PAUSE;
    loop {
        let began = std::time::Instant::now();
        let result = match &source {
            Source::Publish | Source::Broker(_) => return,
            Source::Test(config) => program::test(config, &outlet).await,
            Source::Stdin => bytes::stdin(&outlet).await,
            Source::File(path) => file::play(path, &outlet).await,
            #[cfg(feature = "moq")]
            Source::Relay(address) => return relay::pull(address, &outlet).await,
            // Its address cannot be read then.
            #[cfg(not(feature = "moq"))]
            Source::Relay(_) => return,
            Source::Rtsp(url) => match Camera::parse(url) {
                Ok(camera) => return rtsp::pull(camera, outlet).await,
                Err(error) => return warn!(stream, %error, "the source cannot be used"),
            },
        };
        if source == Source::Stdin {
            match result {
                Ok(()) => info!(stream, "standard input has ended"),
                Err(error) => warn!(stream, %error, "standard input cannot be used"),
            }
            return;
        }
        if began.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        match result {
            Ok(()) => {
                info!(stream, %source, "the source has ended, it begins again");
                pause = FIRST_PAUSE;
            }
            Err(error) => {
                warn!(stream, %source, %error, again_in = ?pause, "the source failed");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
