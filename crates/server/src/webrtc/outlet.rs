use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Mutex, PoisonError};

use freshwire_io::tcp::TcpSocket;
use tokio::net::TcpStream;

/// Unsent bytes in the kernel above which packets are dropped, as a full queue on the way would drop them.
const MOST_UNSENT: u32 = 16 << 10;

/// The writing side of a connection.
pub(super) struct TcpOutlet {
    socket: TcpSocket,
    /// The rest of a packet of which the kernel has taken a part.
    rest: Mutex<Vec<u8>>,
}

impl TcpOutlet {
    pub(super) fn new(socket: &TcpStream) -> io::Result<Self> {
        let clone = std::net::TcpStream::from(socket.as_fd().try_clone_to_owned()?);
        let socket = TcpSocket::new(clone)?;
        socket.set_notsent_lowat(MOST_UNSENT)?;
        Ok(Self { socket, rest: Mutex::default() })
    }

    /// Sends a packet, or drops it if the connection takes nothing now.
    pub(super) fn send(&self, packet: &[u8]) {
        let Ok(length) = u16::try_from(packet.len()) else { return };
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        if rest.is_empty() {
            rest.extend(length.to_be_bytes());
            rest.extend_from_slice(packet);
            // Nothing of it was taken: it can be dropped as a whole.
            if !self.write(&mut rest) {
                rest.clear();
            }
        } else {
            self.write(&mut rest);
        }
    }

    /// Writes what is there. Returns `false` if nothing was taken. The reading side notices an error.
    fn write(&self, rest: &mut Vec<u8>) -> bool {
        let taken = self.socket.write(rest).ok().flatten().unwrap_or(0);
        rest.drain(..taken.min(rest.len()));
        taken > 0
    }
}
