//! A sink over TCP, and the memory that the turns of such sinks share.

pub(crate) mod batch;
pub(crate) mod committed;
pub(crate) mod estimate;
mod foreign;
pub(crate) mod output;
mod recent;
pub(crate) mod sink;
pub(crate) mod transfer;
mod unread;

use crate::turn::Scratch;

/// Room for writes, beside what sinks of every kind share.
#[derive(Default)]
pub(crate) struct TcpScratch {
    pub(crate) shared: Scratch,
    pub(crate) write: output::WriteBuffers,
    pub(crate) committed: committed::Room,
    pub(crate) plan: batch::Plan,
}
