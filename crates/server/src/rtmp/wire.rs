//! A connection that RTMP messages are read from and written to, for both sides: this server's, and a client's.

use std::io;
use std::time::{Duration, Instant};

use freshwire_media::rtmp::amf0::{self, AmfError, Value};
use freshwire_media::rtmp::{Bounds, ChunkError, HANDSHAKE_BYTES, Message, MessageReader, VERSION, kind};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Why no message comes any more, or none can be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the other side has closed the connection")]
    Closed,
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Handshake(&'static str),
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    #[error(transparent)]
    Amf(#[from] AmfError),
    #[error("a command of {0} bytes, more than {MOST_COMMAND_BYTES}")]
    Command(usize),
}

/// Largest message that is not of sound or pictures: commands and metadata have some hundred bytes.
pub(crate) const MOST_COMMAND_BYTES: usize = 64 << 10;
/// Chunk streams of a peer. Programs use fewer than ten.
const MOST_CHUNK_STREAMS: usize = 32;
/// Payload bytes of the chunks that are written.
pub(crate) const CHUNK_BYTES: usize = freshwire_media::framing::rtmp::CHUNK_BYTES as usize;
/// Codecs of Enhanced RTMP that are read and written.
pub(crate) const FOUR_CC: [&str; 4] = ["hvc1", "av01", "vp09", "Opus"];
/// The chunk stream of messages about the connection itself.
pub(crate) const CONTROL: u8 = 2;
/// The chunk stream of commands.
pub(crate) const COMMANDS: u8 = 3;
const READ_BYTES: usize = 16 << 10;
/// How long a peer may take to close its side.
const FAREWELL: Duration = Duration::from_secs(1);

/// One side of a connection behind its handshake.
pub(crate) struct Wire<S> {
    stream: S,
    incoming: Incoming,
    chunk: Box<[u8]>,
    /// When the first byte of an incomplete message came.
    partial_since: Option<Instant>,
    written_chunk_bytes: usize,
}

/// The messages of a peer, whoever reads their bytes.
pub(crate) struct Incoming {
    reader: MessageReader,
    /// After how many bytes the peer wants an acknowledgement; 0 for never.
    window: u32,
    acknowledged: u64,
    /// What the reader has cost when that was asked last.
    counted: u64,
}

impl Incoming {
    fn new(message_bytes: usize) -> Self {
        let bounds = Bounds { message: message_bytes, chunk_streams: MOST_CHUNK_STREAMS };
        Self { reader: MessageReader::new(bounds), window: 0, acknowledged: 0, counted: 0 }
    }

    /// Adds bytes that were read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.reader.push(bytes);
    }

    /// The next message; `None`: more bytes have to be read.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, WireError> {
        let Some(message) = self.reader.next().transpose()? else { return Ok(None) };
        if message.kind == kind::WINDOW_ACKNOWLEDGEMENT_SIZE {
            self.window = message.body.first_chunk().map_or(0, |size| u32::from_be_bytes(*size));
        }
        Ok(Some(message))
    }

    /// The acknowledgement that the peer waits for by now.
    pub(crate) fn due_acknowledgement(&mut self) -> Option<Message> {
        let taken = self.reader.taken();
        // Some programs wait for it at half of their window.
        if self.window == 0 || taken - self.acknowledged < u64::from(self.window / 2).max(1) {
            return None;
        }
        self.acknowledged = taken;
        Some(control(kind::ACKNOWLEDGEMENT, taken as u32))
    }
}

/// A command or data with its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Command {
    pub(crate) name: String,
    /// The number that the answer has to name; 0 of those without an answer.
    pub(crate) transaction: f64,
    /// The rest: the command's object, or null, and its arguments.
    pub(crate) values: Vec<Value>,
    /// The message stream that it is about.
    pub(crate) stream: u32,
}

impl Command {
    /// The command in a message of that kind.
    pub(crate) fn read(message: &Message) -> Result<Self, WireError> {
        let values = values(message)?;
        let mut values = values.into_iter();
        let name = values.next().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
        let transaction = values.next().and_then(|number| number.as_number()).unwrap_or(0.0);
        Ok(Self { name, transaction, values: values.collect(), stream: message.stream })
    }

    /// The text at this place behind the command's object.
    pub(crate) fn text(&self, argument: usize) -> Option<&str> {
        self.values.get(argument + 1).and_then(Value::as_str)
    }

    /// The message that says it.
    pub(crate) fn message(&self) -> Message {
        let head = [Value::from(self.name.as_str()), Value::Number(self.transaction)];
        let body = amf0::write_all(head.iter().chain(&self.values));
        Message { timestamp: 0, kind: kind::COMMAND, stream: self.stream, body }
    }
}

/// The values of a command or of data, whichever version of AMF it says it is in.
pub(crate) fn values(message: &Message) -> Result<Vec<Value>, WireError> {
    if message.body.len() > MOST_COMMAND_BYTES {
        return Err(WireError::Command(message.body.len()));
    }
    let is_amf3 = matches!(message.kind, kind::COMMAND_AMF3 | kind::DATA_AMF3);
    let body = message.body.get(usize::from(is_amf3)..).unwrap_or_default();
    Ok(amf0::read_all(body)?)
}

/// A control message with a number.
pub(crate) fn control(kind: u8, value: u32) -> Message {
    Message { timestamp: 0, kind, stream: 0, body: value.to_be_bytes().to_vec() }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// The handshake of a server. `message_bytes` bounds a message of sound or pictures. The caller limits the time.
    pub(crate) async fn accept(mut stream: S, message_bytes: usize) -> Result<Self, WireError> {
        match stream.read_u8().await.map_err(ended)? {
            VERSION..=5 | 7..=21 | 23..=31 => {}
            TLS_HANDSHAKE => {
                return Err(WireError::Handshake("it speaks TLS where none is; use the port of rtmps://"));
            }
            6 => return Err(WireError::Handshake("RTMPE is not supported; use rtmps://")),
            _ => return Err(WireError::Handshake("the bytes are no RTMP")),
        }
        let mut theirs = [0; HANDSHAKE_BYTES];
        stream.read_exact(&mut theirs).await.map_err(ended)?;
        let mut answer = vec![VERSION];
        answer.extend(own()?);
        answer.extend(theirs);
        stream.write_all(&answer).await?;
        stream.flush().await?;
        // The echo of ours. Programs are not exact about it, and nothing depends on it.
        stream.read_exact(&mut theirs).await.map_err(ended)?;
        Ok(Self::new(stream, message_bytes))
    }

    /// The handshake of a client.
    pub(crate) async fn connect(mut stream: S, message_bytes: usize) -> Result<Self, WireError> {
        let mut hello = vec![VERSION];
        hello.extend(own()?);
        stream.write_all(&hello).await?;
        stream.flush().await?;
        if stream.read_u8().await.map_err(ended)? != VERSION {
            return Err(WireError::Handshake("the server does not answer as an RTMP server does"));
        }
        let (mut theirs, mut echo) = ([0; HANDSHAKE_BYTES], [0; HANDSHAKE_BYTES]);
        stream.read_exact(&mut theirs).await.map_err(ended)?;
        stream.read_exact(&mut echo).await.map_err(ended)?;
        stream.write_all(&theirs).await?;
        stream.flush().await?;
        Ok(Self::new(stream, message_bytes))
    }

    fn new(stream: S, message_bytes: usize) -> Self {
        Self {
            stream,
            incoming: Incoming::new(message_bytes),
            chunk: vec![0; READ_BYTES].into_boxed_slice(),
            partial_since: None,
            written_chunk_bytes: freshwire_media::rtmp::DEFAULT_CHUNK_BYTES,
        }
    }

    /// Takes it apart: what was written has been flushed.
    pub(crate) fn into_parts(self) -> (S, Incoming) {
        (self.stream, self.incoming)
    }

    /// The next message. Nothing is lost if waiting for it is given up.
    pub(crate) async fn next(&mut self) -> Result<Message, WireError> {
        loop {
            if let Some(message) = self.read().await? {
                return Ok(message);
            }
        }
    }

    /// The next message; `None`: some bytes have come, and more are needed. Nothing is lost if waiting for it is given up.
    pub(crate) async fn read(&mut self) -> Result<Option<Message>, WireError> {
        if let Some(message) = self.incoming.next()? {
            self.partial_since = None;
            return Ok(Some(message));
        }
        if self.incoming.reader.is_partial() {
            self.partial_since.get_or_insert_with(Instant::now);
        } else {
            self.partial_since = None;
        }
        match self.stream.read(&mut self.chunk).await? {
            0 => return Err(WireError::Closed),
            count => self.incoming.push(self.chunk.get(..count).unwrap_or_default()),
        }
        Ok(None)
    }

    /// What reading has cost since this was asked last ([`MessageReader::cost`]).
    pub(crate) fn take_cost(&mut self) -> usize {
        let cost = self.incoming.reader.cost();
        let counted = std::mem::replace(&mut self.incoming.counted, cost);
        usize::try_from(cost - counted).unwrap_or(usize::MAX)
    }

    /// From here on messages may have this many bytes.
    pub(crate) fn limit_messages(&mut self, bytes: usize) {
        self.incoming.reader.limit_messages(bytes);
    }

    /// For how long a message has been incomplete.
    pub(crate) fn partial_for(&self) -> Option<Duration> {
        self.partial_since.map(|since| since.elapsed())
    }

    /// The acknowledgement that the peer waits for by now.
    pub(crate) fn due_acknowledgement(&mut self) -> Option<Message> {
        self.incoming.due_acknowledgement()
    }

    /// Writes messages, each on its chunk stream. Not to be given up waiting for. The caller limits the time.
    pub(crate) async fn write(&mut self, messages: &[(u8, Message)]) -> Result<(), WireError> {
        let mut bytes = Vec::new();
        for (chunk_stream, message) in messages {
            message.write(*chunk_stream, self.written_chunk_bytes, &mut bytes);
            if let (kind::SET_CHUNK_SIZE, Some(size)) = (message.kind, message.body.first_chunk()) {
                self.written_chunk_bytes = usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX);
            }
        }
        self.stream.write_all(&bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Closes the connection. What the peer still sends is read for a moment: a connection that is closed with unread bytes
    /// is reset, and the peer would not see what was written last.
    pub(crate) async fn close(mut self) {
        let drained = async {
            self.stream.shutdown().await?;
            while self.stream.read(&mut self.chunk).await? > 0 {}
            io::Result::Ok(())
        };
        // It ends one way or the other.
        let _ = tokio::time::timeout(FAREWELL, drained).await;
    }
}

/// A part of the handshake: no time, no version, which asks for no digest, and random bytes.
fn own() -> io::Result<[u8; HANDSHAKE_BYTES]> {
    let mut bytes = [0; HANDSHAKE_BYTES];
    getrandom::fill(bytes.get_mut(8..).unwrap_or_default()).map_err(io::Error::from)?;
    Ok(bytes)
}

fn ended(error: io::Error) -> WireError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => WireError::Closed,
        _ => error.into(),
    }
}

/// The first byte of a connection with TLS.
const TLS_HANDSHAKE: u8 = 22;
