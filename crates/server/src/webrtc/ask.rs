use std::net::{IpAddr, SocketAddr};

/// How a session was asked for.
pub(crate) struct Ask {
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The address by which it reached the server.
    pub(crate) local: Option<IpAddr>,
    /// The offer, SDP.
    pub(crate) offer: String,
}

/// A session that was opened.
pub(crate) struct Opened {
    /// Nobody can guess it, so that it is the right to end the session.
    pub(crate) id: String,
    /// The answer, SDP.
    pub(crate) answer: String,
}
