//! How a source fails, and how soon it is tried again.

use std::time::Duration;

/// The first pause before a source that failed is tried again; it doubles up to [`LONGEST_PAUSE`].
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause before a source that failed is tried again.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(15);

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
        /// Its error text.
        message: String,
    },
    /// A program goes on and does nothing.
    #[error("{program} hangs: it gives no pictures of {what}; it is ended")]
    Hangs {
        /// Its name.
        program: &'static str,
        /// The rendition or source.
        what: String,
    },
    /// This machine or this stream cannot have the encoder.
    #[error("{0}")]
    Encoder(String),
    /// The bytes are of no known container, or break it.
    #[error(transparent)]
    Demux(#[from] freshwire_media::demux::DemuxError),
    /// Reading failed.
    #[error("cannot read {what}: {error}")]
    Read {
        /// The file or stream.
        what: String,
        /// Why.
        error: std::io::Error,
    },
    /// There is no picture and no sound in it that can be carried.
    #[error("{0} has no track that can be carried: H.264, H.265, AV1, VP9, AAC or Opus")]
    NothingToCarry(String),
}
