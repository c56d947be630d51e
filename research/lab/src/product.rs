//! The `freshwire` command, which some experiments run as a child process.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

const NAME: &str = "freshwire";

/// The command beside this program's own file.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    beside(&own)
}

fn beside(own: &Path) -> anyhow::Result<PathBuf> {
    let program = own.with_file_name(NAME);
    ensure!(
        program.is_file(),
        "{} is missing: build it into the same folder with `cargo build --package freshwire-cli`, with `--release` if this \
         program is a release build",
        program.display()
    );
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_command_is_named_with_what_builds_it() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("freshwire-lab");
        let error = beside(&own).unwrap_err().to_string();
        assert!(
            error.contains("freshwire is missing") && error.contains("--package freshwire-cli"),
            "{error}"
        );
        std::fs::write(folder.path().join(NAME), "").unwrap();
        assert_eq!(beside(&own).unwrap(), folder.path().join(NAME));
    }
}
