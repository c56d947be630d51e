//! The client's side of RTMP up to the first picture: handshake, `connect`, `createStream`, `publish`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use freshwire_media::framing::rtmp::CHUNK_BYTES;
use freshwire_media::framing::rtmp::amf::Value;
use rtmp_rs::amf::AmfValue;
use rtmp_rs::protocol::chunk::RtmpChunk;
use rtmp_rs::protocol::message::{Command, UserControlEvent};
use rtmp_rs::protocol::{ChunkEncoder, Handshake, HandshakeRole, RtmpMessage};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::error::ForwardError;
use super::inbound::Inbound;
use crate::config::Target;
use crate::net::Conn;
use crate::tls;

/// The time that a server has for each step, such as its handshake or the answer to a command. As for the answers of cameras.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What we call ourselves. Some platforms know encoders by "FMLE".
const NAME: &str = concat!("FMLE/3.0 (compatible; freshwire ", env!("CARGO_PKG_VERSION"), ")");

/// Codecs that the framing can carry and RTMP 1.0 does not have.
const FOUR_CC: [&str; 4] = ["hvc1", "av01", "vp09", "Opus"];

/// Bytes of the handshake's two packets after the version (RTMP 1.0, 5.2).
const HANDSHAKE_ANSWER: usize = 1 + 2 * 1536;

/// A connection whose server waits for pictures.
pub(super) struct Publishing {
    pub(super) conn: Conn,
    pub(super) answers: Answers,
    /// The number of the message stream.
    pub(super) message_stream: u32,
    /// The server has said which codecs of Enhanced RTMP it takes.
    pub(super) is_enhanced: bool,
}

/// Reads a server's messages, and writes what they ask for.
#[derive(Default)]
pub(super) struct Answers {
    inbound: Inbound,
    encoder: ChunkEncoder,
    /// Bytes read, and those of them that the server knows of.
    read: u64,
    acknowledged: u64,
    /// After so many bytes it wants to know.
    window: Option<u32>,
}

/// Makes the server take the stream.
pub(super) async fn publish(target: &Target) -> Result<Publishing, ForwardError> {
    let conn = within("connect", connect(target)).await??;
    let mut client = Client { conn, answers: Answers::default() };
    within("shake hands", client.shake_hands()).await??;
    let info = within("open the application", client.open(target)).await??;
    let message_stream = within("make a stream", client.create_stream()).await??;
    within("take the stream", client.publish(target, message_stream)).await??;
    let is_enhanced = info.as_object().is_some_and(|info| info.contains_key("fourCcList"));
    Ok(Publishing { conn: client.conn, answers: client.answers, message_stream, is_enhanced })
}

async fn within<T>(step: &'static str, future: impl Future<Output = T>) -> Result<T, ForwardError> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| ForwardError::Slow(PATIENCE, step))
}

async fn connect(target: &Target) -> Result<Conn, ForwardError> {
    let socket =
        TcpStream::connect((target.host.as_str(), target.port)).await.map_err(ForwardError::Connect)?;
    // Commands are small and answered. A socket that is gone already says so at the next read.
    let _ = socket.set_nodelay(true);
    if !target.tls {
        return Ok(Conn::plain(socket)?);
    }
    let peer: SocketAddr = socket.peer_addr()?;
    let name = ServerName::try_from(target.host.clone()).map_err(|error| {
        ForwardError::Tls(std::io::Error::new(std::io::ErrorKind::InvalidInput, error.to_string()))
    })?;
    let stream = tls::connector().map_err(ForwardError::Tls)?.connect(name, socket).await;
    Ok(Conn::to_server(stream.map_err(ForwardError::Tls)?.into(), peer))
}

struct Client {
    conn: Conn,
    answers: Answers,
}

impl Client {
    async fn shake_hands(&mut self) -> Result<(), ForwardError> {
        let mut handshake = Handshake::new(HandshakeRole::Client);
        let first = handshake.generate_initial().unwrap_or_default();
        self.write(&first).await?;
        let mut answer = vec![0; HANDSHAKE_ANSWER];
        self.conn.read_exact(&mut answer).await.map_err(|_| ForwardError::Closed("shake hands"))?;
        let protocol = |error: rtmp_rs::Error| ForwardError::Protocol(error.to_string());
        let last = handshake.process(&mut Bytes::from(answer)).map_err(protocol)?.unwrap_or_default();
        self.write(&last).await
    }

    /// The server's properties.
    async fn open(&mut self, target: &Target) -> Result<AmfValue, ForwardError> {
        const STEP: &str = "open the application";
        let url = target.app_url();
        let properties = [
            ("app", Value::Text(&target.app)),
            ("type", Value::Text("nonprivate")),
            ("flashVer", Value::Text(NAME)),
            ("tcUrl", Value::Text(&url)),
            ("fourCcList", Value::Texts(&FOUR_CC)),
        ];
        self.command("connect", 1, 0, &[Value::Object(&properties)]).await?;
        let info = self.result(1, STEP).await?;
        self.send(&RtmpMessage::SetChunkSize(CHUNK_BYTES)).await?;
        self.answers.encoder.set_chunk_size(CHUNK_BYTES);
        Ok(info)
    }

    async fn create_stream(&mut self) -> Result<u32, ForwardError> {
        const STEP: &str = "make a stream";
        self.command("createStream", 2, 0, &[Value::Null]).await?;
        let number = self.result(2, STEP).await?.as_number();
        let number = number.filter(|number| (0.0..=f64::from(u32::MAX)).contains(number));
        number
            .map(|number| number as u32)
            .ok_or_else(|| ForwardError::Protocol("createStream has no number".to_owned()))
    }

    async fn publish(&mut self, target: &Target, message_stream: u32) -> Result<(), ForwardError> {
        const STEP: &str = "take the stream";
        let key = Value::Text(target.key());
        // Servers of Adobe's kind want both before; others do not answer.
        self.command("releaseStream", 3, 0, &[Value::Null, key]).await?;
        self.command("FCPublish", 4, 0, &[Value::Null, key]).await?;
        self.command("publish", 5, message_stream, &[Value::Null, key, Value::Text("live")]).await?;
        loop {
            let RtmpMessage::Command(command) = self.message(STEP).await? else { continue };
            match (command.name.as_str(), status(&command)) {
                ("onStatus", Some(Status { code: Some("NetStream.Publish.Start"), .. })) => return Ok(()),
                ("onStatus", Some(status)) if status.is_error() => {
                    return Err(ForwardError::Refused { step: STEP, reason: status.text() });
                }
                ("_error", status) if command.transaction_id == 5.0 => {
                    return Err(ForwardError::Refused { step: STEP, reason: reason(status) });
                }
                _ => {}
            }
        }
    }

    /// The answer to a command: its second value, or the first if that is all.
    async fn result(&mut self, transaction: u32, step: &'static str) -> Result<AmfValue, ForwardError> {
        loop {
            let RtmpMessage::Command(command) = self.message(step).await? else { continue };
            if command.transaction_id != f64::from(transaction) {
                continue;
            }
            match command.name.as_str() {
                "_result" => {
                    return Ok(command.arguments.into_iter().next().unwrap_or(command.command_object));
                }
                "_error" => {
                    return Err(ForwardError::Refused { step, reason: reason(status(&command)) });
                }
                _ => {}
            }
        }
    }

    /// The next message that is for the caller.
    async fn message(&mut self, step: &'static str) -> Result<RtmpMessage, ForwardError> {
        let mut buffer = [0; 4096];
        loop {
            let mut out = Vec::new();
            let message = self.answers.next(&mut out)?;
            if !out.is_empty() {
                self.write(&out).await?;
            }
            if let Some(message) = message {
                return Ok(message);
            }
            match self.conn.read(&mut buffer).await {
                Ok(0) | Err(_) => return Err(ForwardError::Closed(step)),
                Ok(count) => self.answers.push(&buffer[..count]),
            }
        }
    }

    async fn command(
        &mut self,
        name: &str,
        transaction: u32,
        message_stream: u32,
        values: &[Value<'_>],
    ) -> Result<(), ForwardError> {
        let bytes = self.answers.command(name, transaction, message_stream, values);
        self.write(&bytes).await
    }

    async fn send(&mut self, message: &RtmpMessage) -> Result<(), ForwardError> {
        let bytes = self.answers.encode(message);
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), ForwardError> {
        self.conn.write_all(bytes).await?;
        Ok(self.conn.flush().await?)
    }
}

impl Answers {
    /// Takes over bytes that were read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.read += bytes.len() as u64;
        self.inbound.push(bytes);
    }

    /// The next message that the protocol itself does not answer; `None`: more bytes have to be read. Adds answers to `out`.
    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<RtmpMessage>, ForwardError> {
        let protocol = |error: super::inbound::InboundError| ForwardError::Protocol(error.to_string());
        loop {
            let message = self.inbound.next().map_err(protocol)?;
            if self.window.is_some_and(|window| self.read - self.acknowledged >= u64::from(window.max(1))) {
                self.acknowledged = self.read;
                // The number wraps (RTMP 1.0, 5.4.3).
                let acknowledgement = RtmpMessage::Acknowledgement { sequence: self.read as u32 };
                out.extend(self.encode(&acknowledgement));
            }
            match message {
                Some(RtmpMessage::WindowAckSize(window)) => self.window = Some(window),
                Some(RtmpMessage::UserControl(UserControlEvent::PingRequest(at))) => {
                    let pong = RtmpMessage::UserControl(UserControlEvent::PingResponse(at));
                    out.extend(self.encode(&pong));
                }
                message => return Ok(message),
            }
        }
    }

    /// The bytes that end the stream.
    pub(super) fn farewell(&mut self, key: &str, message_stream: u32) -> Vec<u8> {
        let mut bytes = self.command("FCUnpublish", 6, 0, &[Value::Null, Value::Text(key)]);
        let number = Value::Number(message_stream.into());
        bytes.extend(self.command("deleteStream", 7, 0, &[Value::Null, number]));
        bytes
    }

    fn command(&mut self, name: &str, transaction: u32, stream_id: u32, values: &[Value<'_>]) -> Vec<u8> {
        const COMMAND: u8 = 20;
        let mut payload = Vec::new();
        for value in [Value::Text(name), Value::Number(transaction.into())].iter().chain(values) {
            value.write(&mut payload);
        }
        self.chunks(3, COMMAND, stream_id, payload.into())
    }

    fn encode(&mut self, message: &RtmpMessage) -> Vec<u8> {
        let (kind, payload) = message.encode();
        self.chunks(2, kind, 0, payload)
    }

    fn chunks(&mut self, csid: u32, message_type: u8, stream_id: u32, payload: Bytes) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        self.encoder.encode(&RtmpChunk { csid, timestamp: 0, message_type, stream_id, payload }, &mut bytes);
        bytes.to_vec()
    }
}

/// What a server says of a stream.
pub(super) struct Status<'a> {
    level: Option<&'a str>,
    code: Option<&'a str>,
    description: Option<&'a str>,
}

/// The status in a command's values.
pub(super) fn status(command: &Command) -> Option<Status<'_>> {
    let info = command.arguments.first().unwrap_or(&command.command_object);
    info.as_object()?;
    Some(Status {
        level: info.get_string("level"),
        code: info.get_string("code"),
        description: info.get_string("description"),
    })
}

fn reason(status: Option<Status<'_>>) -> String {
    status.map_or_else(|| "it gives no reason".to_owned(), |status| status.text())
}

impl Status<'_> {
    /// The stream is not taken, or not any more.
    pub(super) fn is_error(&self) -> bool {
        let is_bad =
            |code: &str| ["BadName", "Failed", "Denied", "Unauthorized"].iter().any(|bad| code.contains(bad));
        self.level == Some("error") || self.code.is_some_and(is_bad)
    }

    /// For people. It is another program's, so it may be of any length and have any characters.
    pub(super) fn text(&self) -> String {
        let parts = [self.code, self.description].into_iter().flatten().filter(|part| !part.is_empty());
        let text = parts.collect::<Vec<_>>().join(": ");
        let shown: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        if shown.is_empty() { "it gives no reason".to_owned() } else { shown }
    }
}
