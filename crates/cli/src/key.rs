//! `freshwire key`: the key of an A1 end, before that end runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::a1;
use crate::output::{print, say};

/// Make the key of an A1 end, and print its public key, which the other end needs.
///
/// The file keeps the private key and is readable by its owner alone. One that is there already is left as it is, and its public key
/// printed.
#[derive(Args)]
#[command(after_help = "\
Example:
  freshwire key viewer.key                                                     prints KEY
  freshwire recv --carrier a1 --listen 5000 --key viewer.key
  freshwire send --carrier a1 --to viewer:5000 --peer-key KEY h264 camera.h264

Exit code: 0 the key is in the file, 2 it cannot be read or written.")]
pub(crate) struct KeyArgs {
    /// The file that keeps the private key; what --key takes.
    file: PathBuf,
}

/// Runs `freshwire key`.
pub(crate) fn run(args: &KeyArgs) -> anyhow::Result<ExitCode> {
    let was_there = args.file.exists();
    let key = a1::kept_key(&args.file)?;
    if !was_there {
        say(&format!(
            "the private key is in {}; keep it there, and give this to the other end:",
            args.file.display()
        ));
    }
    print(&key.public_key().to_string())?;
    Ok(ExitCode::SUCCESS)
}
