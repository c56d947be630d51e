//! A sink over TCP.

pub(crate) mod batch;
pub(crate) mod committed;
pub(crate) mod estimate;
pub(crate) mod output;
pub(crate) mod sink;
mod unread;
