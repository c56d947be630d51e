//! Kinds of failures: C has a status for each, Python an exception.

use std::error::Error;
use std::io;

use freshwire::a1::{
    AcceptError, BindError, ByteStreamError, Closed, ConnectError, GroupError, InviteError, NodeStopped,
    QosError,
};
use freshwire::network::NetworkQosError;
use freshwire::receive::ReceiveError;
use freshwire::ring::CreateError;
use freshwire::sender::ModifyError;
use freshwire::sink::StaleSink;
use freshwire::{PushError, SenderError};
use freshwire_netns::standalone::StandaloneError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Full,
    TooLarge,
    TooLate,
    NotChanged,
    Closed,
    Invalid,
    NoRing,
    Carrier,
    System,
    BadStream,
    NotConnected,
    /// Instead of a connection: its node has stopped.
    NodeStopped,
    /// Another change of the quality of service is pending.
    Pending,
    /// The connection is one of another node.
    OtherNode,
    /// The system gives no network namespaces for an emulated link.
    NotPermitted,
    LinkSystem,
    Link,
    Other,
}

/// An error with a kind.
pub(crate) trait Classified: Error {
    fn kind(&self) -> Kind;
}

macro_rules! kinds {
    ($($error:ty { $($pattern:pat => $kind:expr),+ $(,)? })+) => {
        $(impl Classified for $error {
            fn kind(&self) -> Kind {
                match self { $($pattern => $kind),+ }
            }
        })+
    };
}

kinds! {
    StaleSink { _ => Kind::Closed }
    NodeStopped { _ => Kind::Closed }
    Closed { _ => Kind::Closed }
    PushError {
        Self::Full | Self::OutOfBlocks => Kind::Full,
        Self::TooLarge => Kind::TooLarge,
        Self::Closed | Self::StaleSink(_) => Kind::Closed,
        Self::ForeignReservation => Kind::Invalid,
        _ => Kind::Other,
    }
    ModifyError { Self::Invalid(_) => Kind::NotChanged, Self::StaleSink(_) => Kind::Closed, _ => Kind::TooLate }
    SenderError {
        Self::Create(CreateError::Config(_)) | Self::TooFewSlots { .. } => Kind::Invalid,
        Self::Create(_) => Kind::System,
        Self::Stream(error) => of_setting(error),
        Self::Network(error) => error.kind(),
        Self::Carrier(_) => Kind::Carrier,
        Self::Claim(_) => Kind::NoRing,
        Self::ConnectionEnded(_) => Kind::Closed,
        _ => Kind::Other,
    }
    ReceiveError { Self::Io(_) => Kind::System, _ => Kind::BadStream }
    BindError {
        Self::Maximum(_) | Self::AttemptDelay(_) => Kind::Invalid,
        Self::Network(error) => error.kind(),
        _ => Kind::System,
    }
    NetworkQosError { Self::DepartureTimes => Kind::Invalid, _ => Kind::System }
    ConnectError { Self::Stopped => Kind::NodeStopped, _ => Kind::NotConnected }
    AcceptError { Self::Qos(_) => Kind::Invalid, _ => Kind::Closed }
    QosError { Self::Ended => Kind::Closed, Self::Pending => Kind::Pending, _ => Kind::Invalid }
    GroupError {
        Self::Config(_) => Kind::Invalid,
        Self::Stopped(_) => Kind::Closed,
        Self::Network(error) => error.kind(),
        _ => Kind::System,
    }
    InviteError { Self::OtherNode => Kind::OtherNode, _ => Kind::Closed }
    ByteStreamError { Self::Sender(error) => error.kind(), _ => Kind::Invalid }
    StandaloneError {
        Self::NotPermitted(_) => Kind::NotPermitted,
        Self::Ended => Kind::Closed,
        Self::System { .. } => Kind::LinkSystem,
        _ => Kind::Link,
    }
}

/// Kind of an error of a setting that a socket is asked for: settings can contradict each other.
fn of_setting(error: &io::Error) -> Kind {
    match error.kind() {
        io::ErrorKind::InvalidInput if error.raw_os_error().is_none() => Kind::Invalid,
        _ => Kind::System,
    }
}

/// Kind of an error of a byte stream.
pub(crate) fn of_stream(error: &io::Error) -> Kind {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => Kind::Closed,
        io::ErrorKind::InvalidData => Kind::BadStream,
        _ => Kind::System,
    }
}

/// The result of an attempt with a time limit: `None` if the time was over.
pub(crate) fn in_time<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error),
    }
}
