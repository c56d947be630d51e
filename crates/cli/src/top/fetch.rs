use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, bail};
use freshwire_server::client::{authorization, split_user, without_user};
use freshwire_server::report::{StreamReport, TopicReport};
use serde::de::DeserializeOwned;

/// Time for an answer of the server. Chosen, not measured.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Largest answer: room for about thirty thousand viewers. Chosen, not measured.
const MAX_ANSWER: u64 = 32 << 20;

/// What a server serves at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Look {
    pub(super) streams: Vec<StreamReport>,
    pub(super) topics: Vec<TopicReport>,
}

/// A server's internal address.
pub(super) struct Server {
    authority: String,
    /// For a proxy in front of it: the server itself asks for none there.
    user: Option<(String, String)>,
}

impl Server {
    pub(super) fn parse(url: &str) -> anyhow::Result<Self> {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, authority) = split_user(place);
        let has_other_scheme = rest.contains("://");
        if has_other_scheme
            || path.contains('@')
            || authority.is_empty()
            || authority.contains(char::is_whitespace)
        {
            let url = without_user(url);
            bail!("{url:?} is no internal address of a server; write http://[USER:PASSWORD@]HOST:9464");
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:9464") };
        Ok(Self { authority, user })
    }

    /// What it serves now.
    pub(super) fn look(&self) -> anyhow::Result<Look> {
        Ok(Look { streams: self.ask("/api/streams")?, topics: self.ask("/api/values")? })
    }

    fn ask<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let body = self
            .get(path)
            .with_context(|| format!("no answer from {self}; is `freshwire serve` running there?"))?;
        serde_json::from_slice(&body).with_context(|| format!("{self} is not a server of this version"))
    }

    fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let mut answer = self.exchange(path, None)?;
        if let (Some((name, password)), 401) = (&self.user, answer.status) {
            let challenges = answer.head.lines().filter_map(|line| line.split_once(':'));
            let challenges = challenges
                .filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"))
                .map(|(_, value)| value.trim());
            let proof = authorization(challenges, (name, password), "GET", path)
                .context("it asks for the password in a way that is not known here")?;
            answer = self.exchange(path, Some(&proof))?;
        }
        if answer.status != 200 {
            let line = answer.head.lines().next().unwrap_or_default();
            let remedy = if answer.status == 401 { "; write http://USER:PASSWORD@HOST:9464" } else { "" };
            bail!("it answers {line}{remedy}");
        }
        Ok(answer.body)
    }

    fn exchange(&self, path: &str, proof: Option<&str>) -> anyhow::Result<Answer> {
        let address = self.authority.to_socket_addrs()?.next().context("the host has no address")?;
        let mut socket = TcpStream::connect_timeout(&address, TIMEOUT)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        // HTTP 1.0: the answer's end is the connection's end.
        let host = &self.authority;
        // In one write: a server may answer and close when it has read the first part.
        let proof = proof.map(|proof| format!("Authorization: {proof}\r\n")).unwrap_or_default();
        let request =
            format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n{proof}Accept: application/json\r\n\r\n");
        socket.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        socket.take(MAX_ANSWER).read_to_end(&mut answer)?;
        let head_end =
            answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").context("it speaks no HTTP")?;
        let (head, body) = answer.split_at(head_end);
        let head = String::from_utf8_lossy(head).into_owned();
        let status =
            head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("it speaks no HTTP")?;
        Ok(Answer { status, head, body: body.get(4..).unwrap_or_default().to_vec() })
    }
}

/// An answer of HTTP.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}
