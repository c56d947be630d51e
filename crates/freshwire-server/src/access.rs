//! Who may view and publish what.

use std::net::IpAddr;

/// What somebody wants to do with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Get it.
    View,
    /// Feed it.
    Publish,
}

/// A request that needs a right.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// What is wanted.
    pub right: Right,
    /// Of which stream.
    pub stream: &'a str,
    /// The request's method, as it was written.
    pub method: &'a str,
    /// The request's URI, as it was written.
    pub uri: &'a str,
    /// What follows `?` in it.
    pub query: Option<&'a str>,
    /// The value of the header `Authorization`.
    pub authorization: Option<&'a str>,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// Who asks.
    pub peer: IpAddr,
}

/// What to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it pass. `user` is who it is, if it had to say so.
    Granted {
        /// The user's name.
        user: Option<String>,
    },
    /// Answer 401 with one `WWW-Authenticate` header for each of these values.
    Challenge(Vec<String>),
    /// Answer 403 with this text.
    Denied(&'static str),
}

/// The rules of access.
#[derive(Debug)]
pub struct Access {}

impl Access {
    /// Rules that grant everything to everybody.
    pub fn open() -> Self {
        Self {}
    }

    /// Whether the request is granted.
    pub fn check(&self, attempt: &Attempt<'_>) -> Verdict {
        let _ = attempt;
        Verdict::Granted { user: None }
    }
}
