//! The challenge by which RTMP servers ask for a password ("authmod=adobe"), as ffmpeg, OBS and GStreamer answer it.
//!
//! The client hashes user, salt and password with MD5 first. With [`SALT`] that is the hash that digest authentication
//! keeps, so the password itself is neither needed here nor sent.

use std::net::{IpAddr, SocketAddr};

use data_encoding::{BASE64, HEXLOWER};
use md5::Md5;
use sha2::Digest as _;

use super::digest::Algorithm;
use super::nonces::AnswerId;
use super::password::{Password, same};
use super::rights::Right;
use super::{Access, FAILURES, Now, THROTTLED, Verdict};

/// Between user and password in the stored hash: the realm with its colons.
const SALT: &str = ":freshwire:";

/// A client's answer to a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdobeAnswer<'a> {
    pub(crate) user: &'a str,
    /// The challenge of this server, which it calls opaque.
    pub(crate) opaque: &'a str,
    /// The client's own.
    pub(crate) challenge: &'a str,
    pub(crate) response: &'a str,
}

/// A user that has answered a challenge, for the rest of a connection. Debug output hides the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProvenUser {
    name: String,
    password: Password,
}

/// Why an answer proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdobeError {
    #[error("wrong user or password")]
    Wrong,
    #[error("the challenge is too old, or was answered before")]
    Stale,
    #[error("{THROTTLED}")]
    Throttled,
}

impl Access {
    /// A challenge for this user, as its client expects it in the description of an error.
    pub(crate) fn adobe_challenge(&self, user: &str) -> String {
        let nonce = self.memory.nonces.make(Now::read().wall);
        format!("?reason=needauth&user={user}&salt={SALT}&challenge={nonce}&opaque={nonce}")
    }

    /// Whether only somebody with a password may publish this stream, and a challenge can ask for one.
    pub(crate) fn needs_user(&self, right: Right, stream: &str, peer: IpAddr) -> bool {
        // Patterns may open streams below this name.
        let may_be_open = match right {
            Right::View => !self.rules.anonymous.view.is_empty(),
            Right::Publish => !self.rules.anonymous.publish.is_empty(),
            Right::Broker => !self.rules.anonymous.broker.is_empty(),
        };
        !self.rules.users.is_empty() && !may_be_open && !self.is_open_to(right, stream, peer, None)
    }

    /// The user that the answer proves.
    pub(crate) fn prove(&self, answer: &AdobeAnswer<'_>, peer: SocketAddr) -> Result<ProvenUser, AdobeError> {
        let now = Now::read();
        if self.memory.throttle.blocks(peer.ip(), now.monotonic, FAILURES) {
            return Err(AdobeError::Throttled);
        }
        let found = self.rules.users.get_key_value(answer.user);
        let known = found.and_then(|(_, user)| user.password.hash(Algorithm::Md5));
        // An unknown user takes as long as a wrong password.
        let expected = expected(known.unwrap_or(Algorithm::Md5.nobody()), answer);
        let proven = known.is_some() & same(&expected, answer.response);
        let Some((name, user)) = found.filter(|_| proven) else {
            self.memory.throttle.count(peer.ip(), now.monotonic, FAILURES);
            return Err(AdobeError::Wrong);
        };
        if !self.memory.nonces.take(answer.opaque, AnswerId::Connection(peer), now.wall) {
            return Err(AdobeError::Stale);
        }
        Ok(ProvenUser { name: name.clone(), password: user.password.clone() })
    }

    /// Whether a user who has proven who it is may do this.
    pub(crate) fn check_proven(
        &self,
        user: &ProvenUser,
        right: Right,
        stream: &str,
        peer: SocketAddr,
    ) -> Verdict {
        let granted = super::Grant {
            right,
            stream: stream.to_owned(),
            peer: peer.ip(),
            host: None,
            user: Some((user.name.clone(), user.password.clone())),
            link: None,
        };
        if self.upholds(&granted) {
            Verdict::Granted(granted)
        } else {
            Verdict::Denied(super::refusal_of(right))
        }
    }
}

/// The response of who knows the password, of whose hash these are the hexadecimal digits.
fn expected(hash: &str, answer: &AdobeAnswer<'_>) -> String {
    let hash = HEXLOWER.decode(hash.as_bytes()).unwrap_or_default();
    let text = format!("{}{}{}", BASE64.encode(&hash), answer.opaque, answer.challenge);
    BASE64.encode(&Md5::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Names, Rights, Rules, User};

    const PEER: ([u8; 4], u16) = ([192, 0, 2, 1], 4000);

    fn access() -> Access {
        let rights = Rights {
            view: Names::all(),
            publish: ["live".to_owned()].into_iter().collect(),
            ..Rights::default()
        };
        let user = User { password: Password::from_plain("anna", "sesame"), rights };
        Access::new(Rules { users: [("anna".to_owned(), user)].into(), ..Rules::default() })
    }

    /// As a client reads the challenge and answers it.
    fn answer(challenge: &str, password: &str) -> (String, String) {
        let value = |name: &str| {
            let mut pairs = challenge.split(['?', '&']).filter_map(|pair| pair.split_once('='));
            pairs.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned()).expect("a value")
        };
        let first = BASE64.encode(&Md5::digest(format!("anna{}{password}", value("salt"))));
        let second = BASE64.encode(&Md5::digest(format!("{first}{}01020304", value("opaque"))));
        (value("opaque"), second)
    }

    #[test]
    fn a_challenge_is_answered_once() {
        let access = access();
        let (opaque, response) = answer(&access.adobe_challenge("anna"), "sesame");
        let answer =
            AdobeAnswer { user: "anna", opaque: &opaque, challenge: "01020304", response: &response };
        let user = access.prove(&answer, PEER.into()).expect("the right password");
        let other = SocketAddr::from(([192, 0, 2, 2], 4000));
        assert_eq!(access.prove(&answer, other), Err(AdobeError::Stale), "a copy");
        let verdict = |stream| access.check_proven(&user, Right::Publish, stream, PEER.into());
        assert!(matches!(verdict("live"), Verdict::Granted(grant) if grant.user() == Some("anna")));
        assert!(matches!(verdict("other"), Verdict::Denied(_)));
    }

    #[test]
    fn a_wrong_password_makes_wait() {
        let access = access();
        let (opaque, response) = answer(&access.adobe_challenge("anna"), "salami");
        for user in ["anna", "nobody"] {
            let answer = AdobeAnswer { user, opaque: &opaque, challenge: "01020304", response: &response };
            assert_eq!(access.prove(&answer, PEER.into()), Err(AdobeError::Wrong));
        }
        let wrong = AdobeAnswer { user: "anna", opaque: "", challenge: "", response: "" };
        let errors = (0..20).filter_map(|_| access.prove(&wrong, PEER.into()).err());
        assert_eq!(errors.filter(|error| *error == AdobeError::Throttled).count(), 12, "after ten");
    }

    #[test]
    fn a_user_is_asked_for_only_where_one_is_needed() {
        let ask = |access: &Access| access.needs_user(Right::Publish, "live", PEER.0.into());
        assert!(ask(&access()) && !ask(&Access::open()) && !ask(&Access::new(Rules::default())));
    }
}
