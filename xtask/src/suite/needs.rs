//! What a step needs beyond a stable Rust, and how to get it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::requirements::{Kind, TABLE, parse};

/// A requirement that can be missing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// A nightly toolchain with miri and the sources of the standard library.
    Miri,
    /// Python 3.11 and the lab's tests.
    Lab,
    /// Permission to make user and network namespaces.
    Namespaces,
    /// What boots a guest with a stock kernel.
    Guests,
    /// A Rust for the binding to relays, which needs a newer one than the rest.
    Relays,
    /// Rows of the table of requirements.
    Rows(&'static [(Kind, &'static str)]),
    /// Everything that the table has for `make test`: what some test program may call.
    All,
}

/// What the lab's implementation of A1 needs of Python.
pub(super) const CRYPTOGRAPHY: Need = Need::Rows(&[(Kind::Python, "cryptography")]);
/// What the lab's model of the receive queue needs of Python.
pub(super) const SIMPY: Need = Need::Rows(&[(Kind::Python, "simpy")]);
/// Two machines that ssh reaches, in namespaces.
pub(super) const SSH: Need = Need::Rows(&[(Kind::Program, "ssh"), (Kind::Program, "dropbear")]);
pub(super) const FFMPEG: Need = Need::Rows(&[(Kind::Program, "ffmpeg"), (Kind::Program, "ffprobe")]);
/// What the elements are compiled against.
pub(super) const GSTREAMER_HEADERS: Need =
    Need::Rows(&[(Kind::PkgConfig, "gstreamer-1.0>=1.22"), (Kind::PkgConfig, "gstreamer-base-1.0>=1.22")]);
/// What builds a package for Debian.
pub(super) const DPKG: Need =
    Need::Rows(&[(Kind::Program, "dpkg-deb"), (Kind::Program, "dpkg-architecture")]);
/// A Python that can make an environment for the package's tests.
pub(super) const PYTHON: Need = Need::Rows(&[(Kind::Script, "xtask/python.sh")]);

impl Need {
    /// `None` if it is there, otherwise what is missing and what to do.
    pub(super) fn missing(self, root: &Path) -> Option<String> {
        let (there, advice) = match self {
            Self::Miri => {
                (miri(), "miri is missing: rustup toolchain install nightly --component miri,rust-src")
            }
            Self::Lab => {
                if !root.join("research/python/tests").is_dir() {
                    return Some("research/python/tests is missing".to_owned());
                }
                (
                    succeeds("/usr/bin/python3", &["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]),
                    "Python 3.11 is missing: apt-get install python3",
                )
            }
            Self::Namespaces => (
                succeeds("unshare", &["--user", "--map-root-user", "--net", "true"]),
                "user namespaces are not permitted: sysctl kernel.unprivileged_userns_clone=1, or see `freshwire doctor`",
            ),
            Self::Guests => (
                succeeds(&root.join("host/kernel/guest/run.sh").to_string_lossy(), &["--check"]),
                "a guest cannot be booted: host/kernel/guest/run.sh --check says what is missing",
            ),
            Self::Relays => {
                (builds_relays(root), "Rust 1.95 is missing (freshwire-moq): rustup update stable")
            }
            Self::Rows(rows) => return missing_row(root, rows),
            Self::All => return missing_at_all(root),
        };
        (!there).then(|| advice.to_owned())
    }
}

/// Whether this Rust compiles the binding to relays.
fn builds_relays(root: &Path) -> bool {
    let manifest = std::fs::read_to_string(root.join("crates/moq/Cargo.toml")).unwrap_or_default();
    let needed = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let output = Command::new("rustc").arg("--version").stdin(Stdio::null()).output();
    let said = output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    let installed = said.strip_prefix("rustc ").and_then(minor);
    needed.map(|text| text.trim_matches('"')).and_then(minor).is_some_and(|needed| installed >= Some(needed))
}

/// The second number of a version: of Rust 1, the one that counts.
fn minor(version: &str) -> Option<u32> {
    let number = version.strip_prefix("1.")?.split(|c: char| !c.is_ascii_digit()).next()?;
    number.parse().ok()
}

/// The first of these rows of the table that is missing. `xtask/install.sh` knows how to ask for each kind.
fn missing_row(root: &Path, rows: &[(Kind, &str)]) -> Option<String> {
    let install = root.join("xtask/install.sh");
    let is_there = |kind: Kind, name: &str| succeeds(&install.to_string_lossy(), &["has", kind.word(), name]);
    let (kind, name) = rows.iter().find(|(kind, name)| !is_there(*kind, name))?;
    let table = std::fs::read_to_string(root.join(TABLE)).unwrap_or_default();
    let rows = parse(&table).unwrap_or_default();
    let row = rows.iter().find(|row| row.kind == *kind && row.name == *name);
    let packages = row.map_or(String::new(), |row| row.packages.replace(',', " "));
    Some(format!("the {} {name} is missing: apt-get install {packages}", kind.word()))
}

/// What `xtask/install.sh ask test` misses.
fn missing_at_all(root: &Path) -> Option<String> {
    let output =
        Command::new(root.join("xtask/install.sh")).args(["ask", "test"]).stdin(Stdio::null()).output();
    let said = output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    let missing: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("MISSING")).map(str::trim).collect();
    (!missing.is_empty())
        .then(|| format!("missing: {}; `xtask/install.sh test` installs it", missing.join(", ")))
}

/// Is miri there, or can it be installed? An existing nightly is kept as it is.
fn miri() -> bool {
    const WITH_SOURCES: &str =
        "cargo miri --version && test -d \"$(rustc --print sysroot)/lib/rustlib/src/rust\"";
    let works = || succeeds("rustup", &["run", "nightly", "sh", "-c", WITH_SOURCES]);
    if works() {
        return true;
    }
    let add = ["component", "add", "--toolchain", "nightly", "miri", "rust-src"];
    let install = ["toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"];
    let has_nightly = succeeds("rustup", &["run", "nightly", "rustc", "--version"]);
    succeeds("rustup", if has_nightly { &add } else { &install }) && works()
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_and_a_failing_one_do_not_succeed() {
        assert!(succeeds("true", &[]));
        assert!(!succeeds("false", &[]));
        assert!(!succeeds("a-program-that-is-nowhere", &[]));
    }

    #[test]
    fn a_missing_row_is_said_with_its_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        assert_eq!(missing_row(root, &[(Kind::Program, "sh"), (Kind::Program, "cat")]), None);
        let reason = missing_row(root, &[(Kind::Program, "sh"), (Kind::Program, "no-such-program")]);
        assert_eq!(reason.as_deref(), Some("the program no-such-program is missing: apt-get install "));
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(
            ["1.95", "1.95.0 (abc)", "1.100.1-nightly", "2.0"].map(minor),
            [Some(95), Some(95), Some(100), None]
        );
        assert!(Need::Relays.missing(Path::new("/nowhere")).is_some(), "no crate, no relays");
    }

    #[test]
    fn a_missing_lab_is_said() {
        let reason = Need::missing(Need::Lab, Path::new("/nowhere"));
        assert_eq!(reason.as_deref(), Some("research/python/tests is missing"));
    }
}
