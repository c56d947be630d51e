//! What the byte streams of H.264 and H.265 have in common: their limits and what can be wrong with them.

/// Default of the largest access unit that [`AccessUnits`](crate::h264::AccessUnits) accepts, in bytes.
/// Chosen, not measured.
pub const DEFAULT_MAX_UNIT_BYTES: usize = 16 << 20;

/// The bytes are not an H.264 byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnnexBError {
    /// Something else before the first start code.
    #[error("the stream does not begin with a start code; is it an Annex B byte stream (ffmpeg: -f h264)?")]
    NoStartCode,
    /// A slice whose parameter sets have not come.
    #[error(
        "at stream byte {at}: a slice before its parameter sets; begin at a key picture with its headers"
    )]
    NoParameters {
        /// Stream offset of the slice.
        at: u64,
    },
    /// A parameter set that cannot be read.
    #[error("at stream byte {at}: an invalid parameter set")]
    Parameters {
        /// Stream offset of the parameter set.
        at: u64,
    },
    /// A slice header that cannot be read.
    #[error("at stream byte {at}: an invalid slice header")]
    SliceHeader {
        /// Stream offset of the slice.
        at: u64,
    },
    /// Slices in data partitions.
    #[error("at stream byte {at}: data partitioning is not supported")]
    Partitioned {
        /// Stream offset of the slice.
        at: u64,
    },
    /// An access unit above the limit.
    #[error("at stream byte {at}: an access unit of more than {limit} bytes")]
    TooLarge {
        /// Stream offset of the access unit.
        at: u64,
        /// The limit.
        limit: usize,
    },
}
