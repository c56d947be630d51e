//! Access control: rights to view and to publish streams.
//!
//! A request is granted because everybody may do it, because its address ends in a valid signed link, or because it
//! names a user who has the right. Passwords are kept as the hashes that HTTP digest authentication (RFC 7616, and
//! RFC 2069 as RTSP clients use it) compares; an answer to a challenge counts once. Basic authentication is taken over
//! encrypted connections only. A client that fails too often has to wait.

mod adobe;
mod digest;
mod grant;
mod link;
mod names;
mod nonces;
mod password;
mod random;
mod rights;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(crate) use adobe::{AdobeAnswer, ProvenUser};
pub(crate) use digest::{Algorithm, parameters};
pub use digest::{REALM, answer};
pub use grant::Grant;
pub use link::LinkKey;
pub use names::Names;
pub use password::Password;
pub use rights::{Right, Rights};

use digest::Authorization;
use link::LinkVerdict;
use nonces::Nonces;
use password::same;

use crate::throttle::{Allowance, Throttle};

/// Bytes as text: UTF-8, or else Latin-1, which programs wrote before.
pub(crate) fn text(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().copied().map(char::from).collect(), str::to_owned)
}

/// Whether the value of a header `Authorization` has a password for everybody on the way to read.
pub(crate) fn is_basic(authorization: &[u8]) -> bool {
    authorization.trim_ascii_start().get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "))
}

/// A request that needs a right.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The wanted right.
    pub right: Right,
    /// The stream that the right is for.
    pub stream: &'a str,
    /// The request's method, as it was written.
    pub method: &'a str,
    /// The request's URI, as it was written.
    pub uri: &'a str,
    /// The part of it behind `?`.
    pub query: Option<&'a str>,
    /// The value of the header `Authorization`.
    pub authorization: Option<&'a str>,
    /// The path below which a proxy shows the pages, which a client signs with the rest; empty for none.
    pub base_path: &'a str,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// The client's end of the connection.
    pub peer: SocketAddr,
    /// By which name it calls the server, as the header `Host` has it; `None` where no browser can ask.
    pub host: Option<&'a str>,
}

/// The answer to an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it pass.
    Granted(Grant),
    /// Answer 401 with one `WWW-Authenticate` header for each of these values, in this order.
    Challenge(Vec<String>),
    /// Answer 403 with this text.
    Denied(&'static str),
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its password.
    pub password: Password,
    /// Its rights.
    pub rights: Rights,
}

/// The rules, as configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Users by name.
    pub users: BTreeMap<String, User>,
    /// The rights of everybody.
    pub anonymous: Rights,
    /// The rights of programs on this machine, which connect over loopback.
    pub local: Rights,
    /// Names of the server, besides its addresses and `localhost`, by which programs on this machine call it.
    pub hosts: Vec<String>,
    /// Checks signed links.
    pub link_key: Option<LinkKey>,
}

/// The rules of access, and who has failed them lately.
#[derive(Debug)]
pub struct Access {
    rules: Rules,
    memory: Arc<Memory>,
}

/// The state that outlives a reload of the rules.
#[derive(Debug)]
struct Memory {
    nonces: Nonces,
    throttle: Throttle,
}

/// When a request is checked.
#[derive(Clone, Copy, Debug)]
struct Now {
    /// Seconds since 1970.
    wall: u64,
    monotonic: Instant,
}

impl Now {
    fn read() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { wall: wall.as_secs(), monotonic: Instant::now() }
    }
}

/// Wrong passwords and forged links.
const FAILURES: Allowance = Allowance { at_once: 10, each: Duration::from_secs(6) };

/// The answer to a client that calls the server by an unknown name.
pub(crate) const UNKNOWN_HOST: &str = "the server is not known by this name; call it by its address or localhost, or add the name to http.hosts";

const NO_BROKER_RIGHT: &str = "sending values to the broker of this stream needs a right of its own: list the stream in `broker` of [access.users.NAME] or [access.anonymous]";

const THROTTLED: &str = "too many failed attempts from this address; try again in a minute";

impl Access {
    /// Begins with these rules.
    pub fn new(rules: Rules) -> Self {
        Self { rules, memory: Arc::new(Memory { nonces: Nonces::new(), throttle: Throttle::default() }) }
    }

    /// Rules that grant everything to everybody.
    pub fn open() -> Self {
        Self::new(Rules { anonymous: Rights::all(), ..Rules::default() })
    }

    /// The same with other rules: who has to wait still has to.
    pub fn with_rules(&self, rules: Rules) -> Self {
        Self { rules, memory: Arc::clone(&self.memory) }
    }

    /// Whether the request is granted.
    pub fn check(&self, attempt: &Attempt<'_>) -> Verdict {
        self.check_at(attempt, Now::read())
    }

    /// Whether these rules grant what was granted, by what was proven then.
    pub fn upholds(&self, grant: &Grant) -> bool {
        let Grant { right, ref stream, peer, ref host, ref user, ref link } = *grant;
        let by_user = |(name, password): &(String, Password)| {
            let known = self.rules.users.get(name);
            known.is_some_and(|user| user.rights.allow(right, stream) && user.password.is(password))
        };
        self.is_open_to(right, stream, peer, host.as_deref())
            || (link.is_some() && *link == self.rules.link_key)
            || user.as_ref().is_some_and(by_user)
    }

    /// Whether it is granted without any proof.
    fn is_open_to(&self, right: Right, stream: &str, peer: IpAddr, host: Option<&str>) -> bool {
        let is_local = peer.to_canonical().is_loopback() && self.rules.local.allow(right, stream);
        (is_local && self.knows_host(host)) || self.rules.anonymous.allow(right, stream)
    }

    /// Whether this name of the server in a request is one of its own. A browser on this machine may have been led
    /// here by the name of a foreign page (DNS rebinding).
    pub fn knows_host(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return true };
        let Ok(authority) = host.parse::<hyper::http::uri::Authority>() else { return false };
        let name = authority.host().trim_end_matches('.');
        let is_name = |known: &str| name.eq_ignore_ascii_case(known);
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        is_name("localhost")
            || name.rsplit_once('.').is_some_and(|(_, last)| last.eq_ignore_ascii_case("localhost"))
            || address.split('%').next().is_some_and(|address| address.parse::<IpAddr>().is_ok())
            || self.rules.hosts.iter().any(|known| is_name(known))
    }

    fn check_at(&self, attempt: &Attempt<'_>, now: Now) -> Verdict {
        let Attempt { right, stream, .. } = *attempt;
        let peer = attempt.peer.ip();
        let link_key = self.rules.link_key.as_ref();
        let link =
            link_key.zip(attempt.query).and_then(|(key, query)| key.check(query, right, stream, now.wall));
        let granted = |user: Option<(&str, &User)>| {
            let is_signed = link == Some(LinkVerdict::Valid);
            Verdict::Granted(Grant {
                right,
                stream: stream.to_owned(),
                peer,
                host: attempt.host.filter(|_| peer.to_canonical().is_loopback()).map(str::to_owned),
                user: user.map(|(name, user)| (name.to_owned(), user.password.clone())),
                link: link_key.filter(|_| is_signed).cloned(),
            })
        };
        if self.is_open_to(right, stream, peer, attempt.host) {
            return granted(None);
        }
        let local = peer.to_canonical().is_loopback() && self.rules.local.allow(right, stream);
        if local && self.rules.users.is_empty() && self.rules.link_key.is_none() {
            return Verdict::Denied(UNKNOWN_HOST);
        }
        if link.is_none() && attempt.authorization.is_none() {
            return self.refuse(attempt, now, false);
        }
        if self.memory.throttle.blocks(peer, now.monotonic, FAILURES) {
            return Verdict::Denied(THROTTLED);
        }
        match link {
            Some(LinkVerdict::Valid) => return granted(None),
            Some(LinkVerdict::Expired) => return Verdict::Denied("the link has expired; ask for a new one"),
            Some(LinkVerdict::Forged) => {
                self.memory.throttle.count(peer, now.monotonic, FAILURES);
                return Verdict::Denied(
                    "the link is not valid for this; copy all of it, or ask for a new one",
                );
            }
            None => {}
        }
        match self.identify(attempt, now) {
            Identity::User(name, user) if user.rights.allow(right, stream) => granted(Some((name, user))),
            Identity::User(..) => Verdict::Denied(refusal_of(right)),
            Identity::Stale => self.refuse(attempt, now, true),
            Identity::Unproven => self.refuse(attempt, now, false),
            Identity::Wrong => {
                self.memory.throttle.count(peer, now.monotonic, FAILURES);
                self.refuse(attempt, now, false)
            }
        }
    }

    /// Asks who it is, if that can help.
    fn refuse(&self, attempt: &Attempt<'_>, now: Now, stale: bool) -> Verdict {
        if self.rules.users.is_empty() {
            return Verdict::Denied(match (attempt.right, self.rules.link_key.is_some()) {
                (Right::View, true) => "viewing needs a signed link; ask for one",
                (Right::Publish, true) => "publishing needs a signed link; ask for one",
                (Right::Broker, true) => "sending values to the broker needs a signed link; ask for one",
                (Right::View, false) => "viewing is not open to this address",
                (Right::Publish, false) => "publishing is not open to this address",
                (Right::Broker, false) => NO_BROKER_RIGHT,
            });
        }
        let nonce = self.memory.nonces.make(now.wall);
        let mut challenges = digest::challenges(&nonce, stale);
        if attempt.encrypted {
            challenges.push(format!("Basic realm=\"{REALM}\", charset=\"UTF-8\""));
        }
        Verdict::Challenge(challenges)
    }

    fn identify(&self, attempt: &Attempt<'_>, now: Now) -> Identity<'_> {
        match attempt.authorization.and_then(digest::parse) {
            Some(Authorization::Digest(digest)) => {
                let found = self.rules.users.get_key_value(digest.username.as_str());
                let known = found.and_then(|(_, user)| user.password.hash(digest.algorithm));
                // An unknown user takes as long as a wrong password.
                let expected =
                    digest.response_for(known.unwrap_or(digest.algorithm.nobody()), attempt.method);
                let proven = known.is_some() & same(&expected, &digest.response);
                match found {
                    Some(_) if !proven || !digest.is_for(attempt.uri, attempt.base_path) => Identity::Wrong,
                    Some((name, user)) => {
                        let once = digest.once(attempt.peer);
                        let is_first = self.memory.nonces.take(&digest.nonce, once, now.wall);
                        if is_first { Identity::User(name, user) } else { Identity::Stale }
                    }
                    None => Identity::Wrong,
                }
            }
            // The password went over the wire in plain text. Nothing that a client should get used to.
            Some(Authorization::Basic { .. }) if !attempt.encrypted => Identity::Unproven,
            Some(Authorization::Basic { username, password }) => {
                let given = Password::from_plain(&username, &password);
                let found = self.rules.users.get_key_value(username.as_str());
                let algorithm = match found {
                    Some((_, user)) if user.password.sha256.is_none() => Algorithm::Md5,
                    _ => Algorithm::Sha256,
                };
                let known = found.and_then(|(_, user)| user.password.hash(algorithm));
                let expected = known.unwrap_or(algorithm.nobody());
                let proven = known.is_some() & same(expected, given.hash(algorithm).unwrap_or_default());
                match found {
                    Some((name, user)) if proven => Identity::User(name, user),
                    _ => Identity::Wrong,
                }
            }
            None => Identity::Wrong,
        }
    }
}

/// The answer to a user without this right.
fn refusal_of(right: Right) -> &'static str {
    match right {
        Right::View => "this user may not view this stream",
        Right::Publish => "this user may not publish this stream",
        Right::Broker => NO_BROKER_RIGHT,
    }
}

/// The identity that an `Authorization` header proves.
enum Identity<'a> {
    User(&'a str, &'a User),
    /// The right password, for a challenge that is too old, or in a header that was sent before.
    Stale,
    /// Nothing that was looked at.
    Unproven,
    Wrong,
}

#[cfg(test)]
mod tests;
