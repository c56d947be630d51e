use std::io;

use freshwire_a1::{Closed, QosError};

/// Why a node could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the node's socket: {0}")]
pub struct BindError(#[from] pub io::Error);

/// The node was dropped, or its socket failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the A1 node has stopped")]
pub struct NodeStopped;

/// Why a connection could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The quality of service wanted is beyond the node's maximum.
    #[error(transparent)]
    Qos(#[from] QosError),
    /// The handshake failed.
    #[error(transparent)]
    Failed(#[from] freshwire_a1::ConnectError),
    /// It was closed just after.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The node was dropped, or its socket failed.
    #[error("the A1 node has stopped")]
    Stopped,
}

/// Why a newcomer could not be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// It does not wait any more.
    #[error("the newcomer has waited for too long")]
    Gone,
    /// The node was dropped, or its socket failed.
    #[error(transparent)]
    Stopped(#[from] NodeStopped),
}
