//! Connections of this process with itself, and somebody who reads them empty.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use anyhow::Context as _;
use freshwire_io::PageBuffer;
use freshwire_record::Timestamp;

/// Bytes that the reader asks for at a time.
const READ_BYTES: usize = 256 << 10;

/// A connection on loopback: the end that sends, and the end that receives.
pub(super) fn pair() -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    pair_over(&listener)
}

/// A connection on loopback with this congestion control at the end that sends.
pub(super) fn pair_with(congestion: Option<&str>) -> anyhow::Result<(TcpStream, TcpStream)> {
    let (near, far) = pair()?;
    if let Some(name) = congestion {
        rustix::net::sockopt::set_tcp_congestion(&near, name)
            .with_context(|| format!("this kernel has no congestion control {name:?}"))?;
    }
    Ok((near, far))
}

/// A connection to this listener.
pub(super) fn pair_over(listener: &TcpListener) -> anyhow::Result<(TcpStream, TcpStream)> {
    let address = listener.local_addr().context("cannot tell the listener's address")?;
    let near = TcpStream::connect(address).context("cannot connect on loopback")?;
    let (far, _) = listener.accept().context("cannot accept on loopback")?;
    Ok((near, far))
}

/// A thread that reads a connection to its end.
pub(super) struct Drain(JoinHandle<io::Result<(u64, Timestamp)>>);

impl Drain {
    pub(super) fn start(mut stream: TcpStream) -> Self {
        Self(std::thread::spawn(move || {
            let mut buffer = PageBuffer::new(READ_BYTES);
            let mut bytes = 0;
            loop {
                match stream.read(&mut buffer)? {
                    0 => return Ok((bytes, freshwire_io::now())),
                    read => bytes += read as u64,
                }
            }
        }))
    }

    /// How many bytes came, and when the stream ended.
    pub(super) fn finish(self) -> anyhow::Result<(u64, Timestamp)> {
        let end = self.0.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        end.context("cannot read on loopback")
    }
}
