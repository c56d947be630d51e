//! Code that the crate for C has too.

#[path = "../../c/src/common/mod.rs"]
mod shared;

pub(crate) use shared::*;
