//! Needs of tests: programs, and conditions with a deadline.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Whether a program that a test needs answers to this argument. In CI it has to.
pub(crate) fn has(program: &str, argument: &str) -> bool {
    skip_without(program, Command::new(program).arg(argument).output().is_ok_and(|it| it.status.success()))
}

/// Whether a program that a test needs is installed. In CI it has to be.
pub(crate) fn is_there(program: &str) -> bool {
    skip_without(program, Command::new("which").arg(program).output().is_ok_and(|it| it.status.success()))
}

fn skip_without(program: &str, found: bool) -> bool {
    assert!(found || std::env::var_os("CI").is_none(), "{program} is needed in CI");
    if !found {
        println!("skipped: {program} is not on this machine");
    }
    found
}

/// Waits until `done`, up to `patience`; then it panics with `what`.
pub(crate) fn wait_for(what: &str, patience: Duration, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < patience, "{what} takes longer than {patience:?}");
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program that ends with its owner.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
