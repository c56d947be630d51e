//! Reserved space of the arena: a payload is read, received or encoded into it, and committed without a copy.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use freshwire_record::Meta;

use crate::blocks::Stored;
use crate::error::{EditError, PushError};
use crate::producer::Producer;
use crate::pushed::Pushed;
use crate::region::ProducerRole;

/// Space for one payload in the arena, from [`Producer::reserve`]. Its bytes are written in place, and
/// [`Producer::commit`] or [`Producer::store_reserved`] makes a record of them without a copy.
///
/// The space is a run of blocks, which need not be adjacent. Bytes are filled from the beginning:
///
/// | source | call |
/// |---|---|
/// | a file, socket or pipe | [`read_from`](Self::read_from): one system call, which writes into the arena |
/// | any [`Read`](io::Read) | [`io::copy`] into the reservation, which copies from a small buffer; or [`fill`](Self::fill) |
/// | an encoder or a foreign function | [`pieces`](Self::pieces), then [`set_len`](Self::set_len) |
/// | bytes in memory | [`write`](io::Write::write), which copies |
///
/// Dropping it gives the space back. A reservation keeps the producer's role, and the mapping, until it is gone. It may
/// be filled on another thread.
#[derive(Debug)]
#[must_use = "a reservation that is not committed is given back"]
pub struct Reservation {
    role: Arc<ProducerRole>,
    chain: Stored,
    /// Bytes that are filled.
    len: u32,
    /// The block of byte `len`.
    block: u32,
}

impl Reservation {
    /// Most bytes that it takes.
    pub fn capacity(&self) -> usize {
        self.chain.len() as usize
    }

    /// Bytes that are filled: the length of the record.
    #[expect(clippy::len_without_is_empty, reason = "an empty payload is nothing special")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Sets how many bytes are filled, after they were written through [`pieces`](Self::pieces), or to fill again from
    /// there. Bytes that were never written have any value.
    ///
    /// # Errors
    ///
    /// [`EditError::OutOfRange`] above the [capacity](Self::capacity).
    pub fn set_len(&mut self, len: usize) -> Result<(), EditError> {
        if len > self.capacity() {
            return Err(EditError::OutOfRange);
        }
        (self.len, self.block) = (0, self.chain.first());
        self.advance(len);
        Ok(())
    }

    /// The space behind the filled bytes, in order. Adjacent blocks are one piece. The addresses are valid until the
    /// reservation is committed or dropped.
    ///
    /// Another process that has the region can change these bytes at any time, although none has a reason to. Form a
    /// reference to them only where that is ruled out.
    pub fn pieces(&mut self) -> impl Iterator<Item = NonNull<[u8]>> + '_ {
        let mut at = self.len as usize;
        let mut block = self.block;
        std::iter::from_fn(move || {
            let (start, mut len) = self.part(block, at)?;
            at += len;
            while at < self.capacity() {
                block = self.chain.after(block)?;
                let (next, more) = self.part(block, at)?;
                // SAFETY: the address behind a part of the arena is inside of the arena, or behind its last byte.
                if unsafe { start.add(len) } != next {
                    break;
                }
                len += more;
                at += more;
            }
            Some(NonNull::slice_from_raw_parts(start, len))
        })
    }

    /// The part of `block` from byte `at` of the payload on.
    fn part(&self, block: u32, at: usize) -> Option<(NonNull<u8>, usize)> {
        let block_bytes = self.role.block_bytes();
        let within = at % block_bytes;
        let len = (block_bytes - within).min(self.capacity().checked_sub(at)?);
        if len == 0 {
            return None;
        }
        let start = self.role.region.inner().address_to_write(block, within..within + len)?;
        Some((start, len))
    }

    /// Reads from a file, socket or pipe into the space behind the filled bytes, with one call of `read` or `readv`. Returns the
    /// number of bytes; 0 at the end of the source, and when the space is full. A datagram fills it as one read.
    ///
    /// # Errors
    ///
    /// If the system call fails. Nothing is filled then.
    #[cfg(not(loom))]
    pub fn read_from(&mut self, source: impl std::os::fd::AsFd) -> io::Result<usize> {
        let pieces = self.pieces().take(MAX_PIECES);
        let parts: Vec<libc::iovec> = pieces
            .map(|piece| libc::iovec { iov_base: piece.as_ptr().cast(), iov_len: piece.len() })
            .collect();
        if parts.is_empty() {
            return Ok(0);
        }
        let source = std::os::fd::AsRawFd::as_raw_fd(&source.as_fd());
        loop {
            // SAFETY: the descriptor is open for the call. Each part is memory of the arena that belongs to this
            // reservation alone, and no reference to it exists.
            let read = unsafe { libc::readv(source, parts.as_ptr(), parts.len() as libc::c_int) };
            if let Ok(read) = usize::try_from(read) {
                self.advance(read);
                return Ok(read);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Has `reader` write into the space behind the filled bytes, with one call of
    /// [`read_vectored`](io::Read::read_vectored). Returns the number of bytes.
    ///
    /// # Safety
    ///
    /// Until the call returns, no other process writes to this space. Honest processes never do, and a region whose file was
    /// not [handed out](crate::Region::as_fd) has no others.
    ///
    /// # Errors
    ///
    /// If `reader` fails, and [`InvalidData`](io::ErrorKind::InvalidData) if it reports more bytes than there is space.
    pub unsafe fn fill(&mut self, mut reader: impl io::Read) -> io::Result<usize> {
        let slice = |piece: NonNull<[u8]>| {
            // SAFETY: the memory belongs to this reservation, which is borrowed meanwhile. No other process writes to it,
            // as the caller promises. Pieces do not overlap.
            io::IoSliceMut::new(unsafe { &mut *piece.as_ptr() })
        };
        let mut slices: Vec<_> = self.pieces().take(MAX_PIECES).map(slice).collect();
        let space: usize = slices.iter().map(|slice| slice.len()).sum();
        let read = reader.read_vectored(&mut slices)?;
        if read > space {
            let words = format!("the reader reports {read} bytes in a space of {space}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        self.advance(read);
        Ok(read)
    }

    /// Goes on by `bytes`, at most to the capacity.
    fn advance(&mut self, bytes: usize) {
        let block_bytes = self.role.block_bytes();
        let mut within = self.len() % block_bytes + bytes;
        self.len += bytes as u32;
        while within >= block_bytes {
            // There is none behind the last.
            let Some(next) = self.chain.after(self.block) else { break };
            self.block = next;
            within -= block_bytes;
        }
    }
}

/// Fills the space with copies; a reservation that is full takes 0 bytes.
impl io::Write for Reservation {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let block_bytes = self.role.block_bytes();
        let mut rest = &from[..from.len().min(self.capacity() - self.len())];
        let wanted = rest.len();
        while !rest.is_empty() {
            let within = self.len() % block_bytes;
            let (now, later) = rest.split_at(rest.len().min(block_bytes - within));
            if !self.role.region.inner().copy_in(self.block, within, now) {
                break;
            }
            self.advance(now.len());
            rest = later;
        }
        Ok(wanted - rest.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Pieces of one system call: IOV_MAX of Linux.
const MAX_PIECES: usize = 1024;

impl Producer {
    /// Reserves space in the arena for a payload of up to `len` bytes, which is written in place and then
    /// [committed](Self::commit). No system call, no allocation. A reservation holds blocks of the arena and no slots: the
    /// commit may still find the ring [full](Self::check_room).
    ///
    /// # Errors
    ///
    /// [`PushError::OutOfBlocks`] without space, [`PushError::TooLarge`] for a payload that never fits.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation, PushError> {
        let span = self.span(len)?;
        self.blocks.collect();
        self.make_blocks(span)?;
        let chain = self.blocks.chain(span, len as u32).ok_or(PushError::OutOfBlocks)?;
        let block = chain.first();
        Ok(Reservation { role: Arc::clone(&self.role), chain, len: 0, block })
    }

    /// Puts the filled bytes of a reservation on a ring, as [`push`](Self::push) does with a copy. The rest of the space is
    /// given back, and the reservation is used up. After an error it is as it was, and can be committed again.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] without slots, [`PushError::Closed`] after the sender's end, [`PushError::NoSuchRing`],
    /// [`PushError::ForeignPayload`] for a reservation of another producer, or one that was committed before.
    pub fn commit(
        &mut self,
        ring: usize,
        reservation: &mut Reservation,
        meta: &Meta,
    ) -> Result<Pushed, PushError> {
        let meta = &self.number(meta);
        if !self.blocks.owns(&reservation.chain) {
            return Err(PushError::ForeignPayload);
        }
        let room = self.make_room(ring, reservation.len())?;
        self.clear_slots(ring, room);
        let len = reservation.len;
        let first = self.take_chain(reservation).into_first();
        self.place(ring, room, first, len, meta, false);
        Ok(Pushed { index: room.index, seq: meta.seq, notify: self.wake_for_push(ring) })
    }

    /// Makes the filled bytes of a reservation a stored payload, to be pushed to several rings. The rest of the space is
    /// given back.
    ///
    /// # Errors
    ///
    /// [`PushError::ForeignPayload`] for a reservation of another producer, or one that was committed before. It is given back.
    pub fn store_reserved(&mut self, mut reservation: Reservation) -> Result<Stored, PushError> {
        if !self.blocks.owns(&reservation.chain) {
            return Err(PushError::ForeignPayload);
        }
        Ok(self.take_chain(&mut reservation))
    }

    /// The filled blocks of a reservation, which is used up.
    fn take_chain(&mut self, reservation: &mut Reservation) -> Stored {
        let span = reservation.len().div_ceil(self.region.config().block_bytes as usize).max(1);
        self.blocks.cut(&reservation.chain, span);
        let chain = reservation.chain.take(reservation.len);
        reservation.len = 0;
        chain
    }
}
