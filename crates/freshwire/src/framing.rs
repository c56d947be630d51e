//! Framings: they keep the stream valid when records are dropped.

pub use freshwire_media::framing::event_stream;
pub use freshwire_media::framing::{Framer, Framing, Piece};
