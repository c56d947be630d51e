//! The address of a server that a stream is published to.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A server to publish to by RTMP: `rtmp[s]://HOST[:PORT]/APP/KEY`. Its key is a password, and never logged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Encrypted (RTMPS).
    pub(crate) tls: bool,
    /// For the system's resolver; an IPv6 address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) app: String,
    /// With the query.
    key: String,
}

/// The text is no address to publish to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Another scheme.
    #[error("write rtmp://HOST/APP/KEY or rtmps://HOST/APP/KEY, as the platform shows it")]
    Scheme,
    /// No host, or a port that is none.
    #[error("the host is missing or its port is none: rtmp://HOST:PORT/APP/KEY")]
    Host,
    /// No path.
    #[error("the application is missing: rtmp://HOST/APP/KEY; it is often live or app")]
    App,
    /// A user and a password.
    #[error(
        "a user before the host is not supported; platforms have the key at the end: rtmp://HOST/APP/KEY"
    )]
    User,
    /// White space or control characters.
    #[error("blanks and control characters cannot be in an address; write them as %20")]
    Blank,
}

/// The ports of RTMP and RTMPS.
const PORTS: (u16, u16) = (1935, 443);

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(TargetError::Blank);
        }
        let (scheme, rest) = url.split_once("://").ok_or(TargetError::Scheme)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "rtmp" => false,
            "rtmps" => true,
            _ => return Err(TargetError::Scheme),
        };
        let (place, path) = rest.split_once('/').ok_or(TargetError::App)?;
        if place.contains('@') {
            return Err(TargetError::User);
        }
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(TargetError::Host)?;
                host.parse::<Ipv6Addr>().map_err(|_| TargetError::Host)?;
                (host, port)
            }
            None => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        let default = if tls { PORTS.1 } else { PORTS.0 };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Some(default),
            None => None,
            Some(port) => port.parse().ok().filter(|&port| port > 0),
        };
        let port = port.ok_or(TargetError::Host)?;
        // Encoders take the first part of the path for the application.
        let (app, key) = path.split_once('/').unwrap_or((path, ""));
        if host.is_empty() {
            return Err(TargetError::Host);
        }
        if app.is_empty() {
            return Err(TargetError::App);
        }
        Ok(Self { tls, host: host.to_owned(), port, app: app.to_owned(), key: key.to_owned() })
    }
}

impl Target {
    /// The stream's name at the target: its password.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// `HOST:PORT`, as an address has them.
    pub(crate) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The address of the application.
    pub(crate) fn app_url(&self) -> String {
        // The query of an address without key may hold the secret.
        format!("{}://{}/{}", if self.tls { "rtmps" } else { "rtmp" }, self.authority(), self.app)
    }
}

/// Its address for people, without the key.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.app_url();
        f.write_str(url.split('?').next().unwrap_or(&url))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> Result<(bool, String, String, String), TargetError> {
        let target: Target = url.parse()?;
        Ok((target.tls, target.authority(), target.app.clone(), target.key().to_owned()))
    }

    #[test]
    fn addresses_are_those_of_platforms() {
        let found = |tls, authority: &str, app: &str, key: &str| {
            Ok((tls, authority.to_owned(), app.to_owned(), key.to_owned()))
        };
        assert_eq!(parts("rtmp://a.example/live2/ab-cd"), found(false, "a.example:1935", "live2", "ab-cd"));
        assert_eq!(
            parts("rtmps://b.example:443/rtmp/FB-1?s_bl=1&a=Ab"),
            found(true, "b.example:443", "rtmp", "FB-1?s_bl=1&a=Ab")
        );
        assert_eq!(parts("RTMPS://h/app/x/y"), found(true, "h:443", "app", "x/y"));
        assert_eq!(parts("rtmp://[::1]:19/live"), found(false, "[::1]:19", "live", ""));
        for (wrong, error) in [
            ("live", TargetError::Scheme),
            ("srt://h/app/key", TargetError::Scheme),
            ("rtmp://h", TargetError::App),
            ("rtmp://h/", TargetError::App),
            ("rtmp:///app/key", TargetError::Host),
            ("rtmp://h:0/app/key", TargetError::Host),
            ("rtmp://h:x/app/key", TargetError::Host),
            ("rtmp://[::1/app/key", TargetError::Host),
            ("rtmp://[::1]x/app/key", TargetError::Host),
            ("rtmp://[h]/app/key", TargetError::Host),
            ("rtmp://u:p@h/app/key", TargetError::User),
            ("rtmp://h/app/a b", TargetError::Blank),
            ("rtmp://h/app/a\nb", TargetError::Blank),
        ] {
            assert_eq!(parts(wrong), Err(error), "{wrong}");
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        for url in ["rtmp://h/app/secret", "rtmps://h/app/a/secret?x=secret", "rtmp://h/app?x=secret"] {
            let target: Target = url.parse().expect("an address");
            assert!(!format!("{target} {target:?}").contains("secret"), "{target}");
        }
    }

    #[test]
    fn any_text_is_an_address_or_an_error() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(target) = format!("rtmp://{text}").parse::<Target>() {
                assert!(!target.host.is_empty() && !target.app.is_empty() && target.port > 0);
                let again: Target =
                    format!("{}/{}", target.app_url(), target.key()).parse().expect("its own address");
                assert_eq!(again, target);
            }
        });
    }
}
