//! From the program's memory into the buffers of a receive, as the kernel would have done it.

use std::mem::size_of;

use freshwire_push::queue::{Head, Queue};
use freshwire_push::sys::{CONTROL_MAX, HEADER, next_message};
use libc::{c_int, c_void, iovec, msghdr, sockaddr, socklen_t, ssize_t};

/// An error number, for `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// Copies the oldest datagram's payload into the caller's vectors. Returns what the call returns, and the flags.
///
/// # Safety
///
/// The vectors describe memory that can be written.
pub(crate) unsafe fn payload(
    queue: &Queue,
    head: &Head,
    vectors: &[iovec],
    flags: c_int,
) -> (ssize_t, c_int) {
    let mut done = 0;
    for vector in vectors {
        let part = vector.iov_len.min(head.len - done);
        if part == 0 {
            continue;
        }
        // SAFETY: the caller's memory, `part` bytes of it at most; nobody else uses it during the call.
        let out = unsafe { std::slice::from_raw_parts_mut(vector.iov_base.cast::<u8>(), part) };
        done += queue.copy(done, out);
    }
    let is_cut = done < head.len;
    let returned = if flags & libc::MSG_TRUNC != 0 { head.len } else { done };
    (returned.cast_signed(), if is_cut { libc::MSG_TRUNC } else { 0 })
}

/// Writes the source's address where the caller wants it, and its length.
///
/// # Safety
///
/// `name` is null or has room for `*len` bytes; `len` can be read and written if `name` is not null.
pub(crate) unsafe fn name(head: &Head, name: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    if name.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller promises.
    let room = unsafe { len.read() };
    let bytes = head.name.as_bytes();
    if room.cast_signed() < 0 {
        return Err(Errno(libc::EINVAL));
    }
    let part = bytes.len().min(room as usize);
    // SAFETY: `part` bytes are there on both sides.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), name.cast::<u8>(), part) };
    // SAFETY: as the caller promises.
    unsafe { len.write(u32::try_from(bytes.len()).unwrap_or(0)) };
    Ok(())
}

/// Fills a `msghdr` with the oldest datagram. Returns what the call returns.
///
/// # Safety
///
/// As for `recvmsg`.
pub(crate) unsafe fn message(
    queue: &Queue,
    head: &Head,
    message: *mut msghdr,
    flags: c_int,
) -> Result<ssize_t, Errno> {
    // SAFETY: the caller's structure; a copy, because its buffers might overlap it.
    let header = unsafe { message.read() };
    if header.msg_namelen.cast_signed() < 0 && !header.msg_name.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    if header.msg_iovlen > 1024 {
        return Err(Errno(libc::EMSGSIZE));
    }
    let vectors = if header.msg_iovlen == 0 {
        &[][..]
    } else {
        // SAFETY: the caller promises this number of vectors.
        unsafe { std::slice::from_raw_parts(header.msg_iov.cast_const(), header.msg_iovlen) }
    };
    // SAFETY: as the caller promises.
    let (returned, cut) = unsafe { payload(queue, head, vectors, flags) };
    if !header.msg_name.is_null() {
        // SAFETY: the field of the caller's structure.
        let len = unsafe { &raw mut (*message).msg_namelen };
        // SAFETY: as the caller promises.
        unsafe { name(head, header.msg_name.cast::<sockaddr>(), len) }?;
    }
    let mut stored = [0; CONTROL_MAX];
    let stored_len = queue.copy(head.len, &mut stored[..head.control_len.min(CONTROL_MAX)]);
    // SAFETY: as the caller promises.
    let (used, control_cut) =
        unsafe { control(&stored[..stored_len], header.msg_control, header.msg_controllen) };
    // SAFETY: the caller's structure.
    unsafe { (*message).msg_controllen = used };
    let echoed = flags & libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the caller's structure.
    unsafe { (*message).msg_flags = head.flags & !libc::MSG_CMSG_CLOEXEC | cut | control_cut | echoed };
    Ok(returned)
}

/// Copies control messages as the kernel's `put_cmsg` does: one that does not fit is cut off, and the flag says so.
/// Returns the bytes used and the flag.
///
/// # Safety
///
/// `out` is null or has room for `room` bytes.
unsafe fn control(stored: &[u8], out: *mut c_void, room: usize) -> (usize, c_int) {
    let (mut used, mut flag) = (0, 0);
    let mut rest = stored;
    while let Some((_, _, data, following)) = next_message(rest) {
        let left = room - used;
        if out.is_null() || left < HEADER {
            return (used, libc::MSG_CTRUNC);
        }
        let whole = HEADER + data.len();
        let part = whole.min(left);
        if part < whole {
            flag = libc::MSG_CTRUNC;
        }
        let mut header = [0; HEADER];
        header.copy_from_slice(&rest[..HEADER]);
        header[..size_of::<usize>()].copy_from_slice(&part.to_ne_bytes());
        // SAFETY: `used` is at most `room`.
        let place = unsafe { out.cast::<u8>().add(used) };
        // SAFETY: at least a header fits.
        unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), place, HEADER) };
        // SAFETY: the header fits, so this is inside or at the end.
        let behind = unsafe { place.add(HEADER) };
        // SAFETY: `part` bytes fit.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), behind, part - HEADER) };
        used += whole.next_multiple_of(8).min(left);
        rest = following;
    }
    (used, flag)
}
