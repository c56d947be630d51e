use std::io::IoSliceMut;

use quinn_udp::RecvMeta;

/// The most that one coalesced arrival holds: the IP layer's own limit.
const SLOT_BYTES: usize = 1 << 16;

/// Arrivals that one system call fetches at most, each of one datagram or of up to 64 that the kernel put together.
const SLOTS: usize = 8;

/// Memory for arriving datagrams, 512 KiB, to be used again and again and by several sockets in turn.
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    metas: [RecvMeta; SLOTS],
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        Self { bytes: vec![0; SLOTS * SLOT_BYTES], metas: [RecvMeta::default(); SLOTS] }
    }
}

impl ReceiveBuffer {
    pub(super) fn parts(&mut self) -> ([IoSliceMut<'_>; SLOTS], &mut [RecvMeta; SLOTS]) {
        let mut slots = self.bytes.chunks_exact_mut(SLOT_BYTES);
        let slices = std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        (slices, &mut self.metas)
    }
}

impl std::fmt::Debug for ReceiveBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ReceiveBuffer").field("bytes", &self.bytes.len()).finish()
    }
}
