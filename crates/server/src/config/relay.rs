//! The address of a stream at a relay of Media over QUIC.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use url::Url;

/// A path at a relay: `moq://HOST:PORT/PATH`, or `https://` as upstream writes it. Its query, such as `?jwt=TOKEN`, is a password, and
/// never logged. With `moq+http://` or `http://` the fingerprint of the certificate is fetched over HTTP and trusted: for trials.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelayAddress(Url);

/// The text is no address at a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// Another scheme.
    #[error("write moq://HOST:PORT/PATH or https://HOST:PORT/PATH; for trials moq+http:// or http://")]
    Scheme,
    /// No host, or a port that is none.
    #[error("the host is missing or its port is none: moq://HOST:PORT/PATH")]
    Host,
    /// A user and a password.
    #[error("a user before the host is not supported; relays have tokens: moq://HOST:PORT/PATH?jwt=TOKEN")]
    User,
    /// A source without the name of its stream.
    #[error("the name of the stream is missing: moq://HOST:PORT/PATH/NAME")]
    Name,
    /// White space, control characters or a fragment.
    #[error("blanks, control characters and # cannot be in an address; write them as %20 and %23")]
    Blank,
    /// This program has no binding to relays.
    #[error(
        "this program is built without relays of Media over QUIC; build it with the feature `moq` and Rust 1.95 or newer"
    )]
    NotBuilt,
}

/// The port of relays that name none: as upstream's clients.
const PORT: u16 = 443;

impl FromStr for RelayAddress {
    type Err = RelayError;

    fn from_str(text: &str) -> Result<Self, RelayError> {
        if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#') {
            return Err(RelayError::Blank);
        }
        let (scheme, rest) = text.split_once("://").ok_or(RelayError::Scheme)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "moq" | "https" => "https",
            "moq+http" | "http" => "http",
            _ => return Err(RelayError::Scheme),
        };
        let mut url = Url::parse(&format!("{scheme}://{rest}")).map_err(|_| RelayError::Host)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(RelayError::User);
        }
        if url.host_str().is_none_or(str::is_empty) || url.port() == Some(0) {
            return Err(RelayError::Host);
        }
        // QUIC has one port for both.
        if scheme == "http" && url.port().is_none() {
            url.set_port(Some(PORT)).map_err(|()| RelayError::Host)?;
        }
        if cfg!(not(feature = "moq")) {
            return Err(RelayError::NotBuilt);
        }
        Ok(Self(url))
    }
}

impl RelayAddress {
    /// The address to connect to: that of a path below which streams are announced.
    pub fn url(&self) -> &Url {
        &self.0
    }

    /// The address to connect to and the name of the broadcast, of an address that ends with the name.
    ///
    /// # Errors
    ///
    /// [`RelayError::Name`].
    pub fn broadcast(&self) -> Result<(Url, String), RelayError> {
        let path = self.0.path().trim_end_matches('/');
        let (folder, name) = path.rsplit_once('/').ok_or(RelayError::Name)?;
        let name = percent_decode_str(name).decode_utf8().map_err(|_| RelayError::Name)?.into_owned();
        if name.is_empty() {
            return Err(RelayError::Name);
        }
        let mut url = self.0.clone();
        url.set_path(folder);
        Ok((url, name))
    }
}

/// For people: without its token.
impl fmt::Display for RelayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.0.clone();
        url.set_query(None);
        let scheme = if url.scheme() == "https" { "moq" } else { "moq+http" };
        let rest = url.as_str().split_once(':').map_or("", |(_, rest)| rest);
        write!(f, "{scheme}:{rest}")
    }
}

impl fmt::Debug for RelayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelayAddress({self})")
    }
}

#[cfg(all(test, feature = "moq"))]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<(String, String), RelayError> {
        let (url, name) = text.parse::<RelayAddress>()?.broadcast()?;
        Ok((url.to_string(), name))
    }

    #[test]
    fn a_source_is_a_path_and_a_name() {
        let found = |url: &str, name: &str| Ok((url.to_owned(), name.to_owned()));
        assert_eq!(parts("moq://relay:4443/demo/live?jwt=x"), found("https://relay:4443/demo?jwt=x", "live"));
        assert_eq!(parts("https://relay/live/"), found("https://relay/", "live"));
        assert_eq!(parts("MOQ+HTTP://[::1]:4443/a/b/c%20d"), found("http://[::1]:4443/a/b", "c d"));
        assert_eq!(parts("http://relay/x"), found("http://relay:443/", "x"));
        for (wrong, error) in [
            ("live", RelayError::Scheme),
            ("rtmp://h/a", RelayError::Scheme),
            ("moq://", RelayError::Host),
            ("moq://h:0/a", RelayError::Host),
            ("moq://h:x/a", RelayError::Host),
            ("moq://u:p@h/a", RelayError::User),
            ("moq://h", RelayError::Name),
            ("moq://h/", RelayError::Name),
            ("moq://h/%ff", RelayError::Name),
            ("moq://h/a b", RelayError::Blank),
            ("moq://h/a#b", RelayError::Blank),
        ] {
            assert_eq!(parts(wrong), Err(error), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        let address: RelayAddress = "moq://relay/demo?jwt=secret".parse().expect("an address");
        assert_eq!(format!("{address} {address:?}"), "moq://relay/demo RelayAddress(moq://relay/demo)");
    }

    #[test]
    fn any_text_is_a_relay_or_an_error() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(address) = format!("moq://{text}").parse::<RelayAddress>() {
                assert!(address.url().host_str().is_some_and(|host| !host.is_empty()));
                if let Ok((url, name)) = address.broadcast() {
                    assert!(!name.is_empty() && url.host_str() == address.url().host_str());
                }
            }
        });
    }
}
