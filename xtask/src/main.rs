//! Checks of the workspace itself: `cargo xtask check` and `cargo xtask test`.
#![forbid(unsafe_code)]

mod check;
mod documents;
mod requirements;
mod suite;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
// For their features: Cargo.toml.
use {base64 as _, num_traits as _, quinn_udp as _, slab as _, tokio as _};

const USAGE: &str = "\
usage: cargo xtask check           the rules of the workspace: dependencies, sizes, unsafe code, texts
       cargo xtask test [--product | --rest] [STEP...]
                                   every step of both gates, of the product's or of the rest, or the named ones
       cargo xtask test --list     the steps and what each runs";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> anyhow::Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root()?;
    match arguments.split_first() {
        Some((command, [])) if command == "check" => check::run(&root),
        Some((command, steps)) if command == "test" => suite::run(&root, steps),
        _ => bail!("no such command\n{USAGE}"),
    }
}

fn workspace_root() -> anyhow::Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = own.parent().context("xtask has no parent folder")?;
    Ok(root.to_owned())
}
