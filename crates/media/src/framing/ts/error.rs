//! Streams that MPEG-TS cannot carry.

/// A stream that MPEG-TS cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TsError {
    /// There is no mapping that players know.
    #[error("{name} is not carried in MPEG-TS; use H.264 or H.265, or another way out")]
    Codec {
        /// The codec's name.
        name: &'static str,
    },
    /// An AudioSpecificConfig that ADTS headers cannot express.
    #[error("this kind of AAC does not fit into ADTS headers; use AAC-LC with a usual sampling rate")]
    Aac,
    /// An Opus channel layout without code.
    #[error("Opus with {channels} channels is not carried in MPEG-TS; use 1 to 8")]
    OpusChannels {
        /// The channels.
        channels: u8,
    },
    /// Neither pictures nor sound.
    #[error("the stream has no track; give it one")]
    NoTrack,
}
