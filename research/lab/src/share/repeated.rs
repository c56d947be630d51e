//! The share of what was sent that was lost.

use anyhow::Context as _;
use freshwire_io::tcp::TcpSocket;

/// The share of a connection's bytes that TCP sent again.
pub(super) fn of_tcp(socket: &TcpSocket) -> anyhow::Result<f64> {
    let info = socket.info().context("cannot read what a connection did")?;
    Ok(part(info.bytes_retrans, info.bytes_sent))
}

/// One number as a share of another.
pub(super) fn part(some: u64, all: u64) -> f64 {
    some as f64 / all.max(1) as f64
}
