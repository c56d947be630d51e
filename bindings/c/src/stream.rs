//! Byte streams of A1.

use std::ffi::c_int;
use std::io::{self, BufRead as _, ErrorKind, Write as _};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use freshwire::Timestamp;
use freshwire::a1::{ByteReader, ByteStream, ByteStreamError, ByteWriter, Connection, Events};

use crate::a1::ConnectionObject;
use crate::border::{Failure, Result, bytes, call, fw_status, put};
use crate::handles::{Object, enter, find, free, fw_connection, fw_stream};
use crate::receiver::{copy_out, until};
use crate::sender::of_sender;

pub(crate) struct StreamObject {
    reader: Mutex<Option<ByteReader>>,
    writer: Mutex<Option<ByteWriter>>,
    read_events: OnceLock<Events>,
    write_events: OnceLock<Events>,
    /// To end a wait when the stream is freed.
    connection: Mutex<Option<Connection>>,
}

impl Object for StreamObject {
    const NAME: &'static str = "stream";
}

/// FW_READ or FW_WRITE.
pub type fw_interest = u32;
/// What comes from the peer.
pub const FW_READ: fw_interest = 0;
/// What goes to the peer.
pub const FW_WRITE: fw_interest = 1;

/// The code for a peer whose stream is freed while a call waits.
const CODE_ABORTED: u64 = 256;

fn of_io(error: &io::Error) -> Failure {
    let status = match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => fw_status::FW_CLOSED,
        ErrorKind::InvalidData => fw_status::FW_BAD_STREAM,
        _ => fw_status::FW_SYSTEM,
    };
    Failure::new(status, error)
}

/// `None`: the time was over.
fn attempted<T>(result: io::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(of_io(&error)),
    }
}

/// The time limit of an attempt: `None` is none.
fn left(until: Timestamp) -> Option<Duration> {
    (until != Timestamp::MAX).then(|| until.saturating_since(freshwire::now()))
}

fn with<H, T>(half: &Mutex<Option<H>>, f: impl FnOnce(&mut H) -> Result<T>) -> Result<T> {
    let mut half = half.lock().unwrap_or_else(PoisonError::into_inner);
    f(half.as_mut().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the stream was freed"))?)
}

/// Takes a half out; false if a call that waits has it.
fn take<H>(half: &Mutex<Option<H>>) -> bool {
    match half.try_lock() {
        Ok(mut half) => drop(half.take()),
        Err(TryLockError::Poisoned(poisoned)) => drop(poisoned.into_inner().take()),
        Err(TryLockError::WouldBlock) => return false,
    }
    true
}

impl StreamObject {
    fn events(&self, interest: fw_interest) -> Result<&Events> {
        let known = match interest {
            FW_READ => &self.read_events,
            FW_WRITE => &self.write_events,
            other => {
                return Err(Failure::invalid(format!("interest={other}: FW_READ or FW_WRITE is wanted")));
            }
        };
        if let Some(events) = known.get() {
            return Ok(events);
        }
        let events = match interest {
            FW_READ => with(&self.reader, |reader| Ok(reader.events()?))?,
            _ => with(&self.writer, |writer| Ok(writer.events()?))?,
        };
        Ok(known.get_or_init(|| events))
    }
}

/// Makes a reliable stream of bytes in each direction of an unused connection, as TCP has it. The nodes at both ends need `in_order`, and
/// each makes its stream before it sends or receives anything else. FW_INVALID: the node has no order, or the quality of service no
/// retransmission. The connection's handle may be freed.
///
/// # Safety
///
/// `stream` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_stream_new(connection: fw_connection, stream: *mut fw_stream) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("stream", stream, fw_stream::default()) }?;
        let object = find::<ConnectionObject>(connection.id)?;
        let native = object.native()?;
        let made = ByteStream::new(native.clone()).map_err(|error| match error {
            ByteStreamError::Sender(error) => of_sender(error),
            _ => Failure::invalid(error),
        })?;
        object.mark_used();
        let (reader, writer) = made.split();
        let id = enter(StreamObject {
            reader: Mutex::new(Some(reader)),
            writer: Mutex::new(Some(writer)),
            read_events: OnceLock::new(),
            write_events: OnceLock::new(),
            connection: Mutex::new(Some(native)),
        })?;
        // SAFETY: as the caller promises.
        unsafe { put("stream", stream, fw_stream { id }) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for bytes, and copies at most `size` of them to `buffer`. FW_NOTHING: none
/// came. FW_END: the peer has finished. FW_CLOSED: the stream was cut off.
///
/// # Safety
///
/// `buffer` points to `size` writable bytes, `count` to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_stream_read(
    stream: fw_stream,
    timeout: u64,
    buffer: *mut u8,
    size: usize,
    count: *mut usize,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("count", count, 0) }?;
        let object = find::<StreamObject>(stream.id)?;
        if buffer.is_null() || size == 0 {
            return Err(Failure::invalid("a buffer of at least one byte is wanted"));
        }
        let until = until(timeout);
        with(&object.reader, |reader| {
            reader.set_timeout(left(until));
            let Some(found) = attempted(reader.fill_buf())? else { return Ok(fw_status::FW_NOTHING) };
            let found = &found[..found.len().min(size)];
            let taken = found.len();
            // SAFETY: as the caller promises; it is no more than there is room for.
            unsafe { copy_out(found, buffer, size) }?;
            reader.consume(taken);
            // SAFETY: as the caller promises.
            unsafe { put("count", count, taken) }?;
            Ok(if taken == 0 { fw_status::FW_END } else { fw_status::FW_OK })
        })
    })
}

/// Writes bytes, waiting for room at most `timeout` nanoseconds, FW_DEFAULT for ever. FW_OK: all were taken. FW_NOTHING: the time was over
/// when `count` were. FW_CLOSED after the stream's end.
///
/// # Safety
///
/// `data` points to `len` bytes, `count` to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_stream_write(
    stream: fw_stream,
    timeout: u64,
    data: *const u8,
    len: usize,
    count: *mut usize,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("count", count, 0) }?;
        // SAFETY: as the caller promises.
        let data = unsafe { bytes(data, len) }?;
        let object = find::<StreamObject>(stream.id)?;
        let until = until(timeout);
        let (mut written, mut status) = (0, fw_status::FW_OK);
        let result = with(&object.writer, |writer| {
            while written < data.len() {
                writer.set_timeout(left(until));
                match attempted(writer.write(&data[written..]))? {
                    Some(taken) => written += taken,
                    None => {
                        status = fw_status::FW_NOTHING;
                        break;
                    }
                }
            }
            Ok(())
        });
        // SAFETY: as the caller promises. After a failure the caller knows too how far it came.
        unsafe { put("count", count, written) }?;
        result.map(|()| status)
    })
}

/// Ends what this end sends, and waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for the acknowledgement of all bytes. The other
/// direction continues. FW_NOTHING: the time was over; call it again.
#[unsafe(no_mangle)]
pub extern "C" fn fw_stream_finish(stream: fw_stream, timeout: u64) -> fw_status {
    call(|| {
        let object = find::<StreamObject>(stream.id)?;
        let until = until(timeout);
        let done = with(&object.writer, |writer| {
            // Longer than any connection is silent.
            attempted(writer.try_finish(left(until).unwrap_or(crate::a1::SLICE)))
        })?;
        Ok(if done.is_some() { fw_status::FW_OK } else { fw_status::FW_NOTHING })
    })
}

/// Writes a descriptor of one direction. FW_READ: it becomes readable when bytes have come, or the stream has ended. FW_WRITE: it becomes
/// readable when a write or finish with a timeout of 0, which has returned FW_NOTHING, is worth another attempt. Otherwise as
/// fw_connection_events.
///
/// # Safety
///
/// `fd` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_stream_events(
    stream: fw_stream,
    interest: fw_interest,
    fd: *mut c_int,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("fd", fd, -1) }?;
        let number = find::<StreamObject>(stream.id)?.events(interest)?.as_raw_fd();
        // SAFETY: as the caller promises.
        unsafe { put("fd", fd, number) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Makes the descriptor of one direction unreadable until the next change. Call it before the next attempt, not after.
#[unsafe(no_mangle)]
pub extern "C" fn fw_stream_clear_events(stream: fw_stream, interest: fw_interest) -> fw_status {
    call(|| {
        find::<StreamObject>(stream.id)?.events(interest)?.clear();
        Ok(fw_status::FW_OK)
    })
}

/// Frees a stream, and closes its connection. One that was not finished is cut off. A call that waits ends with FW_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn fw_stream_free(stream: fw_stream) -> fw_status {
    call(|| {
        let object = free::<StreamObject>(stream.id)?;
        let connection = object.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_idle = [take(&object.reader), take(&object.writer)];
        if let Some(connection) = connection
            && is_idle.contains(&false)
        {
            connection.close(CODE_ABORTED, "the stream was freed");
        }
        Ok(fw_status::FW_OK)
    })
}
