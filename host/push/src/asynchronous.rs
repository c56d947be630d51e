//! The receiver in asynchronous programs.

use std::io;
use std::net::SocketAddr;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::receiver::{Received, Receiver};

/// A [`Receiver`] whose receives are awaited. Needs a Tokio runtime with I/O enabled.
#[derive(Debug)]
pub struct AsyncReceiver {
    inner: AsyncFd<Receiver>,
}

impl AsyncReceiver {
    /// Registers a receiver with the runtime.
    ///
    /// # Errors
    ///
    /// If the runtime's poll refuses the descriptor.
    ///
    /// # Panics
    ///
    /// Outside a runtime with I/O enabled.
    pub fn new(receiver: Receiver) -> io::Result<Self> {
        // SAFETY: the receiver owns the descriptor, which stays open and the same for as long as the receiver lives.
        Ok(Self { inner: unsafe { AsyncFd::register_with_interest(receiver, Interest::READABLE) }? })
    }

    /// The receiver, for its statistics and its socket.
    pub fn get_ref(&self) -> &Receiver {
        self.inner.get_ref()
    }

    /// Receives a datagram. Cancelling the future loses nothing.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            // A pushed datagram needs neither a system call nor the runtime.
            match self.inner.get_ref().try_receive(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            let mut ready = self.inner.readable().await?;
            if let Ok(result) = ready.try_io(|inner| inner.get_ref().try_receive(buffer)) {
                return result;
            }
        }
    }

    /// Receives a datagram and where it came from.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.receive(buffer).await?;
        Ok((received.len, received.source))
    }
}
