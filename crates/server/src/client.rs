//! The other end of `GET /NAME.fw`: the address of a server's stream, and the request that opens it.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::access;

/// Largest head of an answer.
const MAX_HEAD: usize = 16 << 10;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// `http://[USER:PASSWORD@]HOST[:PORT]/NAME.fw[?QUERY]`.
#[derive(Clone, Debug)]
pub struct StreamAddress {
    /// `HOST:PORT`.
    authority: String,
    /// The path with the query.
    target: String,
    user: Option<(String, String)>,
}

/// The text is no address of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is encrypted.
    #[error("https is not spoken here; use the http:// address, or fetch the stream with curl")]
    Encrypted,
    /// Another scheme.
    #[error("write http://HOST:PORT/NAME.fw")]
    Scheme,
    /// No path.
    #[error("the name is missing: http://HOST:PORT/NAME.fw")]
    Name,
    /// Another container.
    #[error("the path does not end in .fw: http://HOST:PORT/NAME.fw")]
    Ending,
    /// White space or control characters.
    #[error("blanks cannot stand in an address")]
    Blank,
    /// A slash in front of `@`.
    #[error("a slash in a password is written %2F: http://USER:PASSWORD@HOST:PORT/NAME.fw")]
    Slash,
}

/// The server does not give the stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The request cannot be sent, or its answer not be read.
    #[error("no answer from {authority}: {cause}")]
    Io {
        /// `HOST:PORT`.
        authority: String,
        /// The system's error. A part of the message, so that a chain of causes does not repeat it.
        cause: io::Error,
    },
    /// The server asks for a password as no user of it is known to.
    #[error("the server asks for the password in a way that is not known here")]
    Challenge,
    /// The server refuses.
    #[error("the server answers {status}: {reason}")]
    Refused {
        /// The first line of the answer.
        status: String,
        /// The first line of its text.
        reason: String,
    },
}

impl FromStr for StreamAddress {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Self, AddressError> {
        if url.starts_with("https://") {
            return Err(AddressError::Encrypted);
        }
        let rest = url.strip_prefix("http://").ok_or(AddressError::Scheme)?;
        let (place, path) = rest.split_once('/').ok_or(AddressError::Name)?;
        if before_query(path).contains('@') {
            return Err(AddressError::Slash);
        }
        if !path.split('?').next().is_some_and(|name| name.len() > 3 && name.ends_with(".fw")) {
            return Err(AddressError::Ending);
        }
        if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(AddressError::Blank);
        }
        let (user, host) = split_user(place);
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { host.to_owned() } else { format!("{host}:80") };
        Ok(Self { authority, target: format!("/{path}"), user })
    }
}

/// The user and the password in front of a host, without percent encoding, and the host: `USER:PASSWORD@HOST`.
pub fn split_user(place: &str) -> (Option<(String, String)>, &str) {
    let Some((user, host)) = place.rsplit_once('@') else { return (None, place) };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    (Some((decoded(name), decoded(password))), host)
}

/// An address as it may be shown: without the user and the password, also where they have a slash.
pub fn without_user(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let separator = if scheme.is_empty() { "" } else { "://" };
    let end = before_query(rest).rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}{separator}{}", &rest[end..])
}

fn before_query(text: &str) -> &str {
    text.split_once('?').map_or(text, |(before, _)| before)
}

/// The value of `Authorization` that answers one of a server's challenges: by digest, or else by basic authentication. `None` if
/// neither is asked for.
pub fn authorization<'a>(
    challenges: impl Iterator<Item = &'a str> + Clone,
    (name, password): (&str, &str),
    method: &str,
    uri: &str,
) -> Option<String> {
    let digest =
        challenges.clone().find_map(|challenge| access::answer(challenge, name, password, method, uri));
    let is_basic = |challenge: &str| {
        challenge.split_whitespace().next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic"))
    };
    let basic = || {
        let user = data_encoding::BASE64.encode(format!("{name}:{password}").as_bytes());
        challenges.clone().any(is_basic).then(|| format!("Basic {user}"))
    };
    digest.or_else(basic)
}

impl StreamAddress {
    /// A connection on which the stream's first byte is the next one. `connect` connects to `HOST:PORT`; it is called again
    /// for a server that asks for the password.
    ///
    /// # Errors
    ///
    /// If `connect` fails, or the server does not give the stream.
    pub fn open<E: From<FetchError>>(
        &self,
        mut connect: impl FnMut(&str) -> Result<TcpStream, E>,
    ) -> Result<TcpStream, E> {
        let (stream, answer) = self.ask(connect(&self.authority)?, None)?;
        let user = self.user.as_ref().filter(|_| answer.status() == Some(401));
        let Some((name, password)) = user else { return Ok(answer.granted(stream)?) };
        let proof = authorization(answer.challenges(), (name, password), "GET", &self.target)
            .ok_or(FetchError::Challenge)?;
        let (stream, answer) = self.ask(connect(&self.authority)?, Some(&proof))?;
        Ok(answer.granted(stream)?)
    }

    fn ask(&self, mut stream: TcpStream, proof: Option<&str>) -> Result<(TcpStream, Answer), FetchError> {
        let Self { authority, target, .. } = self;
        let proof = proof.map(|proof| format!("Authorization: {proof}\r\n")).unwrap_or_default();
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\n{proof}Connection: close\r\n\r\n");
        let mut exchange = || {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request.as_bytes())?;
            read_head(&mut stream)
        };
        let head = exchange().map_err(|cause| FetchError::Io { authority: authority.clone(), cause })?;
        Ok((stream, Answer { head }))
    }
}

/// Byte by byte, because what follows is the stream's.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            let text = format!("its head is longer than {MAX_HEAD} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        stream.read_exact(&mut byte)?;
        head.extend_from_slice(&byte);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The head of an answer.
struct Answer {
    head: String,
}

impl Answer {
    fn status(&self) -> Option<u16> {
        self.head.strip_prefix("HTTP/1.")?.split_whitespace().nth(1)?.parse().ok()
    }

    fn challenges(&self) -> impl Iterator<Item = &str> + Clone {
        let headers = self.head.lines().filter_map(|line| line.split_once(':'));
        headers
            .filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"))
            .map(|(_, value)| value.trim())
    }

    fn granted(&self, stream: TcpStream) -> Result<TcpStream, FetchError> {
        if self.status() == Some(200) {
            return Ok(stream);
        }
        let mut reason = String::new();
        // The status says enough if the reason cannot be read.
        let _ = stream.take(MAX_HEAD as u64).read_to_string(&mut reason);
        let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        Err(FetchError::Refused { status: first(&self.head), reason: first(&reason) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_streams() -> Result<(), AddressError> {
        let address: StreamAddress = "http://an%20na:p%40ss@host/live.fw?valid=1".parse()?;
        assert_eq!((address.authority.as_str(), address.target.as_str()), ("host:80", "/live.fw?valid=1"));
        assert_eq!(address.user, Some(("an na".to_owned(), "p@ss".to_owned())));
        let address: StreamAddress = "http://[::1]:8080/live.fw".parse()?;
        assert_eq!((address.authority.as_str(), address.user), ("[::1]:8080", None));
        for (wrong, error) in [
            ("https://host/live.fw", AddressError::Encrypted),
            ("host:8080/live.fw", AddressError::Scheme),
            ("http://host:8080", AddressError::Name),
            ("http://host/live.ts", AddressError::Ending),
            ("http://host/.fw", AddressError::Ending),
            ("http://host/a b.fw", AddressError::Blank),
            ("http://anna:se/cret@host/live.fw", AddressError::Slash),
        ] {
            assert_eq!(wrong.parse::<StreamAddress>().err(), Some(error), "{wrong}");
        }
        Ok(())
    }

    #[test]
    fn no_password_is_shown() {
        let shown = [
            ("http://anna:secret@host:1/live?a=b@c", "http://host:1/live?a=b@c"),
            ("anna:secret@host", "host"),
            ("anna:se/cret@host/x", "host/x"),
            ("rtsp://anna:s@cret@host/x", "rtsp://host/x"),
            ("anna:secret@", ""),
            ("host:1", "host:1"),
        ];
        for (address, wanted) in shown {
            assert_eq!(without_user(address), wanted);
        }
        bolero::check!().with_type::<String>().for_each(|text| {
            let shown = without_user(&format!("http://anna:{text}secret@host/x"));
            assert!(shown == "http://host/x" || text.contains('?') || text.contains('@'), "{shown}");
        });
    }

    #[test]
    fn basic_authentication_answers_where_a_digest_is_not_asked_for() {
        let answer =
            |challenges: &[&str]| authorization(challenges.iter().copied(), ("anna", "sesame"), "GET", "/");
        assert_eq!(answer(&["Basic realm=\"x\""]).as_deref(), Some("Basic YW5uYTpzZXNhbWU="));
        assert_eq!(answer(&["Bearer"]), None);
        let digest = "Digest realm=\"freshwire\", nonce=\"1\", algorithm=SHA-256, qop=\"auth\"";
        assert!(
            answer(&["basic realm=x", digest]).is_some_and(|answer| answer.starts_with("Digest username="))
        );
    }

    #[test]
    fn an_answer_and_its_challenges() {
        let head =
            "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest a\r\nwww-authenticate: Basic b\r\n\r\n";
        let answer = Answer { head: head.to_owned() };
        assert_eq!(answer.status(), Some(401));
        assert_eq!(answer.challenges().collect::<Vec<_>>(), ["Digest a", "Basic b"]);
        assert_eq!(Answer { head: "SSH-2.0\r\n".to_owned() }.status(), None);
    }
}
