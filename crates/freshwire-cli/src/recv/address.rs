//! A stream of a live server: its address, and the request that opens it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use freshwire_server::access;
use percent_encoding::percent_decode_str;

use crate::endpoint::Endpoint;

/// Largest head of an answer.
const MAX_HEAD: usize = 16 << 10;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// `http://[USER:PASSWORD@]HOST[:PORT]/NAME.fw[?QUERY]`.
#[derive(Clone)]
pub(super) struct Address {
    /// `HOST:PORT`.
    authority: String,
    /// The path with the query.
    target: String,
    user: Option<(String, String)>,
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(url: &str) -> anyhow::Result<Self> {
        ensure!(
            !url.starts_with("https://"),
            "https is not spoken here; use the http:// address, or fetch the stream with curl"
        );
        let rest = url.strip_prefix("http://").context("write http://HOST:PORT/NAME.fw")?;
        let (place, path) = rest.split_once('/').context("the name is missing: http://HOST:PORT/NAME.fw")?;
        ensure!(
            path.split('?').next().is_some_and(|name| name.len() > 3 && name.ends_with(".fw")),
            "the path does not end in .fw: http://HOST:PORT/NAME.fw"
        );
        ensure!(
            !url.contains(|c: char| c.is_whitespace() || c.is_control()),
            "blanks cannot stand in an address"
        );
        let (user, host) = match place.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, place),
        };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (decoded(name), decoded(password))
        });
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { host.to_owned() } else { format!("{host}:80") };
        Ok(Self { authority, target: format!("/{path}"), user })
    }
}

impl Address {
    /// A connection on which the stream's first byte is the next one. It is tried for this long while nobody listens.
    pub(super) fn open(&self, patience: Duration) -> anyhow::Result<TcpStream> {
        let (stream, answer) = self.ask(patience, None)?;
        let user = self.user.as_ref().filter(|_| answer.status() == Some(401));
        let Some((name, password)) = user else { return answer.granted(stream) };
        let proof = answer
            .challenges()
            .find_map(|challenge| access::answer(challenge, name, password, "GET", &self.target))
            .context("the server asks for the password in a way that is not known here")?;
        let (stream, answer) = self.ask(Duration::ZERO, Some(&proof))?;
        answer.granted(stream)
    }

    fn ask(&self, patience: Duration, proof: Option<&str>) -> anyhow::Result<(TcpStream, Answer)> {
        let mut stream = Endpoint::Connect(self.authority.clone(), patience).open()?;
        stream.set_read_timeout(Some(PATIENCE)).context("cannot set a time-out")?;
        let Self { authority, target, .. } = self;
        let proof = proof.map(|proof| format!("Authorization: {proof}\r\n")).unwrap_or_default();
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\n{proof}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).with_context(|| format!("cannot ask {authority}"))?;
        let head = read_head(&mut stream).with_context(|| format!("no answer from {authority}"))?;
        Ok((stream, Answer { head }))
    }
}

/// Byte by byte, because what follows is the stream's.
fn read_head(stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < MAX_HEAD, "its head is longer than {MAX_HEAD} bytes");
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

    fn challenges(&self) -> impl Iterator<Item = &str> {
        let headers = self.head.lines().filter_map(|line| line.split_once(':'));
        headers
            .filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"))
            .map(|(_, value)| value.trim())
    }

    fn granted(&self, stream: TcpStream) -> anyhow::Result<TcpStream> {
        if self.status() == Some(200) {
            return Ok(stream);
        }
        let mut reason = String::new();
        // The status says enough if the reason cannot be read.
        let _ = stream.take(MAX_HEAD as u64).read_to_string(&mut reason);
        let status = self.head.lines().next().unwrap_or_default();
        bail!("the server answers {status}: {}", reason.lines().next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_streams() -> anyhow::Result<()> {
        let address: Address = "http://an%20na:p%40ss@host/live.fw?valid=1".parse()?;
        assert_eq!((address.authority.as_str(), address.target.as_str()), ("host:80", "/live.fw?valid=1"));
        assert_eq!(address.user, Some(("an na".to_owned(), "p@ss".to_owned())));
        let address: Address = "http://[::1]:8080/live.fw".parse()?;
        assert_eq!((address.authority.as_str(), address.user), ("[::1]:8080", None));
        for (wrong, message) in [
            ("https://host/live.fw", "https is not spoken here"),
            ("host:8080/live.fw", "write http://"),
            ("http://host:8080", "the name is missing"),
            ("http://host/live.ts", "does not end in .fw"),
            ("http://host/.fw", "does not end in .fw"),
            ("http://host/a b.fw", "blanks"),
        ] {
            let error = wrong.parse::<Address>().err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(message), "{wrong}: {error}");
        }
        Ok(())
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
