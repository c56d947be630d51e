use subtle::ConstantTimeEq as _;

use super::digest::{Algorithm, REALM};

/// A user's password, as the hash of `user:realm:password` in lower-case hexadecimal digits, one for each algorithm.
/// Debug output hides it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Password {
    /// For clients that know SHA-256, and for basic authentication.
    pub sha256: Option<String>,
    /// For clients that know MD5 only, as most RTSP players do.
    pub md5: Option<String>,
}

impl Password {
    /// Keeps the hashes of a password in plain text.
    pub fn from_plain(user: &str, password: &str) -> Self {
        let hash = |algorithm: Algorithm| Some(algorithm.hash(&[user, REALM, password]));
        Self { sha256: hash(Algorithm::Sha256), md5: hash(Algorithm::Md5) }
    }

    pub(super) fn hash(&self, algorithm: Algorithm) -> Option<&str> {
        match algorithm {
            Algorithm::Sha256 => self.sha256.as_deref(),
            Algorithm::Md5 => self.md5.as_deref(),
        }
    }

    /// Whether both are the hashes of one password, as far as they can be compared: one of them may lack an algorithm.
    pub(super) fn is(&self, other: &Self) -> bool {
        let pairs = [(&self.sha256, &other.sha256), (&self.md5, &other.md5)];
        let mut comparable =
            pairs.into_iter().filter_map(|(one, other)| Some((one.as_deref()?, other.as_deref()?)));
        comparable.next().is_some_and(|(one, other)| same(one, other))
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(hidden)")
    }
}

/// Compares in a time that says nothing of where they differ.
pub(super) fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}
