//! What a step needs beyond a stable Rust, and how to get it.

use std::path::Path;
use std::process::{Command, Stdio};

/// A requirement that can be missing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// A nightly toolchain with miri and the sources of the standard library.
    Miri,
    /// Python 3.11 and the lab's tests.
    Lab,
    /// What the lab's implementation of A1 needs of Python beyond that.
    Cryptography,
    /// What the lab's model of the receive queue needs of Python.
    Simpy,
    /// Permission to make user and network namespaces.
    Namespaces,
    /// ffmpeg and ffprobe.
    Ffmpeg,
    /// GStreamer's command line with the plugins of players and publishers, and its RTSP server for Python.
    Gstreamer,
    /// What the elements are compiled against.
    GstreamerHeaders,
    /// A browser that runs without a screen.
    Chromium,
    /// Another one. Debian's name for it: Ubuntu has Firefox as a snap alone, which cannot run in the tests' namespaces.
    Firefox,
    /// Wireshark's command line, with Lua.
    Tshark,
    /// What boots a guest with a stock kernel.
    Guests,
    /// What builds a package for Debian.
    Dpkg,
    /// A Python that can make an environment for the package's tests.
    Python,
}

impl Need {
    /// `None` if it is there, otherwise what is missing and what to do.
    pub(super) fn missing(self, root: &Path) -> Option<String> {
        let (there, advice) = match self {
            Self::Miri => {
                (miri(), "miri is missing: rustup toolchain install nightly --component miri,rust-src")
            }
            Self::Lab => {
                if !root.join("lab/tests").is_dir() {
                    return Some("lab/tests is missing".to_owned());
                }
                (
                    succeeds("/usr/bin/python3", &["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]),
                    "Python 3.11 is missing: apt-get install python3",
                )
            }
            Self::Cryptography => (
                succeeds("/usr/bin/python3", &["-c", "import cryptography"]),
                "Python's cryptography is missing: apt-get install python3-cryptography",
            ),
            Self::Simpy => (
                succeeds("/usr/bin/python3", &["-c", "import simpy"]),
                "Python's simpy is missing: apt-get install python3-simpy3",
            ),
            Self::Namespaces => (
                succeeds("unshare", &["--user", "--map-root-user", "--net", "true"]),
                "user namespaces are not permitted: sysctl kernel.unprivileged_userns_clone=1, or see `freshwire doctor`",
            ),
            Self::Ffmpeg => (
                succeeds("ffmpeg", &["-version"]) && succeeds("ffprobe", &["-version"]),
                "ffmpeg is missing: apt-get install ffmpeg",
            ),
            Self::Gstreamer => (
                GSTREAMER_ELEMENTS.iter().all(|element| succeeds("gst-inspect-1.0", &[element]))
                    && succeeds("/usr/bin/python3", &["-c", RTSP_SERVER]),
                "GStreamer is missing or lacks plugins: xtask/install.sh test says which packages",
            ),
            Self::GstreamerHeaders => (
                succeeds("pkg-config", &["--atleast-version=1.22", "gstreamer-1.0", "gstreamer-base-1.0"]),
                "GStreamer's headers are missing: apt-get install libgstreamer1.0-dev pkg-config",
            ),
            Self::Tshark => (succeeds("tshark", &["--version"]), "tshark is missing: apt-get install tshark"),
            Self::Guests => (
                succeeds(&root.join("kernel/guest/run.sh").to_string_lossy(), &["--check"]),
                "a guest cannot be booted: kernel/guest/run.sh --check says what is missing",
            ),
            Self::Python => (
                succeeds(&root.join("xtask/python.sh").to_string_lossy(), &["--check"]),
                "Python 3.11 to 3.13 with venv is missing: apt-get install python3 python3-venv",
            ),
            Self::Dpkg => (
                succeeds("dpkg-deb", &["--version"]) && succeeds("dpkg-architecture", &["--version"]),
                "dpkg-dev is missing: apt-get install dpkg-dev",
            ),
            Self::Chromium => {
                (succeeds("chromium", &["--version"]), "chromium is missing: apt-get install chromium")
            }
            Self::Firefox => (
                succeeds("firefox-esr", &["--version"]),
                "firefox-esr is missing: apt-get install firefox-esr",
            ),
        };
        (!there).then(|| advice.to_owned())
    }
}

/// One element of each package that the tests use.
const GSTREAMER_ELEMENTS: &[&str] =
    &["rtspsrc", "rtspclientsink", "h264parse", "avdec_h264", "x264enc", "videotestsrc", "appsrc"];

const RTSP_SERVER: &str =
    "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer";

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
    fn a_missing_lab_is_said() {
        let reason = Need::missing(Need::Lab, Path::new("/nowhere"));
        assert_eq!(reason.as_deref(), Some("lab/tests is missing"));
    }
}
