//! The network of a test program without harness, which creates its namespaces while there is a single thread.

use std::process::ExitCode;

use crate::Namespaces;

/// Two namespaces for a test.
///
/// # Errors
///
/// With the status to exit with, after a line that says why: success where the machine does not permit namespaces, but a failure in CI
/// and for any other reason.
pub fn namespaces() -> Result<Namespaces, ExitCode> {
    Namespaces::create().map_err(|error| {
        let is_skipped = error.is_not_permitted() && std::env::var_os("CI").is_none();
        println!("{}: {error}", if is_skipped { "skipped" } else { "failed" });
        if is_skipped { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    })
}
