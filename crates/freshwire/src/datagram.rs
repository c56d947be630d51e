//! Records over datagrams, for receivers of another protocol such as RTP.

pub(crate) mod path;
pub(crate) mod sink;

pub use path::{DatagramPath, Flushed, KnownPath};
