//! The calls that programs make.

use std::ffi::c_void;

use freshwire_push::pushed::{PushedSocket, State};
use libc::{
    c_int, c_long, c_uint, c_ulong, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec,
};

use crate::deliver::{self, Errno};
use crate::real;
use crate::sockets::{self, LockMark};

fn fail(errno: Errno) -> ssize_t {
    // SAFETY: the call takes nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library's own variable of this thread.
    unsafe { place.write(errno.0) };
    -1
}

/// What a receive does: from the program's memory if something is there, else by the kernel's call.
///
/// `is_socket`: see [`sockets::of_receive`]. `deliver` gets the locked state, in which something waits; `kernel` makes the
/// call.
fn receive(
    fd: c_int,
    flags: c_int,
    is_socket: bool,
    deliver: impl FnOnce(&mut State) -> Result<ssize_t, Errno>,
    kernel: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if flags & libc::MSG_ERRQUEUE != 0 {
        return kernel();
    }
    let Some(inside) = LockMark::enter() else { return kernel() };
    let Some(pushed) = sockets::of_receive(fd, is_socket) else {
        drop(inside);
        return kernel();
    };
    let peeks = flags & libc::MSG_PEEK != 0;
    let returned = match pushed.lock_or_follow() {
        Ok(mut state) => {
            let taken = error(&mut state).or_else(|| (!state.queue.is_empty()).then(|| deliver(&mut state)));
            if let Some(result) = taken {
                drop(state);
                return result.unwrap_or_else(fail);
            }
            drop(inside);
            pushed.in_kernel(state, kernel)
        }
        Err(_others) => {
            drop(inside);
            kernel()
        }
    };
    if returned >= 0 && !peeks {
        pushed.received(1);
    }
    returned
}

/// An error that a push has met.
fn error(state: &mut State) -> Option<Result<ssize_t, Errno>> {
    state.error.take().map(|errno| Err(Errno(errno)))
}

fn pop_unless_peek(state: &mut State, flags: c_int) {
    if flags & libc::MSG_PEEK == 0 {
        state.queue.pop();
    }
}

/// Delivers into plain vectors, and to an address if wanted.
///
/// # Safety
///
/// As for `recvfrom`.
unsafe fn plain(
    state: &mut State,
    vectors: &[iovec],
    flags: c_int,
    name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> Result<ssize_t, Errno> {
    let Some(head) = state.queue.head() else { return Err(Errno(libc::EAGAIN)) };
    // SAFETY: as the caller promises.
    let (returned, _) = unsafe { deliver::payload(&state.queue, &head, vectors, flags) };
    // SAFETY: as the caller promises.
    let named = unsafe { deliver::name(&head, name, name_len) };
    pop_unless_peek(state, flags);
    named.map(|()| returned)
}

/// Receives, as `recv`.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let vector = iovec { iov_base: buffer, iov_len: len };
    let null = std::ptr::null_mut();
    receive(
        fd,
        flags,
        true,
        // SAFETY: as the caller promises.
        |state| unsafe { plain(state, &[vector], flags, null, std::ptr::null_mut()) },
        // SAFETY: as the caller promises.
        || unsafe { real::recv(fd, buffer, len, flags) },
    )
}

/// Receives, as `recvfrom`.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> ssize_t {
    let vector = iovec { iov_base: buffer, iov_len: len };
    receive(
        fd,
        flags,
        true,
        // SAFETY: as the caller promises.
        |state| unsafe { plain(state, &[vector], flags, name, name_len) },
        // SAFETY: as the caller promises.
        || unsafe { real::recvfrom(fd, buffer, len, flags, name, name_len) },
    )
}

/// `recv` of programs that were built with bounds checks.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    if len > size {
        // SAFETY: the C library's function ends the program.
        return unsafe { real::__recv_chk(fd, buffer, len, size, flags) };
    }
    // SAFETY: as the caller promises.
    unsafe { recv(fd, buffer, len, flags) }
}

/// `recvfrom` of programs that were built with bounds checks.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    size: size_t,
    flags: c_int,
    name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> ssize_t {
    if len > size {
        // SAFETY: the C library's function ends the program.
        return unsafe { real::__recvfrom_chk(fd, buffer, len, size, flags, name, name_len) };
    }
    // SAFETY: as the caller promises.
    unsafe { recvfrom(fd, buffer, len, flags, name, name_len) }
}

/// Reads, as `read`.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    if len == 0 || !sockets::may_be_udp(fd) {
        // SAFETY: as the caller promises.
        return unsafe { real::read(fd, buffer, len) };
    }
    let vector = iovec { iov_base: buffer, iov_len: len };
    let null = std::ptr::null_mut();
    receive(
        fd,
        0,
        false,
        // SAFETY: as the caller promises.
        |state| unsafe { plain(state, &[vector], 0, null, std::ptr::null_mut()) },
        // SAFETY: as the caller promises.
        || unsafe { real::read(fd, buffer, len) },
    )
}

/// `read` of programs that were built with bounds checks.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, size: size_t) -> ssize_t {
    if len > size {
        // SAFETY: the C library's function ends the program.
        return unsafe { real::__read_chk(fd, buffer, len, size) };
    }
    // SAFETY: as the caller promises.
    unsafe { read(fd, buffer, len) }
}

/// Reads, as `readv`.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    let some = usize::try_from(count).ok().filter(|count| (1..=1024).contains(count));
    let Some(some) = some.filter(|_| sockets::may_be_udp(fd)) else {
        // SAFETY: as the caller promises.
        return unsafe { real::readv(fd, vectors, count) };
    };
    // SAFETY: the caller promises this number of vectors.
    let parts = unsafe { std::slice::from_raw_parts(vectors, some) };
    let null = std::ptr::null_mut();
    if parts.iter().all(|part| part.iov_len == 0) {
        // SAFETY: as the caller promises.
        return unsafe { real::readv(fd, vectors, count) };
    }
    receive(
        fd,
        0,
        false,
        // SAFETY: as the caller promises.
        |state| unsafe { plain(state, parts, 0, null, std::ptr::null_mut()) },
        // SAFETY: as the caller promises.
        || unsafe { real::readv(fd, vectors, count) },
    )
}

/// Receives, as `recvmsg`.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    receive(
        fd,
        flags,
        true,
        // SAFETY: as the caller promises.
        |state| unsafe { one_message(state, message, flags) },
        // SAFETY: as the caller promises.
        || unsafe { real::recvmsg(fd, message, flags) },
    )
}

/// Delivers one message.
///
/// # Safety
///
/// As for `recvmsg`.
unsafe fn one_message(state: &mut State, message: *mut msghdr, flags: c_int) -> Result<ssize_t, Errno> {
    let Some(head) = state.queue.head() else { return Err(Errno(libc::EAGAIN)) };
    // SAFETY: as the caller promises.
    let returned = unsafe { deliver::message(&state.queue, &head, message, flags) }?;
    pop_unless_peek(state, flags);
    Ok(returned)
}

/// Receives several, as `recvmmsg`: what waits in the program's memory first, then the kernel's.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: as the caller promises.
    let kernel = || unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    if flags & libc::MSG_ERRQUEUE != 0 || count == 0 {
        return kernel();
    }
    let Some(inside) = LockMark::enter() else { return kernel() };
    let Some(pushed) = sockets::of_receive(fd, true) else {
        drop(inside);
        return kernel();
    };
    let peeks = flags & libc::MSG_PEEK != 0;
    let mut state = match pushed.lock_or_follow() {
        Ok(state) => state,
        Err(_others) => {
            drop(inside);
            let received = kernel();
            count_received(&pushed, received, peeks);
            return received;
        }
    };
    // The kernel's own limit.
    let count = count.min(1024);
    let (done, failed) = match error(&mut state) {
        Some(Err(errno)) => (0, Some(errno)),
        // SAFETY: as the caller promises.
        _ => unsafe { several(&mut state, messages, count, flags) },
    };
    let number = c_int::try_from(done).unwrap_or(c_int::MAX);
    match failed {
        Some(errno) if done == 0 => {
            drop(state);
            return c_int::try_from(fail(errno)).unwrap_or(-1);
        }
        None if done < count => {}
        _ => return number,
    }
    let flags =
        if done > 0 && flags & libc::MSG_WAITFORONE != 0 { flags | libc::MSG_DONTWAIT } else { flags };
    // SAFETY: `done` is at most the number of messages.
    let rest = unsafe { messages.add(done as usize) };
    drop(inside);
    // SAFETY: as the caller promises, for the rest.
    let call = || unsafe { real::recvmmsg(fd, rest, count - done, flags, timeout) };
    let received = pushed.in_kernel(state, call);
    count_received(&pushed, received, peeks);
    if received < 0 && done > 0 { number } else { received + number }
}

fn count_received(pushed: &PushedSocket, received: c_int, peeks: bool) {
    if !peeks {
        pushed.received(u64::try_from(received).unwrap_or(0));
    }
}

/// Delivers messages as long as something waits. Returns how many, and what went wrong with the next one.
///
/// # Safety
///
/// As for `recvmmsg`.
unsafe fn several(
    state: &mut State,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> (c_uint, Option<Errno>) {
    let mut done: c_uint = 0;
    while done < count && !state.queue.is_empty() {
        // SAFETY: `done` is less than the number of messages.
        let entry = unsafe { messages.add(done as usize) };
        // SAFETY: the field of the caller's structure.
        let header = unsafe { &raw mut (*entry).msg_hdr };
        // SAFETY: as the caller promises.
        match unsafe { one_message(state, header, flags) } {
            // SAFETY: the caller's structure.
            Ok(returned) => unsafe { (*entry).msg_len = u32::try_from(returned).unwrap_or(0) },
            Err(errno) => return (done, Some(errno)),
        }
        done += 1;
    }
    (done, None)
}

/// `ioctl`; of all requests `FIONREAD` is ours: the size of the next datagram.
///
/// # Safety
///
/// As for the C library's function, which takes its third argument the same way on this platform.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == libc::FIONREAD
        && let Some(_inside) = LockMark::enter()
        && let Some(pushed) = sockets::served(fd)
        && let Some(head) = pushed.lock_or_follow().ok().and_then(|state| state.queue.head())
    {
        // SAFETY: the request's argument is a pointer to an int.
        unsafe { argument.cast::<c_int>().write(c_int::try_from(head.len).unwrap_or(c_int::MAX)) };
        return 0;
    }
    // SAFETY: as the caller promises.
    unsafe { real::ioctl(fd, request, argument) }
}

/// Makes a socket.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: as the caller promises.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd >= 0 {
        let is_datagram = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_DGRAM;
        let is_ip = domain == libc::AF_INET || domain == libc::AF_INET6;
        let is_udp = protocol == 0 || protocol == libc::IPPROTO_UDP;
        sockets::created(fd, is_datagram && is_ip && is_udp);
    }
    fd
}

/// Binds a socket.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as the caller promises.
    let returned = unsafe { real::bind(fd, address, len) };
    if returned == 0 {
        sockets::bound(fd);
    }
    returned
}

fn bad_descriptor() -> c_int {
    c_int::try_from(fail(Errno(libc::EBADF))).unwrap_or(-1)
}

/// Closes a descriptor.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if sockets::is_own(fd) {
        return bad_descriptor();
    }
    if let Some(_inside) = LockMark::enter() {
        sockets::forget(fd);
    }
    // SAFETY: as the caller promises.
    unsafe { real::close(fd) }
}

/// Closes a range of descriptors.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags == 0
        && let Some(_inside) = LockMark::enter()
    {
        sockets::forget_range(first as usize, last as usize);
    }
    // SAFETY: as the caller promises.
    unsafe { real::close_range(first, last, flags) }
}

/// Closes all descriptors from one on.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    if let Some(_inside) = LockMark::enter() {
        sockets::forget_range(usize::try_from(first).unwrap_or(0), usize::MAX);
    }
    // SAFETY: as the caller promises.
    unsafe { real::closefrom(first) };
}

fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0
        && new != old
        && let Some(_inside) = LockMark::enter()
    {
        sockets::duplicated(old, new);
    }
    new
}

/// Another descriptor of the same.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(old: c_int) -> c_int {
    // SAFETY: as the caller promises.
    duplicated(old, unsafe { real::dup(old) })
}

/// Another descriptor of the same, of this number.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: as the caller promises.
    duplicated(old, unsafe { real::dup2(old, new) })
}

/// Another descriptor of the same, of this number.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    duplicated(old, unsafe { real::dup3(old, new, flags) })
}

/// `fcntl`, for the commands that duplicate.
///
/// # Safety
///
/// As for the C library's function, which takes its third argument the same way on this platform.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: as the caller promises.
    let result = unsafe { real::fcntl(fd, command, argument) };
    after_fcntl(fd, command, result)
}

/// `fcntl` under its other name.
///
/// # Safety
///
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: as the caller promises.
    let result = unsafe { real::fcntl64(fd, command, argument) };
    after_fcntl(fd, command, result)
}

fn after_fcntl(fd: c_int, command: c_int, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
        _ => result,
    }
}
