use std::io::{self, IoSliceMut};

use quinn_udp::RecvMeta;

use super::datagram::{Incoming, from_quinn, plain};
use crate::PageBuffer;

/// The most that one coalesced arrival holds: the IP layer's own limit.
const SLOT_BYTES: usize = 1 << 16;

/// Arrivals that one system call fetches at most, each of one datagram or of up to 64 that the kernel put
/// together. Chosen, not measured.
const SLOTS: usize = 8;

/// Memory for arriving datagrams, 512 KiB, to be used again and again and by several sockets in turn.
pub struct ReceiveBuffer {
    bytes: PageBuffer,
    metas: [RecvMeta; SLOTS],
    filled: usize,
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        Self { bytes: PageBuffer::new(SLOTS * SLOT_BYTES), metas: [RecvMeta::default(); SLOTS], filled: 0 }
    }
}

impl ReceiveBuffer {
    /// What the last [`receive`](super::UdpSocket::receive) brought, datagram by datagram in the order of arrival.
    pub fn datagrams(&mut self) -> impl Iterator<Item = Incoming<'_>> {
        let slots = self.bytes.chunks_exact_mut(SLOT_BYTES).zip(&self.metas);
        slots.take(self.filled).flat_map(|(slot, meta)| {
            let (bytes, _) = slot.split_at_mut(meta.len.min(SLOT_BYTES));
            let (from, to) = (plain(meta.addr), meta.dst_ip.map(|ip| ip.to_canonical()));
            let datagram = move |bytes| Incoming { from, to, ecn: meta.ecn.map(from_quinn), bytes };
            // An empty datagram is one too.
            let empty = bytes.is_empty().then(|| datagram(&mut []));
            bytes.chunks_mut(meta.stride.max(1)).map(datagram).chain(empty)
        })
    }

    /// Whether more may have arrived than it holds.
    pub fn is_full(&self) -> bool {
        self.filled == SLOTS
    }

    /// Lets `receive` fill it. False: nothing was there.
    pub(super) fn fill(
        &mut self,
        receive: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let mut slots = self.bytes.chunks_exact_mut(SLOT_BYTES);
        let mut slices: [_; SLOTS] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        self.filled = match receive(&mut slices, &mut self.metas) {
            Ok(filled) => filled,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        Ok(self.filled > 0)
    }
}

impl std::fmt::Debug for ReceiveBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ReceiveBuffer").field("filled", &self.filled).finish_non_exhaustive()
    }
}
