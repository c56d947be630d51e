//! Receivers: streams with chunked framing.

use std::ffi::c_int;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use freshwire::Timestamp;
use freshwire::receive::{ChunkedReceiver, Message, ReceiveError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::border::{Failure, Out, Result, call, done, duplicate, fw_status};
use crate::common::locks::lock;
use crate::handles::{enter, fw_receiver, handle};
use crate::types::FW_DEFAULT;

pub(crate) struct ReceiverObject {
    file: Arc<OwnedFd>,
    inner: Mutex<Inner>,
}

handle!(fw_receiver, ReceiverObject, "receiver");

struct Inner {
    receiver: ChunkedReceiver<NoWait>,
    /// A record that did not fit into the caller's buffer.
    kept: Option<Message>,
}

/// A record that a receiver has read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fw_received {
    /// When its last byte was read.
    pub arrived: u64,
    /// Its bytes.
    pub len: usize,
    /// The low 32 bits of its number.
    pub id: u32,
    /// 1: the sender began it and gave it up; there are no bytes.
    pub abandoned: u8,
}

/// Records of up to this size are accepted by default.
const MAX_RECORD_BYTES: usize = 16 << 20;

/// Reads what is there.
struct NoWait(Arc<OwnedFd>);

impl Read for NoWait {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match is_readable(&self.0, Timestamp::ZERO)? {
            true => Ok(rustix::io::read(&self.0, buffer)?),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

/// Waits until there is something to read, or the end, or the time is over.
pub(crate) fn is_readable(file: &OwnedFd, until: Timestamp) -> std::io::Result<bool> {
    let mut files = [PollFd::new(file, PollFlags::IN)];
    loop {
        let left = until.saturating_since(freshwire::now());
        let left = (until != Timestamp::MAX).then(|| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut files, left.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes a receiver of a stream with FW_CHUNKED framing. The descriptor is duplicated. `max_record_bytes` of 0 is 16 MiB.
///
/// # Safety
///
/// `receiver` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_receiver_new(
    fd: c_int,
    max_record_bytes: usize,
    receiver: *mut fw_receiver,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let receiver = unsafe { Out::new("receiver", receiver, fw_receiver::default()) }?;
        let file = Arc::new(duplicate(fd)?);
        let most = if max_record_bytes == 0 { MAX_RECORD_BYTES } else { max_record_bytes };
        let inner =
            Inner { receiver: ChunkedReceiver::with_limit(NoWait(Arc::clone(&file)), most), kept: None };
        receiver.put(enter(ReceiverObject { file, inner: Mutex::new(inner) })?)
    })
}

/// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for the next record, and copies it to `buffer`. FW_NOTHING: none
/// came. FW_END: the stream has ended between two records. FW_SMALL_BUFFER: it has `record->len` bytes, and waits for a call with
/// a larger buffer.
///
/// # Safety
///
/// `buffer` points to `size` writable bytes, `record` to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_receiver_next(
    receiver: fw_receiver,
    timeout: u64,
    buffer: *mut u8,
    size: usize,
    record: *mut fw_received,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let record = unsafe { Out::new("record", record, fw_received::default()) }?;
        let object = receiver.find()?;
        let until = until(timeout);
        let mut inner = lock(&object.inner);
        let message = match inner.next(&object.file, until)? {
            Found::Message(message) => message,
            Found::Nothing => return Ok(fw_status::FW_NOTHING),
            Found::End => return Ok(fw_status::FW_END),
        };
        let (found, payload) = match &message {
            Message::Record { id, payload, arrived } => {
                let found =
                    fw_received { arrived: arrived.as_nanos(), len: payload.len(), id: *id, abandoned: 0 };
                (found, payload.as_slice())
            }
            Message::Abandoned { id } => {
                (fw_received { id: *id, abandoned: 1, ..fw_received::default() }, &[][..])
            }
            other => {
                return Err(Failure::new(fw_status::FW_BAD_STREAM, format!("unknown message {other:?}")));
            }
        };
        record.put(found)?;
        // SAFETY: as the caller promises.
        match unsafe { copy_out(payload, buffer, size) } {
            Ok(()) => Ok(fw_status::FW_OK),
            Err(failure) => {
                inner.kept = Some(message);
                Err(failure)
            }
        }
    })
}

/// The end of a time limit.
pub(crate) fn until(timeout: u64) -> Timestamp {
    match timeout {
        FW_DEFAULT => Timestamp::MAX,
        nanos => freshwire::now() + std::time::Duration::from_nanos(nanos),
    }
}

/// Copies a payload to the caller's buffer.
///
/// # Safety
///
/// `buffer` has `size` writable bytes.
pub(crate) unsafe fn copy_out(payload: &[u8], buffer: *mut u8, size: usize) -> Result<()> {
    if payload.is_empty() {
        return Ok(());
    }
    if payload.len() > size || buffer.is_null() {
        let words = format!("a buffer of {size} bytes is too small for a record of {}", payload.len());
        return Err(Failure::new(fw_status::FW_SMALL_BUFFER, words));
    }
    // SAFETY: as the caller promises, and there is room. The payload is the library's, so the two do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), buffer, payload.len()) };
    Ok(())
}

enum Found {
    Message(Message),
    Nothing,
    End,
}

impl Inner {
    fn next(&mut self, file: &OwnedFd, until: Timestamp) -> Result<Found> {
        if let Some(kept) = self.kept.take() {
            return Ok(Found::Message(kept));
        }
        loop {
            match self.receiver.next_message() {
                Ok(Some(message)) => return Ok(Found::Message(message)),
                Ok(None) => return Ok(Found::End),
                Err(ReceiveError::Io(error)) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error @ ReceiveError::Io(_)) => return Err(Failure::new(fw_status::FW_SYSTEM, error)),
                Err(error) => return Err(Failure::new(fw_status::FW_BAD_STREAM, error)),
            }
            if !is_readable(file, until)? {
                return Ok(Found::Nothing);
            }
        }
    }
}

/// Frees a receiver.
#[unsafe(no_mangle)]
pub extern "C" fn fw_receiver_free(receiver: fw_receiver) -> fw_status {
    call(|| receiver.free().map(done))
}
