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
    check(&folder, own)
}

/// Returns the folder's real path if only this user and root can write to it or replace it: the rule of
/// OpenSSH's `StrictModes`. A folder with the sticky bit counts as well, since nobody can replace another
/// user's entry in it.
fn check(folder: &Path, own: u32) -> anyhow::Result<PathBuf> {
    const WRITABLE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let look = |path: &Path| {
        fs::symlink_metadata(path).with_context(|| format!("cannot look at {}", path.display()))
    };
    let found = look(folder)?;
    ensure!(
        found.is_dir() && found.uid() == own && found.mode() & WRITABLE == 0,
        "{} is not a folder that you alone can write to: remove it, or set XDG_CACHE_HOME",
        folder.display()
    );
    let folder = fs::canonicalize(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    for parent in folder.ancestors().skip(1) {
        let found = look(parent)?;
        let is_kept = found.mode() & WRITABLE == 0 || found.mode() & STICKY != 0;
        ensure!(
            [0, own].contains(&found.uid()) && is_kept,
            "others can replace {}, because they can write to {}: chmod go-w it, or set XDG_CACHE_HOME",
            folder.display(),
            parent.display()
        );
    }
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
    fn no_folder_above_the_library_may_be_writable_by_others() {
        let temporary = tempfile::tempdir().unwrap();
        let own = rustix::process::getuid().as_raw();
        let folder = temporary.path().join("home/cache/freshwire");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
        assert_eq!(check(&folder, own).unwrap(), fs::canonicalize(&folder).unwrap());
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let link = temporary.path().join("link");
        std::os::unix::fs::symlink(folder.parent().unwrap(), &link).unwrap();
        for above in folder.ancestors().take(3) {
            for (mode, is_refused) in [(0o770, true), (0o707, true), (0o777, true), (0o755, false)] {
                set(above, mode);
                assert_eq!(check(&folder, own).is_err(), is_refused, "{} {mode:o}", above.display());
                assert_eq!(
                    check(&link.join("freshwire"), own).is_err(),
                    is_refused,
                    "{mode:o} behind a link"
                );
            }
            set(above, 0o700);
        }
        set(&temporary.path().join("home"), 0o1777);
        assert!(check(&folder, own).is_ok(), "as /tmp is");
        assert!(check(&folder, own + 1).is_err(), "of another user");
    }

    #[test]
    fn fingerprint_is_fnv_1a() {
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
