use std::net::SocketAddr;

use data_encoding::{BASE64, HEXLOWER};
use md5::Md5;
use sha2::{Digest as _, Sha256};

use super::nonces::AnswerId;
use super::random::random;

/// The realm of all challenges. Stored password hashes contain it.
pub const REALM: &str = "freshwire";

/// More parameters than any client sends.
const MAX_PARAMETERS: usize = 32;

/// A hash of digest authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Sha256,
    Md5,
}

/// The contents of an `Authorization` header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Authorization {
    Digest(Digest),
    Basic { username: String, password: String },
}

/// The count of a client's requests with a nonce, as it was written and as a number, and the client's own nonce.
#[derive(Debug, PartialEq, Eq)]
struct Client {
    written: String,
    count: u32,
    nonce: String,
}

/// The parameters of digest authentication.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) username: String,
    pub(super) nonce: String,
    pub(super) uri: String,
    pub(super) response: String,
    pub(super) algorithm: Algorithm,
    /// The count and the nonce of the client; `None` as in RFC 2069.
    client: Option<Client>,
}

impl Algorithm {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA-256",
            Self::Md5 => "MD5",
        }
    }

    /// The hash of the parts with colons between them, in hexadecimal digits.
    pub(crate) fn hash(self, parts: &[&str]) -> String {
        let text = parts.join(":");
        match self {
            Self::Sha256 => HEXLOWER.encode(&Sha256::digest(text)),
            Self::Md5 => HEXLOWER.encode(&Md5::digest(text)),
        }
    }

    /// A stored password of nobody.
    pub(super) const fn nobody(self) -> &'static str {
        match self {
            Self::Sha256 => "0000000000000000000000000000000000000000000000000000000000000000",
            Self::Md5 => "00000000000000000000000000000000",
        }
    }
}

/// The digest challenges, the best one first. Clients that know no SHA-256 take the next one.
pub(super) fn challenges(nonce: &str, stale: bool) -> Vec<String> {
    let stale = if stale { ", stale=true" } else { "" };
    [Algorithm::Sha256, Algorithm::Md5]
        .map(|algorithm| {
            let name = algorithm.name();
            format!("Digest realm=\"{REALM}\", nonce=\"{nonce}\", algorithm={name}, qop=\"auth\"{stale}")
        })
        .to_vec()
}

/// Parses the header; `None` if its scheme is unknown.
pub(super) fn parse(header: &str) -> Option<Authorization> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    if scheme.eq_ignore_ascii_case("basic") {
        let decoded = String::from_utf8(BASE64.decode(rest.trim().as_bytes()).ok()?).ok()?;
        let (username, password) = decoded.split_once(':')?;
        return Some(Authorization::Basic { username: username.to_owned(), password: password.to_owned() });
    }
    if !scheme.eq_ignore_ascii_case("digest") {
        return None;
    }
    let parameters = parameters(rest)?;
    let value = |wanted: &str| {
        parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.clone())
    };
    let algorithm = match value("algorithm") {
        None => Algorithm::Md5,
        Some(name) => [Algorithm::Sha256, Algorithm::Md5]
            .into_iter()
            .find(|algorithm| algorithm.name().eq_ignore_ascii_case(&name))?,
    };
    let client = match value("qop") {
        None => None,
        Some(qop) if qop.eq_ignore_ascii_case("auth") => {
            let written = value("nc")?;
            let count = u32::from_str_radix(&written, 16).ok()?;
            Some(Client { written, count, nonce: value("cnonce")? })
        }
        Some(_) => return None,
    };
    if value("realm")? != REALM {
        return None;
    }
    Some(Authorization::Digest(Digest {
        username: value("username").or_else(|| extended(&value("username*")?))?,
        nonce: value("nonce")?,
        uri: value("uri")?,
        response: value("response")?.to_ascii_lowercase(),
        algorithm,
        client,
    }))
}

/// A value with its character set, such as `UTF-8''J%C3%A4s%C3%B8n%20Doe` (RFC 8187).
fn extended(value: &str) -> Option<String> {
    let (set, rest) = value.split_once('\'')?;
    let (_, coded) = rest.split_once('\'')?;
    set.eq_ignore_ascii_case("utf-8")
        .then(|| percent_encoding::percent_decode_str(coded).decode_utf8().ok())?
        .map(Into::into)
}

/// For clients: the value of `Authorization` that answers a server's challenge, which is the value of one of its
/// `WWW-Authenticate` headers. `None` for another challenge than this server's with SHA-256.
pub fn answer(challenge: &str, user: &str, password: &str, method: &str, uri: &str) -> Option<String> {
    let parameters = parameters(challenge.strip_prefix("Digest ")?)?;
    let value = |wanted: &str| {
        parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.as_str())
    };
    let is_ours = value("realm")? == REALM && value("algorithm")? == Algorithm::Sha256.name();
    // The user's name is quoted.
    if !is_ours || user.contains(['"', '\\']) {
        return None;
    }
    let (count, own) = ("00000001", HEXLOWER.encode(&random()[..8]));
    let digest = Digest {
        username: user.to_owned(),
        nonce: value("nonce")?.to_owned(),
        uri: uri.to_owned(),
        response: String::new(),
        algorithm: Algorithm::Sha256,
        client: Some(Client { written: count.to_owned(), count: 1, nonce: own.clone() }),
    };
    let response = digest.response_for(&digest.algorithm.hash(&[user, REALM, password]), method);
    let nonce = digest.nonce;
    Some(format!(
        "Digest username=\"{user}\", realm=\"{REALM}\", nonce=\"{nonce}\", uri=\"{uri}\", algorithm=SHA-256, \
         qop=auth, nc={count}, cnonce=\"{own}\", response=\"{response}\""
    ))
}

/// `name=token, name="quoted \"string\""`, as RFC 9110, section 11.2; empty elements are allowed.
pub(crate) fn parameters(mut text: &str) -> Option<Vec<(String, String)>> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        if text.is_empty() {
            return Some(parameters);
        }
        let (name, rest) = text.split_once('=')?;
        let name = name.trim_end();
        let again = parameters.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if again || parameters.len() >= MAX_PARAMETERS {
            return None;
        }
        let rest = rest.trim_start();
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find([',', ' ', '\t']).unwrap_or(rest.len());
                let (token, rest) = rest.split_at(end);
                (token.to_owned(), rest)
            }
        };
        parameters.push((name.to_owned(), value));
        text = rest.trim_start();
        if !text.is_empty() && !text.starts_with(',') {
            return None;
        }
    }
}

/// The string up to its closing quote, and what follows.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

impl Digest {
    /// The correct response for this stored password.
    pub(super) fn response_for(&self, password: &str, method: &str) -> String {
        let request = self.algorithm.hash(&[method, &self.uri]);
        match &self.client {
            Some(Client { written, nonce, .. }) => {
                self.algorithm.hash(&[password, &self.nonce, written, nonce, "auth", &request])
            }
            None => self.algorithm.hash(&[password, &self.nonce, &request]),
        }
    }

    /// The distinction of this answer from others to the same challenge.
    pub(super) fn once(&self, peer: SocketAddr) -> AnswerId {
        self.client.as_ref().map_or(AnswerId::Connection(peer), |client| AnswerId::Count(client.count))
    }

    /// Whether it was made for this request's address, as the client sees it below `base_path`. RTSP clients name the address of the whole presentation in a
    /// request for one of its tracks, or the other way round, and drop the query or not.
    pub(super) fn is_for(&self, uri: &str, base_path: &str) -> bool {
        let (signed, requested) = (path(&self.uri), path(uri));
        let inner = signed.strip_prefix(base_path).filter(|inner| inner.is_empty() || inner.starts_with('/'));
        let signed = inner.unwrap_or(signed);
        let below = |outer: &str, inner: &str| {
            !outer.is_empty() && inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
        };
        signed == requested || below(signed, requested) || below(requested, signed)
    }
}

/// The path of an address without what is in front of it, its query and a slash at the end.
fn path(uri: &str) -> &str {
    let after_scheme = uri.split_once("://").map(|(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
    let path = after_scheme.unwrap_or(uri);
    path.split('?').next().unwrap_or(path).trim_end_matches('/')
}

#[cfg(test)]
mod tests;
