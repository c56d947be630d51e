use std::net::IpAddr;

use super::link::LinkKey;
use super::password::Password;
use super::rights::Right;

/// A granted right with the proof that it took: enough to ask later whether the rules still grant it. Debug output
/// hides secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub(super) right: Right,
    pub(super) stream: String,
    pub(super) peer: IpAddr,
    /// By which name the client called the server, if it is granted because it is on this machine.
    pub(super) host: Option<String>,
    pub(super) user: Option<(String, Password)>,
    /// Its address has a signature by this key. A link that expires ends nothing that has started.
    pub(super) link: Option<LinkKey>,
}

impl Grant {
    /// The user's name, if it had to say who it is.
    pub fn user(&self) -> Option<&str> {
        self.user.as_ref().map(|(name, _)| name.as_str())
    }

    /// The granted right.
    pub fn right(&self) -> Right {
        self.right
    }

    /// The stream that it is for.
    pub fn stream(&self) -> &str {
        &self.stream
    }
}
