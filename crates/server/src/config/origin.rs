//! The sites whose pages may play besides the server's own (RFC 6454).

use std::collections::BTreeSet;
use std::fmt;

/// The schemes of pages, and their usual ports.
const SCHEMES: [(&str, u16); 2] = [("http", 80), ("https", 443)];

/// The sites whose pages may play besides the server's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(BTreeSet<Origin>);

/// The text is no origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no origin; write it as the browser does: https://www.example.com, with a port if that is another than usual"
)]
pub struct OriginError(String);

/// Scheme, host in small letters, and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    scheme: &'static str,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Origin {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let (scheme, usual) = SCHEMES.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(scheme))?;
        let (host, port) = host_and_port(authority)?;
        Some(Self { scheme, host, port: port.unwrap_or(usual) })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port } = self;
        if is_usual(self) { write!(f, "{scheme}://{host}") } else { write!(f, "{scheme}://{host}:{port}") }
    }
}

impl Origins {
    /// Trusts the pages of another site, such as `https://www.example.com`.
    ///
    /// # Errors
    ///
    /// If it is not a scheme and a host.
    pub fn trust(&mut self, origin: &str) -> Result<(), OriginError> {
        let parsed = Origin::parse(origin.trim().trim_end_matches('/'));
        self.0.insert(parsed.ok_or_else(|| OriginError(origin.to_owned()))?);
        Ok(())
    }

    /// The hosts of these sites, in small letters.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|origin| origin.host.as_str())
    }

    /// Whether this site is one of them.
    pub(crate) fn contain(&self, origin: &Origin) -> bool {
        self.0.contains(origin)
    }

    /// Returns `true` without such sites.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These sites, as a list of sources in a content security policy.
    pub(crate) fn sources(&self) -> String {
        let sources: Vec<_> = self.0.iter().map(Origin::to_string).collect();
        sources.join(" ")
    }
}

pub(crate) fn is_usual(origin: &Origin) -> bool {
    SCHEMES.contains(&(origin.scheme, origin.port))
}

/// The host in small letters, and the port if there is one.
pub(crate) fn host_and_port(authority: &str) -> Option<(String, Option<u16>)> {
    let after_host = authority.rfind(']').unwrap_or(0);
    let (host, port) = match authority.get(after_host..)?.find(':') {
        Some(at) => {
            let (host, port) = authority.split_at(after_host + at);
            (host, Some(port.get(1..)?.parse().ok()?))
        }
        None => (authority, None),
    };
    let is_host = !host.is_empty()
        && !host.contains(['/', '@', '?', '#', '*', ';', ',', '\'', '"'])
        && !host.contains(char::is_whitespace);
    is_host.then(|| (host.to_ascii_lowercase(), port))
}
