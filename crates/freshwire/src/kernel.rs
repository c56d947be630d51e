//! A sink whose records the kernel takes from a ring of its own.

pub(crate) mod direct;
pub(crate) mod feed;
pub(crate) mod sink;
