//! One destination: its configuration, its handle, its end.

pub(crate) mod carrier;
pub(crate) mod config;
pub(crate) mod ended;
pub(crate) mod handle;
pub(crate) mod id;
pub(crate) mod reserve;
pub(crate) mod seal;
pub(crate) mod shared;
pub(crate) mod signal;
pub(crate) mod watch;
