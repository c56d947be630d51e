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
pub mod rtsp;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tracing::{info, warn};

use error::{FIRST_PAUSE, LONGEST_PAUSE};

pub use encoder::{Encoder, EncoderError};
pub use error::SourceError;
pub use outlet::Outlet;
pub use pattern::{CLOCK_CELLS, PatternConfig, read_clock};

/// Where a stream comes from.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A generated picture with a clock in it. Needs ffmpeg with libx264.
    Test(PatternConfig),
    /// Standard input: MPEG-TS, Annex B or IVF, at the pace at which it comes.
    Stdin,
    /// A file, in real time and looped. Annex B and IVF are read directly, everything else through ffmpeg.
    File(PathBuf),
    /// A camera, by its `rtsp://` address.
    Rtsp(String),
    /// Publishers: pictures and sound by RTSP, values by HTTP.
    Publish,
}

/// `test`, `-`, `publish`, an `rtsp://` address, or else the path of a file.
impl FromStr for Source {
    type Err = rtsp::PullError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "test" => Self::Test(PatternConfig::default()),
            "-" => Self::Stdin,
            "publish" => Self::Publish,
            url if url.contains("://") => {
                rtsp::Camera::parse(url)?;
                Self::Rtsp(url.to_owned())
            }
            path => Self::File(path.into()),
        })
    }
}

/// Like [`fmt::Display`], so that no log has a camera's password.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({self})")
    }
}

/// For people: an address without its password.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test(_) => f.write_str("test"),
            Self::Stdin => f.write_str("standard input"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Rtsp(url) => match rtsp::Camera::parse(url) {
                Ok(camera) => f.write_str(&camera.origin()),
                Err(_) => f.write_str("a camera"),
            },
            Self::Publish => f.write_str("publish"),
        }
    }
}

/// Feeds the stream, or one of its renditions, from the source until the caller drops the future. A source that ends
/// or fails is restarted, after a growing pause; each failure is logged. Returns only when there is nothing more to
/// fetch: standard input has ended, or the stream is published by others.
pub async fn run(source: Source, outlet: impl Into<Outlet>) {
    let outlet = outlet.into();
    let stream = outlet.name();
    let mut pause = FIRST_PAUSE;
    loop {
        let began = std::time::Instant::now();
        let result = match &source {
            Source::Publish => return,
            Source::Test(config) => program::test(config, &outlet).await,
            Source::Stdin => bytes::stdin(&outlet).await,
            Source::File(path) => file::play(path, &outlet).await,
            Source::Rtsp(url) => match rtsp::Camera::parse(url) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_told_apart() {
        let parse = |text: &str| text.parse::<Source>().expect("a source");
        assert!(matches!(parse("test"), Source::Test(_)));
        assert_eq!(parse("-"), Source::Stdin);
        assert_eq!(parse("publish"), Source::Publish);
        assert_eq!(parse("./test"), Source::File("./test".into()));
        assert_eq!(parse("rtsp://me:secret@cam/1").to_string(), "rtsp://cam/1");
        assert_eq!(format!("{:?}", parse("rtsp://me:secret@cam/1?token=x")), "Source(rtsp://cam/1)");
        assert!("http://cam/1".parse::<Source>().is_err());
    }
}
