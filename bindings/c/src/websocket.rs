//! Sinks for browsers: sockets that an HTTP server of the caller's hands over after the upgrade.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use freshwire::SinkConfig;
use freshwire::websocket::{self, Event, Keepalive, KeepaliveStep, Messages, Reader, Role};
use rustix::event::epoll;
use rustix::net::{RecvFlags, recv};
use sha1::Digest as _;

use crate::border::{Failure, Out, Result, bytes, call, done, duplicate, fw_status, get_or, note, text};
use crate::common::locks::lock;
use crate::handles::{enter, fw_sender, fw_sink, handle};
use crate::receiver::{copy_out, is_readable, until};
use crate::sink::SinkObject;
use crate::types::{fw_sink_config, fw_sink_config_default};

/// The client's side of a WebSocket: what it sends.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_websocket {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// FW_TEXT or FW_BINARY.
pub type fw_message_kind = u32;
/// A text message: UTF-8.
pub const FW_TEXT: fw_message_kind = 0;
/// A binary message.
pub const FW_BINARY: fw_message_kind = 1;

/// A message of the client.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fw_websocket_message {
    /// Its bytes.
    pub len: usize,
    /// What they are.
    pub kind: fw_message_kind,
}

/// Bytes of the answer to a WebSocket key: 28 characters and a zero byte.
pub const FW_WEBSOCKET_ACCEPT: usize = 29;

/// Characters of a key: 16 bytes in base64 (RFC 6455, section 4.1).
const KEY_CHARS: usize = 24;

/// The bytes that are hashed behind the key (RFC 6455, section 1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Client messages of up to this size are accepted by default.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// The code of a close frame for a client that does not answer pings, as other servers have it (RFC 6455, section 7.4.1).
const UNEXPECTED: u16 = 1011;

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 << 10;

pub(crate) struct WebSocketObject {
    file: OwnedFd,
    /// Readable when `file` is, and from the sink's end on.
    changes: OwnedFd,
    sink: Arc<SinkObject>,
    inner: Mutex<Inner>,
    /// The close frame was handed over.
    is_closed: AtomicBool,
}

handle!(fw_websocket, WebSocketObject, "WebSocket");

struct Inner {
    reader: Reader,
    messages: VecDeque<(fw_message_kind, Vec<u8>)>,
    /// The code of the close frame that ended it.
    code: u16,
    violation: Option<String>,
    /// The client sends nothing more.
    has_ended: bool,
    keepalive: Keepalive,
}

/// Writes the value of `Sec-WebSocket-Accept` that answers a request's `Sec-WebSocket-Key`, with a zero byte.
///
/// # Safety
///
/// `key` is a string; `accept` points to FW_WEBSOCKET_ACCEPT writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_websocket_accept(key: *const c_char, accept: *mut c_char) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let key = unsafe { text("key", key) }?;
        if key.len() != KEY_CHARS {
            return Err(Failure::invalid(format!(
                "a key of {} characters: 16 bytes in base64 are wanted",
                key.len()
            )));
        }
        if accept.is_null() {
            return Err(Failure::invalid("accept is NULL: a place for the result is wanted"));
        }
        let digest = sha1::Sha1::new().chain_update(key).chain_update(KEY_SUFFIX).finalize();
        let answer = data_encoding::BASE64.encode(&digest) + "\0";
        // SAFETY: as the caller promises; 20 bytes are 28 characters in base64, so that the answer fits.
        unsafe { std::ptr::copy_nonoverlapping(answer.as_ptr().cast(), accept, answer.len()) };
        Ok(fw_status::FW_OK)
    })
}

/// Serves a socket that became a WebSocket in the caller's HTTP server: each record of `sink` is a message of this kind.
/// `leftover` are the bytes that were read behind the request. The answer to the upgrade has been written. The descriptor is
/// duplicated; the caller neither reads from it nor writes to it any more. Client messages of more than `max_message_bytes`, 64 KiB
/// for 0, end the connection. `config` may be NULL for the default; its framing is not used. Free both handles.
///
/// # Safety
///
/// `leftover` points to `leftover_len` bytes; `config` is NULL or points to valid settings; `websocket` and `sink` point to
/// writable handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_websocket_new(
    sender: fw_sender,
    fd: c_int,
    leftover: *const u8,
    leftover_len: usize,
    kind: fw_message_kind,
    max_message_bytes: usize,
    config: *const fw_sink_config,
    websocket: *mut fw_websocket,
    sink: *mut fw_sink,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let websocket = unsafe { Out::new("websocket", websocket, fw_websocket::default()) }?;
        // SAFETY: as the caller promises.
        let sink = unsafe { Out::new("sink", sink, fw_sink::default()) }?;
        let object = sender.find()?;
        // SAFETY: as the caller promises.
        let leftover = unsafe { bytes(leftover, leftover_len) }?;
        // SAFETY: as the caller promises.
        let config = unsafe { get_or("config", config, || fw_sink_config_default()) }?;
        let messages = match kind {
            FW_TEXT => Messages::text(),
            FW_BINARY => Messages::binary(),
            other => {
                return Err(Failure::invalid(format!("kind={other}: FW_TEXT or FW_BINARY is wanted")));
            }
        };
        // SAFETY: as the caller promises.
        let policy = unsafe { config.policy.make() }?;
        let (file, served) = policy.serve(|policy| {
            // SAFETY: as the caller promises.
            let settings = unsafe { config.apply(SinkConfig::new(policy)) }?.framing(messages);
            let (file, stream) = (duplicate(fd)?, TcpStream::from(duplicate(fd)?));
            let made = object.with(|sender| sender.add_sink(stream, settings).map_err(Failure::from))?;
            Ok((file, enter(SinkObject::new(object, made))?))
        })?;
        let most = if max_message_bytes == 0 { MAX_MESSAGE_BYTES } else { max_message_bytes };
        let made = served.find()?;
        let changes = watch(&file, &made).inspect_err(|_| drop(served.free()))?;
        let object = WebSocketObject {
            file,
            changes,
            sink: made,
            inner: Mutex::new(Inner::new(most)),
            is_closed: AtomicBool::new(false),
        };
        object.take_in(&mut object.lock(), leftover);
        let made = enter(object).inspect_err(|_| drop(served.free()))?;
        websocket.put(made)?;
        sink.put(served)
    })
}

/// Writes a descriptor that wakes `poll` when the client has sent something or left, or when the sink has ended. It also wakes it
/// now and then without a reason. Call fw_websocket_next then, with a timeout of 0. It is the WebSocket's own, the same at each call and valid until
/// fw_websocket_free: do not close it or read from it.
///
/// # Safety
///
/// `fd` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_websocket_fd(websocket: fw_websocket, fd: *mut c_int) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let fd = unsafe { Out::new("fd", fd, -1) }?;
        let object = websocket.find()?;
        fd.put(object.changes.as_raw_fd())
    })
}

/// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for the client's next message, and copies it to `buffer`. Answers
/// pings and the close meanwhile, and pings a client that is silent for 15 s, so call it every few seconds also where no message is expected. A client that
/// does not answer within 30 s has left. FW_NOTHING: none came. FW_END: the client
/// or this side has closed, the sink has ended, or the client broke the protocol; fw_websocket_ended tells more. FW_SMALL_BUFFER:
/// the message has `message->len` bytes, and waits for a call with a larger buffer.
///
/// # Safety
///
/// `buffer` points to `size` writable bytes, `message` to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_websocket_next(
    websocket: fw_websocket,
    timeout: u64,
    buffer: *mut u8,
    size: usize,
    message: *mut fw_websocket_message,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let message = unsafe { Out::new("message", message, fw_websocket_message::default()) }?;
        let object = websocket.find()?;
        let until = until(timeout);
        let mut inner = object.lock();
        while inner.messages.is_empty() {
            if inner.has_ended || object.is_over() {
                return Ok(fw_status::FW_END);
            }
            // The engine's own notes wake this too, with nothing to read.
            let next = inner.keepalive.next().min(until);
            if is_readable(&object.changes, next)? && object.read(&mut inner)? {
                continue;
            }
            object.keep_alive(&mut inner);
            if freshwire::now() >= until && !inner.has_ended {
                return Ok(fw_status::FW_NOTHING);
            }
        }
        let Some((kind, payload)) = inner.messages.front() else { return Ok(fw_status::FW_NOTHING) };
        let found = fw_websocket_message { len: payload.len(), kind: *kind };
        message.put(found)?;
        // SAFETY: as the caller promises.
        unsafe { copy_out(payload, buffer, size) }?;
        inner.messages.pop_front();
        Ok(fw_status::FW_OK)
    })
}

/// Writes the code of the client's close frame, or of the one that answered a breach of the protocol, which fw_last_error explains; 0
/// if there was none. FW_NOTHING: the client may still send.
///
/// # Safety
///
/// `code` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_websocket_ended(websocket: fw_websocket, code: *mut u16) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let code = unsafe { Out::new("code", code, 0) }?;
        let object = websocket.find()?;
        let inner = object.lock();
        if !inner.has_ended && !object.is_over() {
            return Ok(fw_status::FW_NOTHING);
        }
        if let Some(violation) = &inner.violation {
            note(violation);
        }
        code.put(inner.code)
    })
}

/// Ends the connection: the message in progress, then the close frame. Returns at once; fw_sink_close waits until both were sent. `reason`
/// may be NULL, and is cut to 123 bytes.
///
/// # Safety
///
/// `reason` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_websocket_close(
    websocket: fw_websocket,
    code: u16,
    reason: *const c_char,
) -> fw_status {
    call(|| {
        let reason = if reason.is_null() { c"".as_ptr() } else { reason };
        // SAFETY: as the caller promises.
        let reason = unsafe { text("reason", reason) }?;
        let object = websocket.find()?;
        let mut frame = Vec::new();
        websocket::close(code, reason, &mut frame);
        object.finish(frame);
        Ok(fw_status::FW_OK)
    })
}

/// Frees a WebSocket. Its sink continues until fw_sink_free, but the client's pings and close are not answered any more.
#[unsafe(no_mangle)]
pub extern "C" fn fw_websocket_free(websocket: fw_websocket) -> fw_status {
    call(|| websocket.free().map(done))
}

/// A file that is readable when the client has sent something, and from the sink's end on.
fn watch(file: &OwnedFd, sink: &SinkObject) -> Result<OwnedFd> {
    let changes = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
    let end = sink.end_event()?;
    for (token, source) in [(0, file.as_fd()), (1, end.as_fd())] {
        let data = epoll::EventData::new_u64(token);
        // A file stays added for as long as it is open somewhere: the socket here, the event in the sink.
        epoll::add(&changes, source, data, epoll::EventFlags::IN).map_err(std::io::Error::from)?;
    }
    Ok(changes)
}

impl Inner {
    fn new(max_message_bytes: usize) -> Self {
        let reader = Reader::new(Role::Server, max_message_bytes);
        let keepalive = Keepalive::default();
        Self { reader, messages: VecDeque::new(), code: 0, violation: None, has_ended: false, keepalive }
    }
}

impl WebSocketObject {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Nothing more is sent.
    fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) || self.sink.has_ended()
    }

    /// Reads what is there, once. Returns `false` if there is nothing.
    fn read(&self, inner: &mut Inner) -> Result<bool> {
        let mut buffer = [0; READ_BYTES];
        match recv(&self.file, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((count @ 1.., _)) => self.take_in(inner, &buffer[..count]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            // A client that resets the connection has left, as one that closes it.
            Ok((0, _)) | Err(rustix::io::Errno::CONNRESET | rustix::io::Errno::PIPE) => {
                inner.has_ended = true;
                self.finish(Vec::new());
            }
            Err(error) => return Err(Failure::from(std::io::Error::from(error))),
        }
        Ok(true)
    }

    /// Pings a silent client, and ends the connection of a client without an answer. Call it after all received bytes were read.
    fn keep_alive(&self, inner: &mut Inner) {
        let at = freshwire::now();
        inner.keepalive.acknowledged(&self.sink.stats(), at);
        let mut frame = Vec::new();
        match inner.keepalive.step(at) {
            KeepaliveStep::Wait => {}
            KeepaliveStep::Ping => {
                websocket::ping(&[], &mut frame);
                self.sink.interject(frame);
            }
            KeepaliveStep::End => {
                (inner.code, inner.has_ended) = (UNEXPECTED, true);
                inner.violation = Some("no answer to a ping".to_owned());
                websocket::close(UNEXPECTED, "no answer to a ping", &mut frame);
                self.finish(frame);
            }
        }
    }

    /// Takes in what the client has sent, and answers it.
    fn take_in(&self, inner: &mut Inner, bytes: &[u8]) {
        if !bytes.is_empty() {
            inner.keepalive.heard(freshwire::now());
        }
        inner.reader.push(bytes);
        for event in inner.reader.by_ref() {
            match event {
                Ok(Event::Text(text)) => inner.messages.push_back((FW_TEXT, text.into_bytes())),
                Ok(Event::Binary(bytes)) => inner.messages.push_back((FW_BINARY, bytes)),
                Ok(Event::Close { code, .. }) => inner.code = code.unwrap_or(0),
                Ok(Event::Ping(_) | Event::Pong(_)) => {}
                Err(violation) => {
                    (inner.code, inner.violation) = (violation.code(), Some(violation.to_string()));
                }
            }
        }
        let output = inner.reader.take_output();
        if inner.reader.is_closed() {
            inner.has_ended = true;
            self.finish(output);
        } else if !output.is_empty() {
            self.sink.interject(output);
        }
    }

    /// Ends the stream with these bytes.
    fn finish(&self, last: Vec<u8>) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            self.sink.finish_with(last);
        }
    }
}
