//! Keys of relays, and tokens that are signed with them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use moq_auth::{Algorithm, Claims, Key, Pattern};

use crate::error::MoqError;

/// What a token lets do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Publish and read.
    Publish,
    /// Read.
    Read,
}

/// Makes a key that signs and checks tokens, in a file that only its owner can read. Does not overwrite one.
///
/// # Errors
///
/// If the file exists or cannot be written.
pub fn make_key(path: &Path) -> Result<(), MoqError> {
    if path.exists() {
        let advice =
            format!("{} exists: tokens of its key would be refused; give another file", path.display());
        return Err(MoqError::Relay(advice));
    }
    let key = Key::generate(Algorithm::HS256, None).and_then(|key| key.to_file(path));
    key.map_err(|error| MoqError::Relay(format!("no key in {}: {error}", path.display())))
}

/// Makes a token for the paths of this pattern, such as `demo/**`, valid for `valid_for` from now on.
///
/// # Errors
///
/// If the key cannot be read, or the pattern is none.
pub fn sign(key: &Path, pattern: &str, scope: Scope, valid_for: Duration) -> Result<String, MoqError> {
    let wrong = |error: &dyn std::fmt::Display| MoqError::Relay(format!("no token for {pattern:?}: {error}"));
    let loaded = Key::from_file(key)
        .map_err(|error| MoqError::Relay(format!("the key {} cannot be used: {error}", key.display())))?;
    let pattern: Pattern = pattern.trim_start_matches('/').parse().map_err(|error| wrong(&error))?;
    let mut claims = Claims::default().with_subscribe([pattern.clone()]);
    if scope == Scope::Publish {
        claims = claims.with_publish([pattern]);
    }
    let expires = SystemTime::now().checked_add(valid_for);
    loaded.sign(&claims.with_expires(expires)).map_err(|error| wrong(&error))
}
