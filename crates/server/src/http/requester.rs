//! The sender of a request.

use std::net::{IpAddr, SocketAddr};

use hyper::{HeaderMap, header};

use super::site::Site;

/// The client, and where it asks.
#[derive(Clone, Debug)]
pub(super) struct Requester {
    /// The client's address.
    pub(super) peer: SocketAddr,
    /// The server's address that the client has reached.
    pub(super) local: Option<IpAddr>,
    /// Whether the connection is encrypted.
    pub(super) encrypted: bool,
    /// The server's other addresses.
    pub(super) site: Site,
}

/// The header's value, if it is there and is text.
pub(super) fn text_of<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
