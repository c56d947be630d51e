//! A sink over datagrams.

pub(crate) mod path;
pub(crate) mod sink;
