//! The frame of every call: no panic gets out, and failures have a status and a message.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Once, OnceLock};

use crate::common::failures::{Classified, Kind};
use crate::common::names::in_own_names;
use crate::common::process::{count_fork, decides};

/// Result of a call. Zero is success; a negative value is a failure, which `fw_last_error` explains; a positive one tells that
/// there is nothing now, and has no message.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fw_status {
    /// Done.
    FW_OK = 0,
    /// Nothing came within the time limit, or there is nothing to report yet.
    FW_NOTHING = 1,
    /// The stream or connection has ended in good order.
    FW_END = 2,
    /// The ring or the arena has no room: wait, drop or replace a record.
    FW_FULL = -1,
    /// The sink, connection, node or engine has ended.
    FW_CLOSED = -2,
    /// The record is larger than the ring can ever hold.
    FW_TOO_LARGE = -3,
    /// The record was committed, dropped, or is held by another party.
    FW_TOO_LATE = -4,
    /// The payload is shared, or the change does not fit into it.
    FW_NOT_CHANGED = -5,
    /// An argument is out of its range, or a pointer is NULL.
    FW_INVALID = -6,
    /// The handle was freed, or never was one of this kind.
    FW_DEAD_HANDLE = -7,
    /// All rings are in use.
    FW_NO_RING = -8,
    /// The operating system refused something.
    FW_SYSTEM = -9,
    /// The stream violates its framing.
    FW_BAD_STREAM = -10,
    /// The buffer is too small for the record, which stays: its length was written.
    FW_SMALL_BUFFER = -11,
    /// The A1 connection was not made.
    FW_NOT_CONNECTED = -12,
    /// The handle belongs to the parent of this process.
    FW_FORKED = -13,
    /// A policy's function called the library.
    FW_IN_POLICY = -14,
    /// Another failure.
    FW_FAILED = -15,
    /// The library has panicked, which is a mistake in it. The handles of the call should be freed.
    FW_PANIC = -16,
    /// The system gives no network namespaces to this user: a test of an emulated link is to be skipped, or run as root.
    FW_NOT_PERMITTED = -17,
}

/// A failure on its way to the caller. It is one pointer: each step of a successful call copies a larger
/// result through memory, in pieces that defeat the processor's store forwarding. These copies were most of a
/// push's extra cost over Rust's.
pub(crate) struct Failure(Box<Words>);

struct Words {
    status: fw_status,
    words: String,
}

impl Failure {
    #[cold]
    pub(crate) fn new(status: fw_status, words: impl ToString) -> Self {
        Self(Box::new(Words { status, words: words.to_string() }))
    }

    pub(crate) fn invalid(words: impl ToString) -> Self {
        Self::new(fw_status::FW_INVALID, words)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(fw_status::FW_SYSTEM, error)
    }
}

impl<E: Classified> From<E> for Failure {
    #[cold]
    fn from(error: E) -> Self {
        Self::new(error.kind().into(), error)
    }
}

impl From<Kind> for fw_status {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Full | Kind::Pending => Self::FW_FULL,
            Kind::TooLarge => Self::FW_TOO_LARGE,
            Kind::TooLate => Self::FW_TOO_LATE,
            Kind::NotChanged => Self::FW_NOT_CHANGED,
            Kind::Closed => Self::FW_CLOSED,
            Kind::Invalid | Kind::OtherNode => Self::FW_INVALID,
            Kind::NoRing => Self::FW_NO_RING,
            Kind::System | Kind::Carrier | Kind::LinkSystem => Self::FW_SYSTEM,
            Kind::BadStream => Self::FW_BAD_STREAM,
            Kind::NotConnected | Kind::NodeStopped => Self::FW_NOT_CONNECTED,
            Kind::NotPermitted => Self::FW_NOT_PERMITTED,
            Kind::Link | Kind::Other => Self::FW_FAILED,
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

static WATCH_FORKS: Once = Once::new();

extern "C" fn forked() {
    count_fork();
}

/// Counts forks from now on.
pub(crate) fn watch_forks() {
    WATCH_FORKS.call_once(|| {
        // SAFETY: the handler only adds to an atomic number, which a child may do at once.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

/// Runs a call's body.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Result<fw_status>) -> fw_status {
    if decides() {
        return failed(Failure::new(
            fw_status::FW_IN_POLICY,
            "a policy cannot call the library: it decides while the engine waits for it",
        ));
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => failed(failure),
        Err(_) => failed(Failure::new(fw_status::FW_PANIC, "the library has panicked; see standard error")),
    }
}

#[cold]
fn failed(failure: Failure) -> fw_status {
    note(&failure.0.words);
    failure.0.status
}

/// Keeps a message for `fw_last_error`: of a failure, or the description of a sink's end.
pub(crate) fn note(words: &str) {
    let words = in_own_names(words.replace('\0', " "), |(_, c, _)| c);
    let words = CString::new(words).unwrap_or_default();
    // It fails only while the thread ends, after its last call.
    let _ = LAST.try_with(|last| *last.borrow_mut() = words);
}

/// Returns the message of this thread's last failure, or the words of a later call that has described an end or a membership; "" before
/// the first one. It stays valid until the thread's next failure, its next call that describes an end or a membership, or its end.
#[unsafe(no_mangle)]
pub extern "C" fn fw_last_error() -> *const c_char {
    let empty: &'static CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(empty.as_ptr())
}

/// The bytes of a caller. An empty payload may have no address.
///
/// # Safety
///
/// `data` has `len` readable bytes, which no thread writes during the call.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() || isize::try_from(len).is_err() {
        return Err(Failure::invalid(format!(
            "{len} bytes at {data:p}: a pointer to that number of bytes is wanted"
        )));
    }
    // SAFETY: as the caller promises; the address is not null, and the length fits.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// A caller's array of values.
///
/// # Safety
///
/// `data` has `len` readable, aligned, valid values, which no thread writes during the call.
pub(crate) unsafe fn slice<'a, T>(data: *const T, len: usize) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    let fits = len.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if data.is_null() || !data.is_aligned() || !fits {
        return Err(Failure::invalid(format!(
            "{len} values at {data:p}: an aligned pointer to that number of values is wanted"
        )));
    }
    // SAFETY: as the caller promises; the address is not null and aligned, and the size fits.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// A caller's string.
///
/// # Safety
///
/// `text` ends with a zero byte, and no thread writes to it during the call.
pub(crate) unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{name} is NULL: a string is wanted")));
    }
    // SAFETY: as the caller promises, and it is not null.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}

/// The caller's place for a result.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// A failure after this leaves `default` there.
    ///
    /// # Safety
    ///
    /// `to` is null or points to a value that is writable during the call.
    pub(crate) unsafe fn new(name: &str, to: *mut T, default: T) -> Result<Self> {
        // SAFETY: as the caller promises.
        unsafe { put(name, to, default) }?;
        Ok(Self(to))
    }

    /// Writes the result, which ends a call.
    pub(crate) fn put(self, value: T) -> Result<fw_status> {
        // SAFETY: `new` has checked the place, which stays writable.
        unsafe { self.0.write(value) };
        Ok(fw_status::FW_OK)
    }
}

/// Writes a result to where the caller wants it, which ends a call.
///
/// # Safety
///
/// `to` is null or points to a writable value.
#[inline]
pub(crate) unsafe fn put<T>(name: &str, to: *mut T, value: T) -> Result<fw_status> {
    if to.is_null() || !to.is_aligned() {
        return Err(Failure::invalid(format!("{name} is NULL: a place for the result is wanted")));
    }
    // SAFETY: as the caller promises; it is neither null nor misaligned.
    unsafe { to.write(value) };
    Ok(fw_status::FW_OK)
}

/// Writes a result that the caller may not want, with NULL.
///
/// # Safety
///
/// `to` is null or points to a writable value.
#[inline]
pub(crate) unsafe fn put_if_wanted<T>(
    name: &str,
    to: *mut T,
    value: impl FnOnce() -> Result<T>,
) -> Result<fw_status> {
    if to.is_null() {
        return Ok(fw_status::FW_OK);
    }
    let value = value()?;
    // SAFETY: as the caller promises.
    unsafe { put(name, to, value) }
}

/// The status of a call without a result.
pub(crate) fn done<T>(_: T) -> fw_status {
    fw_status::FW_OK
}

/// The value in a cell, made by the first call.
pub(crate) fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = make()?;
    Ok(cell.get_or_init(|| value))
}

/// Nanoseconds of a time, at most what 64 bits hold.
pub(crate) fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads a structure of the caller.
///
/// # Safety
///
/// `from` is null or points to a valid value.
pub(crate) unsafe fn get<T: Copy>(name: &str, from: *const T) -> Result<T> {
    if from.is_null() || !from.is_aligned() {
        return Err(Failure::invalid(format!("{name} is NULL: a structure is wanted")));
    }
    // SAFETY: as the caller promises; it is neither null nor misaligned.
    Ok(unsafe { from.read() })
}

/// Reads a structure of the caller, or takes the default for NULL.
///
/// # Safety
///
/// As [`get`].
pub(crate) unsafe fn get_or<T: Copy>(name: &str, from: *const T, default: impl FnOnce() -> T) -> Result<T> {
    if from.is_null() {
        return Ok(default());
    }
    // SAFETY: as the caller promises.
    unsafe { get(name, from) }
}

/// A structure of the caller where it lies, or `None` for NULL.
///
/// # Safety
///
/// `from` is null or points to a valid value that does not change during the call.
#[inline]
pub(crate) unsafe fn borrow<'a, T>(name: &str, from: *const T) -> Result<Option<&'a T>> {
    if from.is_null() {
        return Ok(None);
    }
    if !from.is_aligned() {
        return Err(Failure::invalid(format!("{name} is misaligned: a structure is wanted")));
    }
    // SAFETY: as the caller promises; it is neither null nor misaligned.
    Ok(Some(unsafe { &*from }))
}

/// Duplicates a descriptor, so that the caller may close it.
pub(crate) fn duplicate(fd: c_int) -> Result<OwnedFd> {
    // SAFETY: the call only asks about a number, which may be no descriptor.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Failure::invalid(format!("fd={fd}: an open descriptor is wanted")));
    }
    // SAFETY: it is an open descriptor, and the caller keeps it open during the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(borrowed.try_clone_to_owned()?)
}
