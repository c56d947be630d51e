//! A server that a stream is published to.

use std::fmt;

use super::relay::RelayAddress;
use super::target::Target;

/// A server that a stream is published to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    /// A platform, by RTMP.
    Rtmp(Target),
    /// A relay of Media over QUIC.
    Relay(RelayAddress),
}

/// Its address for people, without key or token.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rtmp(target) => target.fmt(f),
            Self::Relay(relay) => relay.fmt(f),
        }
    }
}
