//! The calls that this library replaces.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the next library, looked up at its first use.
pub(crate) struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string; RTLD_NEXT asks the libraries behind this one.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // The C library has all of these; without it there is nothing to fall back to.
            std::process::abort();
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Declares a function that calls the C library's of the same name.
macro_rules! real {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {
        /// The C library's.
        ///
        /// # Safety
        ///
        /// As for the C library's.
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            static REAL: Real = Real::new(match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            });
            // SAFETY: the C library's function of this name has this signature.
            let function = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(REAL.address())
            };
            // SAFETY: as the caller promises.
            unsafe { function($($argument),*) }
        }
    };
}

use libc::{c_int, c_long, c_uint, c_ulong, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

real!(socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int);
real!(bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int);
real!(close(fd: c_int) -> c_int);
real!(close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int);
real!(closefrom(first: c_int) -> ());
real!(dup(old: c_int) -> c_int);
real!(dup2(old: c_int, new: c_int) -> c_int);
real!(dup3(old: c_int, new: c_int, flags: c_int) -> c_int);
real!(fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int);
real!(fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int);
real!(ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int);
real!(read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t);
real!(readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t);
real!(recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t);
real!(recvfrom(
    fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, name: *mut sockaddr, name_len: *mut socklen_t
) -> ssize_t);
real!(recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t);
real!(recvmmsg(
    fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut libc::timespec
) -> c_int);
real!(__read_chk(fd: c_int, buffer: *mut c_void, len: size_t, size: size_t) -> ssize_t);
real!(__recv_chk(fd: c_int, buffer: *mut c_void, len: size_t, size: size_t, flags: c_int) -> ssize_t);
real!(__recvfrom_chk(
    fd: c_int, buffer: *mut c_void, len: size_t, size: size_t, flags: c_int, name: *mut sockaddr,
    name_len: *mut socklen_t
) -> ssize_t);
