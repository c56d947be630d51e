//! Building the programs of `research/python/peers`, which link libraries that Freshwire itself does not need.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::scheme;

const SOURCES: [(&str, &str); 4] = [
    ("peer.h", include_str!("../../../../python/peers/peer.h")),
    ("pipe.c", include_str!("../../../../python/peers/pipe.c")),
    ("srt.c", include_str!("../../../../python/peers/srt.c")),
    ("sctp.c", include_str!("../../../../python/peers/sctp.c")),
];

/// A program is named like its scheme.
struct Program {
    scheme: &'static str,
    libraries: &'static [&'static str],
    /// Its packages in Debian.
    packages: &'static str,
}

const PROGRAMS: [Program; 2] = [
    Program { scheme: scheme::SRT, libraries: &["-lsrt"], packages: "gcc libc6-dev libsrt-openssl-dev" },
    Program {
        scheme: scheme::SCTP,
        libraries: &["-lusrsctp", "-lpthread"],
        packages: "gcc libc6-dev libusrsctp-dev",
    },
];

/// Builds in `out` what these schemes need; `None` if they need no program.
pub(in crate::streams) fn build(schemes: &[&str], out: &Path) -> anyhow::Result<Option<PathBuf>> {
    let needed = PROGRAMS.iter().filter(|program| schemes.contains(&program.scheme));
    let mut folder = None;
    for program in needed {
        let folder = folder.get_or_insert_with(|| out.join("peers"));
        std::fs::create_dir_all(&*folder).with_context(|| format!("cannot make {}", folder.display()))?;
        program.build(folder)?;
    }
    Ok(folder)
}

impl Program {
    fn build(&self, folder: &Path) -> anyhow::Result<()> {
        for (name, text) in SOURCES {
            std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
        let source = format!("{}.c", self.scheme);
        let built = Command::new("cc")
            .current_dir(folder)
            .args(["-O2", "-Wall", "-Wextra", "-o", self.scheme, &source, "pipe.c"])
            .args(self.libraries)
            .output()
            .context("cannot run the C compiler cc")?;
        let said = String::from_utf8_lossy(&built.stderr);
        anyhow::ensure!(
            built.status.success(),
            "cannot build the ends of {}; on Debian: apt-get install {}\n{said}",
            scheme::label(self.scheme),
            self.packages
        );
        Ok(())
    }
}
