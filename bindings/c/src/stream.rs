//! Byte streams of A1.

use std::ffi::c_int;
use std::io::{self, BufRead as _, Write as _};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Duration;

use freshwire::Timestamp;
use freshwire::a1::{ByteReader, ByteStream, ByteWriter, Connection, Events};

use crate::border::{Failure, Out, Result, bytes, call, fw_status, once};
use crate::common::failures::{in_time, of_stream};
use crate::common::locks::{lock, take};
use crate::handles::{enter, fw_connection, fw_stream, handle};
use crate::receiver::{copy_out, until};

pub(crate) struct StreamObject {
    reader: Mutex<Option<ByteReader>>,
    writer: Mutex<Option<ByteWriter>>,
    read_events: OnceLock<Events>,
    write_events: OnceLock<Events>,
    /// To end a wait when the stream is freed.
    connection: Mutex<Option<Connection>>,
}

handle!(fw_stream, StreamObject, "stream");

/// FW_READ or FW_WRITE.
pub type fw_interest = u32;
/// What comes from the peer.
pub const FW_READ: fw_interest = 0;
/// What goes to the peer.
pub const FW_WRITE: fw_interest = 1;

/// The code for a peer whose stream is freed while a call waits.
const CODE_ABORTED: u64 = 256;

/// `None`: the time was over.
fn attempted<T>(result: io::Result<T>) -> Result<Option<T>> {
    in_time(result).map_err(|error| Failure::new(of_stream(&error).into(), error))
}

/// The time limit of an attempt: `None` is none.
fn left(until: Timestamp) -> Option<Duration> {
    (until != Timestamp::MAX).then(|| until.saturating_since(freshwire::now()))
}

fn with<H, T>(half: &Mutex<Option<H>>, f: impl FnOnce(&mut H) -> Result<T>) -> Result<T> {
    let mut half = lock(half);
    f(half.as_mut().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the stream was freed"))?)
}

/// Takes a half out; false if a call that waits has it.
fn take_idle<H>(half: &Mutex<Option<H>>) -> bool {
    match half.try_lock() {
        Ok(mut half) => drop(half.take()),
        Err(TryLockError::Poisoned(poisoned)) => drop(poisoned.into_inner().take()),
        Err(TryLockError::WouldBlock) => return false,
    }
    true
}

impl StreamObject {
    fn events(&self, interest: fw_interest) -> Result<&Events> {
        match interest {
            FW_READ => once(&self.read_events, || with(&self.reader, |reader| Ok(reader.events()?))),
            FW_WRITE => once(&self.write_events, || with(&self.writer, |writer| Ok(writer.events()?))),
            other => Err(Failure::invalid(format!("interest={other}: FW_READ or FW_WRITE is wanted"))),
        }
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
        let stream = unsafe { Out::new("stream", stream, fw_stream::default()) }?;
        let object = connection.find()?;
        let native = object.native()?;
        let made = ByteStream::new(native.clone())?;
        object.mark_used();
        let (reader, writer) = made.split();
        let id = enter(StreamObject {
            reader: Mutex::new(Some(reader)),
            writer: Mutex::new(Some(writer)),
            read_events: OnceLock::new(),
            write_events: OnceLock::new(),
            connection: Mutex::new(Some(native)),
        })?;
        stream.put(id)
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
        let count = unsafe { Out::new("count", count, 0) }?;
        let object = stream.find()?;
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
            count.put(taken)?;
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
        let count = unsafe { Out::new("count", count, 0) }?;
        // SAFETY: as the caller promises.
        let data = unsafe { bytes(data, len) }?;
        let object = stream.find()?;
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
        count.put(written)?;
        result.map(|()| status)
    })
}

/// Ends what this end sends, and waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for the acknowledgement of all bytes. The other
/// direction continues. FW_NOTHING: the time was over; call it again.
#[unsafe(no_mangle)]
pub extern "C" fn fw_stream_finish(stream: fw_stream, timeout: u64) -> fw_status {
    call(|| {
        let object = stream.find()?;
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
        let fd = unsafe { Out::new("fd", fd, -1) }?;
        let number = stream.find()?.events(interest)?.as_raw_fd();
        fd.put(number)
    })
}

/// Makes the descriptor of one direction unreadable until the next change. Call it before the next attempt, not after.
#[unsafe(no_mangle)]
pub extern "C" fn fw_stream_clear_events(stream: fw_stream, interest: fw_interest) -> fw_status {
    call(|| {
        stream.find()?.events(interest)?.clear();
        Ok(fw_status::FW_OK)
    })
}

/// Frees a stream, and closes its connection. One that was not finished is cut off. A call that waits ends with FW_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn fw_stream_free(stream: fw_stream) -> fw_status {
    call(|| {
        let object = stream.free()?;
        let connection = take(&object.connection);
        let is_idle = [take_idle(&object.reader), take_idle(&object.writer)];
        if let Some(connection) = connection
            && is_idle.contains(&false)
        {
            connection.close(CODE_ABORTED, "the stream was freed");
        }
        Ok(fw_status::FW_OK)
    })
}
