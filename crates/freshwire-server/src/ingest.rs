//! Sources that the server fetches by itself: files, standard input, cameras and the test picture.
//!
//! ```text
//!  test     pattern ──raw──► ffmpeg (x264) ──MPEG-TS──┐
//!  file     ffmpeg -c copy ─────────────────MPEG-TS──┼──► demux ──► pace ──► hub::Publisher
//!  Annex B file, standard input ──────────────────────┘
//!  rtsp://  retina ──► rtsp::pull ───────────────────────────────────────► hub::Publisher
//! ```

mod bytes;
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
use std::time::Duration;

use tracing::{info, warn};

pub use outlet::Outlet;
pub use pattern::{CLOCK_CELLS, PatternConfig, read_clock};

/// The first pause before a source that failed is tried again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause before a source that failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

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

/// Why a source cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A program that the source needs cannot be run.
    #[error("cannot run {program}: {error}; install it (Debian: apt-get install {program})")]
    Program {
        /// Its name.
        program: &'static str,
        /// Why.
        error: std::io::Error,
    },
    /// A program ended with an error.
    #[error("{program} failed: {message}")]
    Failed {
        /// Its name.
        program: &'static str,
        /// What it said.
        message: String,
    },
    /// The bytes are of no known container, or break it.
    #[error(transparent)]
    Demux(#[from] freshwire_media::demux::DemuxError),
    /// Reading failed.
    #[error("cannot read {what}: {error}")]
    Read {
        /// What was read.
        what: String,
        /// Why.
        error: std::io::Error,
    },
    /// There is no picture and no sound in it that can be carried.
    #[error("{0} has no track that can be carried: H.264, H.265, AV1, VP9, AAC or Opus")]
    NothingToCarry(String),
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

/// Feeds the stream, or one of its renditions, from the source until the caller drops the future. A source that ends or fails is begun again, after
/// a pause that grows; each failure is logged. Returns only when there is nothing more to fetch: standard input has ended,
/// or the stream is published by others.
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
