//! The user interface of A1 as published (Mapp 1997, "The User Interface"), to reproduce the paper. Behind the feature
//! `reproduction`; applications use [`Node`](super::Node) and [`Connection`](super::Connection).

mod socket;
mod status;

pub use socket::{Contact, MAX_SOCKET_SINKS, Received, Sent, Socket, SocketError, WhenFull};
pub use status::Status;
