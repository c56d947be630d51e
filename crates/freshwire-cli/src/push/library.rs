//! The library as a file.

use std::fs::{self, DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

/// What `build.rs` has built: nothing in a package from a registry.
#[cfg(carries_preload)]
const LIBRARY: Option<&[u8]> = Some(include_bytes!(env!("FRESHWIRE_PRELOAD")));
#[cfg(not(carries_preload))]
const LIBRARY: Option<&[u8]> = None;

/// Writes the library into a folder of the user's, unless it is there, and returns its path.
///
/// A file and no anonymous memory: the program's own children, which inherit the environment, have to find it as well.
pub(super) fn unpack() -> anyhow::Result<PathBuf> {
    let library = LIBRARY.context(
        "this build of the command carries no library to preload: build it from the repository, or give --library",
    )?;
    let folder = folder()?;
    // Other versions of the command have other names.
    let path = folder.join(format!("libfreshwire-push-{:016x}.so", fingerprint(library)));
    if fs::read(&path).is_ok_and(|there| there == library) {
        return Ok(path);
    }
    let part = folder.join(format!(".part-{}", std::process::id()));
    let written = write(&part, library).and_then(|()| fs::rename(&part, &path));
    if written.is_err() {
        // It may not be there at all.
        let _ = fs::remove_file(&part);
    }
    written.with_context(|| {
        format!("cannot write {}; set XDG_CACHE_HOME to a folder that can be written", path.display())
    })?;
    Ok(path)
}

fn write(path: &Path, library: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(library)?;
    file.set_permissions(fs::Permissions::from_mode(0o755))
}

/// A folder that nobody else can write to: whoever can, could change what programs load.
fn folder() -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let own = rustix::process::getuid().as_raw();
    let folder = match cache {
        Some(cache) => cache.join("freshwire"),
        None => std::env::temp_dir().join(format!("freshwire-{own}")),
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(|| {
        format!("cannot make {}; set XDG_CACHE_HOME to a folder that can be written", folder.display())
    })?;
    let found =
        fs::symlink_metadata(&folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    ensure!(
        found.is_dir() && found.uid() == own && found.mode() & 0o022 == 0,
        "{} is not a folder that you alone can write to: remove it, or set XDG_CACHE_HOME",
        folder.display()
    );
    Ok(folder)
}

/// FNV-1a. It only tells versions apart; the contents are compared.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_carries_a_shared_object() {
        let library = LIBRARY.expect("this is the repository");
        assert_eq!(library[..4], *b"\x7fELF");
        assert_eq!(u16::from_le_bytes([library[16], library[17]]), 3, "ET_DYN");
    }

    #[test]
    fn fingerprint_is_fnv_1a() {
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
