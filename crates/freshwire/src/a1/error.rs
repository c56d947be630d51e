use std::io;
use std::time::Duration;

use freshwire_a1::{Closed, QosError};
use freshwire_io::network::NetworkQosError;

/// Error of creating a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is no such maximum of the quality of service.
    #[error("invalid ConnectionConfig::maximum: {0}")]
    Maximum(#[from] QosError),
    /// The kernel does not give the socket the wanted quality of service.
    #[error(transparent)]
    Network(#[from] NetworkQosError),
    /// There is no such delay.
    #[error("NodeConfig::attempt_delay is {0:?}, but must be 10 ms to 2 s")]
    AttemptDelay(Duration),
    /// There is no such number of threads.
    #[error("{0} threads for a node: 1 to 256 are possible")]
    Threads(usize),
    /// A TCP connection may be of several A1 connections, which several threads may have.
    #[error(
        "a node with several threads accepts no connections over TCP: set threads to 1 or tcp_fallback to false"
    )]
    ThreadsOverTcp,
    /// The operating system gives no socket or no thread.
    #[error("cannot open the node's socket")]
    Socket(#[from] io::Error),
}

/// The node was stopped or dropped, or its socket failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the A1 node has stopped")]
pub struct NodeStopped;

/// Error of connecting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The quality of service wanted is beyond the node's maximum, or there is none such.
    #[error(transparent)]
    Qos(#[from] QosError),
    /// The host does not give datagrams to the address the wanted quality of service.
    #[error(transparent)]
    Network(#[from] NetworkQosError),
    /// The address is none, or its name is not known.
    #[error("cannot look up the address: {0}")]
    Unknown(String),
    /// There is no address that the node can send to.
    #[error("there is no address of the kind, IPv4 or IPv6, that the node is bound to")]
    Family,
    /// The handshake failed.
    #[error(transparent)]
    Failed(#[from] freshwire_a1::ConnectError),
    /// It was closed just after.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The node was stopped or dropped, or its socket failed.
    #[error("the A1 node has stopped")]
    Stopped,
}

/// Error of accepting a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// It does not wait any more.
    #[error("the incoming connection timed out before it was accepted")]
    Gone,
    /// There is no such quality of service. The newcomer is refused.
    #[error(transparent)]
    Qos(#[from] QosError),
    /// The node was stopped or dropped, or its socket failed.
    #[error(transparent)]
    Stopped(#[from] NodeStopped),
}
