//! A camera's demand for credentials (RFC 2617, 7616), from the client's side.

use crate::access::{Algorithm, parameters};
use crate::config::Credentials;

/// A challenge that can be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Digest(Box<Digest>),
    Basic,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    realm: String,
    pub(super) nonce: String,
    opaque: Option<String>,
    algorithm: Algorithm,
    /// As it was written, to be said back.
    algorithm_name: Option<String>,
    is_session: bool,
    has_qop: bool,
}

impl Challenge {
    /// The challenges in the values of `WWW-Authenticate`, the safest one first.
    pub(super) fn all<'a>(values: impl Iterator<Item = &'a str>) -> Vec<Self> {
        let mut found: Vec<_> =
            values.flat_map(schemes).filter_map(|(scheme, rest)| Self::of(scheme, rest)).collect();
        found.sort_by_key(|challenge| match challenge {
            Self::Digest(digest) => u8::from(digest.algorithm != Algorithm::Sha256),
            Self::Basic => 2,
        });
        found
    }

    fn of(scheme: &str, rest: &str) -> Option<Self> {
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("digest") {
            return None;
        }
        let parameters = parameters(rest)?;
        let value = |wanted: &str| {
            let mut named = parameters.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            named.next().map(|(_, value)| value.clone())
        };
        let algorithm_name = value("algorithm");
        let name = algorithm_name.as_deref().unwrap_or("MD5").to_ascii_uppercase();
        let (algorithm, is_session) = match name.as_str() {
            "MD5" => (Algorithm::Md5, false),
            "MD5-SESS" => (Algorithm::Md5, true),
            "SHA-256" => (Algorithm::Sha256, false),
            "SHA-256-SESS" => (Algorithm::Sha256, true),
            _ => return None,
        };
        let has_qop = match value("qop") {
            None => false,
            Some(qop) if qop.trim().is_empty() => false,
            Some(qop) if qop.split(',').any(|qop| qop.trim().eq_ignore_ascii_case("auth")) => true,
            Some(_) => return None,
        };
        Some(Self::Digest(Box::new(Digest {
            realm: value("realm").unwrap_or_default(),
            nonce: value("nonce")?,
            opaque: value("opaque"),
            algorithm,
            algorithm_name,
            is_session,
            has_qop,
        })))
    }

    /// The value of `Authorization` for a request, the `count`th with this challenge; `own` is random.
    pub(super) fn answer(&self, who: &Credentials, method: &str, uri: &str, count: u32, own: &str) -> String {
        let Credentials { user, password } = who;
        match self {
            Self::Basic => {
                format!("Basic {}", data_encoding::BASE64.encode(format!("{user}:{password}").as_bytes()))
            }
            Self::Digest(digest) => digest.answer((user, password), method, uri, count, own),
        }
    }
}

impl Digest {
    fn answer(
        &self,
        (user, password): (&str, &str),
        method: &str,
        uri: &str,
        count: u32,
        own: &str,
    ) -> String {
        let Self { realm, nonce, algorithm, .. } = self;
        let mut secret = algorithm.hash(&[user, realm, password]);
        if self.is_session {
            secret = algorithm.hash(&[&secret, nonce, own]);
        }
        let request = algorithm.hash(&[method, uri]);
        let count = format!("{count:08x}");
        let response = if self.has_qop {
            algorithm.hash(&[&secret, nonce, &count, own, "auth", &request])
        } else {
            algorithm.hash(&[&secret, nonce, &request])
        };
        let mut text = format!(
            "Digest username={}, realm={}, nonce={}, uri={}, response=\"{response}\"",
            quoted(user),
            quoted(realm),
            quoted(nonce),
            quoted(uri)
        );
        if let Some(name) = &self.algorithm_name {
            text.push_str(", algorithm=");
            text.push_str(name);
        }
        if let Some(opaque) = &self.opaque {
            text.push_str(", opaque=");
            text.push_str(&quoted(opaque));
        }
        if self.has_qop {
            text.push_str(&format!(", qop=auth, nc={count}"));
        }
        if self.has_qop || self.is_session {
            text.push_str(&format!(", cnonce=\"{own}\""));
        }
        text
    }
}

fn quoted(text: &str) -> String {
    // A camera's own text comes back in one line; it may not start another one.
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Several challenges may stand in one value: `Basic realm="x", Digest realm="y", nonce="z"`. Each with its parameters.
fn schemes(value: &str) -> Vec<(&str, &str)> {
    let mut begins = Vec::new();
    let (mut quoted, mut escaped, mut element) = (false, false, 0);
    for (at, character) in value.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => {
                begins.extend(scheme_at(value, element));
                element = at + 1;
            }
            _ => {}
        }
    }
    begins.extend(scheme_at(value, element));
    let ends = begins.iter().skip(1).map(|(at, _)| *at).chain([value.len()]);
    let parted = begins.iter().zip(ends).map(|(&(at, scheme), end)| {
        let rest = value.get(at + scheme.len()..end).unwrap_or_default();
        (scheme, rest.trim_end_matches([',', ' ']))
    });
    parted.collect()
}

/// The scheme that begins with the list's element there: a word that no `=` follows.
fn scheme_at(value: &str, element: usize) -> Option<(usize, &str)> {
    let rest = value.get(element..)?;
    let word = rest.trim_start();
    let at = element + (rest.len() - word.len());
    let end = word.find([' ', ',', '=', '\t']).unwrap_or(word.len());
    let (scheme, after) = word.split_at(end);
    (!scheme.is_empty() && !after.trim_start().starts_with('=')).then_some((at, scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> Credentials {
        Credentials { user: "Mufasa".to_owned(), password: "Circle of Life".to_owned() }
    }

    #[test]
    fn the_answers_of_the_standards() {
        // RFC 7616, 3.9.1.
        let realm = "realm=\"http-auth@example.org\", qop=\"auth, auth-int\", nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\"";
        let own = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
        for (algorithm, response) in [
            ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
            ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ] {
            let value = format!(
                "Digest {realm}, algorithm={algorithm}, opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""
            );
            let challenges = Challenge::all([value.as_str()].into_iter());
            let answer = challenges[0].answer(&who(), "GET", "/dir/index.html", 1, own);
            assert!(answer.contains(&format!("response=\"{response}\"")), "{answer}");
            assert!(answer.contains("opaque=\"FQhe") && answer.contains("qop=auth, nc=00000001"), "{answer}");
        }
        assert_eq!(Challenge::Basic.answer(&who(), "", "", 1, ""), "Basic TXVmYXNhOkNpcmNsZSBvZiBMaWZl");
    }

    #[test]
    fn the_safest_challenge_comes_first() {
        let found = |values: &[&str]| {
            let all = Challenge::all(values.iter().copied());
            all.iter()
                .map(|it| if let Challenge::Digest(it) = it { it.algorithm.name() } else { "Basic" })
                .collect::<Vec<_>>()
        };
        let (md5, sha) = (
            "Digest realm=\"a, Basic b\", nonce=\"1\", stale=\"FALSE\"",
            "digest realm=x,nonce=2,algorithm=SHA-256",
        );
        assert_eq!(found(&["Basic realm=\"cam\"", md5, sha]), ["SHA-256", "MD5", "Basic"]);
        assert_eq!(found(&[&format!("Basic realm=\"cam\", {md5}, {sha}")]), ["SHA-256", "MD5", "Basic"]);
        assert_eq!(
            found(&["Digest realm=\"a\"", "Digest nonce=1, algorithm=SHA-512-256", "Bearer", "", ","]),
            [""; 0]
        );
    }

    #[test]
    fn any_text() {
        bolero::check!().with_type::<String>().for_each(|text| {
            for challenge in Challenge::all([text.as_str()].into_iter()) {
                let answer = challenge.answer(&who(), "OPTIONS", text, 1, "x");
                assert!(!answer.contains(['\r', '\n']) || text.contains(['\r', '\n']));
            }
        });
    }
}
