//! Session descriptions (RFC 8866) as RTSP carries them: written for DESCRIBE, read from ANNOUNCE and from cameras.

mod describe;
mod parse;

pub use describe::{DescribeError, Session, control, describe};
pub use parse::{
    CodecError, Description, MAX_MEDIA, MAX_TEXT_BYTES, Media, MediaCodec, SdpError, parse, parse_whole,
};

#[cfg(test)]
mod tests;
