//! Memory of messages that were received, used again once their owners have let go of them: fresh memory costs the kernel a
//! page fault for each page.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// The pool of an endpoint. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Free>>);

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A payload that goes back to its pool.
struct Pooled {
    bytes: Vec<u8>,
    pool: Pool,
}

impl Pool {
    /// An empty buffer for a payload of about `bytes` bytes.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        if bytes < LEAST {
            return Vec::with_capacity(bytes);
        }
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(buffer) = free.buffers.pop() else { return Vec::with_capacity(bytes) };
        free.bytes -= buffer.capacity();
        drop(free);
        if buffer.capacity() < bytes { Vec::with_capacity(bytes) } else { buffer }
    }

    /// A payload as the application gets it.
    pub(crate) fn payload(&self, bytes: Vec<u8>) -> Bytes {
        if bytes.capacity() < LEAST {
            return bytes.into();
        }
        Bytes::from_owner(Pooled { bytes, pool: self.clone() })
    }
}

/// Adds the bytes of a packet to those of a message, a piece at a time.
pub(crate) fn append(message: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(PIECE) {
        message.extend_from_slice(piece);
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.bytes + bytes.capacity() <= MOST {
            free.bytes += bytes.capacity();
            free.buffers.push(bytes);
        }
    }
}

/// The C library copies more than this at once in a way that some processors are slow at; see `freshwire-ring`'s `PIECE`.
const PIECE: usize = 2 << 10;
/// Smaller payloads are cheap to allocate. Chosen, not measured.
const LEAST: usize = 2 << 10;
/// Bytes that an endpoint keeps at most. Chosen, not measured.
const MOST: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_used_again_once_it_was_let_go() {
        let pool = Pool::default();
        let mut first = pool.take(5000);
        first.extend([7; 5000]);
        let place = first.as_ptr();
        let payload = pool.payload(first);
        let clone = payload.clone();
        drop(payload);
        let other = pool.take(5000);
        assert_ne!(other.as_ptr(), place, "somebody has it still");
        assert_eq!(clone[..], [7; 5000]);
        drop(clone);
        let again = pool.take(4000);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn kept_memory_is_bounded() {
        let pool = Pool::default();
        let payloads: Vec<Bytes> = (0..10).map(|_| pool.payload(pool.take(MOST / 3))).collect();
        drop(payloads);
        let free = pool.0.lock().unwrap();
        assert_eq!((free.buffers.len(), free.bytes), (3, MOST / 3 * 3));
    }
}
