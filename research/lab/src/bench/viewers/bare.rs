//! The baseline: one thread that writes each access unit's bytes to each connection, from one buffer.

use std::io::{self, BufRead as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::scenario::wait_until;

/// The writes; one JSON line on standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// Where to listen.
    pub(super) address: SocketAddr,
    /// Bytes of one write after the other, to every connection; then from the beginning.
    pub(super) sizes: Vec<usize>,
    /// From one write to the next.
    pub(super) picture: Duration,
}

/// Serves until it is killed.
pub(super) fn run() -> anyhow::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("cannot read the task")?;
    let task: Task = serde_json::from_str(&line).context("cannot read the task")?;
    let listener = TcpListener::bind(task.address).context("cannot listen on loopback")?;
    listener.set_nonblocking(true).context("cannot set the listener up")?;
    let payload = vec![7; task.sizes.iter().copied().max().context("there is nothing to write")?];
    let mut viewers = Vec::new();
    let mut due = freshwire_io::now();
    for &size in task.sizes.iter().cycle() {
        due += task.picture;
        wait_until(due);
        while let Ok((viewer, _)) = listener.accept() {
            viewer.set_nodelay(true).context("cannot set a connection up")?;
            viewers.push(viewer);
        }
        let unit = payload.get(..size).unwrap_or_default();
        viewers.retain_mut(|viewer| viewer.write_all(unit).is_ok());
    }
    Ok(())
}
