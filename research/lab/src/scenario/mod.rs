//! Parts of every experiment: an emulated link, connections across it, and runs in processes of their own.

mod a1;
mod clock;
mod link;
mod output;
pub(crate) mod pool;

pub(crate) use a1::{A1Path, transport};
pub(crate) use clock::wait_until;
pub(crate) use link::{LEAD, TestLink, TestPath, directions};
pub(crate) use output::Output;
