//! Child processes that end with their owner.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};

use anyhow::Context as _;

/// A child process. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct ChildGuard(pub(crate) Child);

impl Deref for ChildGuard {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for ChildGuard {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This program with other arguments.
pub(crate) fn own_program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot find this program's own file")?))
}
