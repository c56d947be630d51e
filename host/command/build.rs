//! Builds the library that `freshwire-host push` preloads, so that the command carries it: `cargo install` installs executables only.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let own = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let package = own.join("../preload");
    for source in ["preload/src", "preload/Cargo.toml", "push/src", "../crates/record/src"] {
        println!("cargo::rerun-if-changed={}", own.join("..").join(source).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(carries_preload)");
    // A package of a registry has no folder beside it, and Cargo cannot build a library for another package to embed.
    if !package.exists() {
        return;
    }
    println!("cargo::rustc-cfg=carries_preload");
    let library = build(&package.join("Cargo.toml"), &variable("TARGET"));
    println!("cargo::rustc-env=FRESHWIRE_PRELOAD={}", library.display());
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Builds the package in a target folder of its own: Cargo holds the lock of the outer one meanwhile.
fn build(manifest: &Path, target: &str) -> PathBuf {
    let folder = PathBuf::from(variable("OUT_DIR")).join("preload");
    // Programs: own
    let mut command = Command::new(variable("CARGO"));
    command.args(["build", "--release", "--quiet", "--manifest-path"]).arg(manifest);
    command.args(["--target", target, "--target-dir"]).arg(&folder);
    // The outer build may be one of clippy's, which generates no code.
    command.env_remove("RUSTC_WORKSPACE_WRAPPER").env_remove("CLIPPY_ARGS");
    command.env("CARGO_PROFILE_RELEASE_STRIP", "true").env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    let status = command.status().unwrap_or_else(|error| panic!("cannot run cargo: {error}"));
    assert!(status.success(), "the library of {} was not built: {status}", manifest.display());
    folder.join(target).join("release/libfreshwire_preload.so")
}
