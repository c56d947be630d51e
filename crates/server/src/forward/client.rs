//! The client's side of RTMP up to the first picture: handshake, `connect`, `createStream`, `publish`.

use std::net::SocketAddr;
use std::time::Duration;

use freshwire_media::framing::rtmp::CHUNK_BYTES;
use freshwire_media::rtmp::amf0::{Value, object};
use freshwire_media::rtmp::{Message, kind};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::error::ForwardError;
use crate::config::Target;
use crate::net::Conn;
use crate::rtmp::wire::{
    self, COMMANDS, CONTROL, Command, FOUR_CC, Incoming, MOST_COMMAND_BYTES, Wire, WireError,
};
use crate::tls;

/// The time that a server has for each step, such as its handshake or the answer to a command. As for the answers of cameras.
const PATIENCE: Duration = Duration::from_secs(10);

/// What we call ourselves. Some platforms know encoders by "FMLE".
const NAME: &str = concat!("FMLE/3.0 (compatible; freshwire ", env!("CARGO_PKG_VERSION"), ")");

/// User control events (RTMP 1.0, 7.1.7).
const PING_REQUEST: [u8; 2] = [0, 6];
const PING_RESPONSE: [u8; 2] = [0, 7];

/// A connection whose server waits for pictures.
pub(super) struct Publishing {
    pub(super) conn: Conn,
    pub(super) incoming: Incoming,
    /// The number of the message stream.
    pub(super) message_stream: u32,
    /// The server has said which codecs of Enhanced RTMP it takes.
    pub(super) is_enhanced: bool,
}

/// Makes the server take the stream.
pub(super) async fn publish(target: &Target) -> Result<Publishing, ForwardError> {
    let socket = within("connect", TcpStream::connect((target.host.as_str(), target.port))).await?;
    let socket = socket.map_err(ForwardError::Connect)?;
    let conn = within("establish TLS", secure(target, socket)).await??;
    const SHAKE: &str = "shake hands";
    let wire = within(SHAKE, Wire::connect(conn, MOST_COMMAND_BYTES)).await?;
    let mut client = Client { wire: wire.map_err(|error| of_wire(error, SHAKE))? };
    let properties = within("open the application", client.open(target)).await??;
    let message_stream = within("make a stream", client.create_stream()).await??;
    within("take the stream", client.publish(target, message_stream)).await??;
    let is_enhanced = properties.iter().any(|value| value.get("fourCcList").is_some());
    let (conn, incoming) = client.wire.into_parts();
    Ok(Publishing { conn, incoming, message_stream, is_enhanced })
}

async fn within<T>(step: &'static str, future: impl Future<Output = T>) -> Result<T, ForwardError> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| ForwardError::Slow(PATIENCE, step))
}

fn of_wire(error: WireError, step: &'static str) -> ForwardError {
    match error {
        WireError::Closed | WireError::Io(_) => ForwardError::Closed(step),
        error => ForwardError::Protocol(error.to_string()),
    }
}

/// Encrypts the connection, if the target wants it.
async fn secure(target: &Target, socket: TcpStream) -> Result<Conn, ForwardError> {
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
    wire: Wire<Conn>,
}

impl Client {
    /// The server's properties, and its state.
    async fn open(&mut self, target: &Target) -> Result<Vec<Value>, ForwardError> {
        const STEP: &str = "open the application";
        let codecs = FOUR_CC.map(Value::from).into();
        let properties = object([
            ("app", target.app.as_str().into()),
            ("type", "nonprivate".into()),
            ("flashVer", NAME.into()),
            ("tcUrl", target.app_url().as_str().into()),
            ("fourCcList", Value::Array(codecs)),
        ]);
        self.send(command("connect", 1, 0, vec![properties]), STEP).await?;
        let info = self.result(1, STEP).await?;
        let size = wire::control(kind::SET_CHUNK_SIZE, CHUNK_BYTES);
        self.write(&[(CONTROL, size)], STEP).await?;
        Ok(info)
    }

    async fn create_stream(&mut self) -> Result<u32, ForwardError> {
        const STEP: &str = "make a stream";
        self.send(command("createStream", 2, 0, vec![Value::Null]), STEP).await?;
        let number = self.result(2, STEP).await?.get(1).and_then(Value::as_number);
        let number = number.filter(|number| (0.0..=f64::from(u32::MAX)).contains(number));
        let missing = || ForwardError::Protocol("the answer to createStream has no number".to_owned());
        number.map(|number| number as u32).ok_or_else(missing)
    }

    async fn publish(&mut self, target: &Target, message_stream: u32) -> Result<(), ForwardError> {
        const STEP: &str = "take the stream";
        let key = || Value::from(target.key());
        // Servers of Adobe's kind want both before; others do not answer.
        self.send(command("releaseStream", 3, 0, vec![Value::Null, key()]), STEP).await?;
        self.send(command("FCPublish", 4, 0, vec![Value::Null, key()]), STEP).await?;
        let values = vec![Value::Null, key(), "live".into()];
        self.send(command("publish", 5, message_stream, values), STEP).await?;
        loop {
            let command = self.command(STEP).await?;
            match (command.name.as_str(), Status::of(&command)) {
                ("onStatus", Some(Status { code: Some("NetStream.Publish.Start"), .. })) => return Ok(()),
                ("onStatus", Some(status)) if status.is_error() => {
                    return Err(ForwardError::Refused { step: STEP, reason: status.text() });
                }
                ("_error", status) if command.transaction == 5.0 => {
                    return Err(ForwardError::Refused { step: STEP, reason: reason(status) });
                }
                _ => {}
            }
        }
    }

    /// The values of the answer to a command.
    async fn result(&mut self, transaction: u32, step: &'static str) -> Result<Vec<Value>, ForwardError> {
        loop {
            let command = self.command(step).await?;
            if command.transaction != f64::from(transaction) {
                continue;
            }
            match command.name.as_str() {
                "_result" => return Ok(command.values),
                "_error" => return Err(ForwardError::Refused { step, reason: reason(Status::of(&command)) }),
                _ => {}
            }
        }
    }

    /// The next command.
    async fn command(&mut self, step: &'static str) -> Result<Command, ForwardError> {
        loop {
            let message = self.wire.next().await.map_err(|error| of_wire(error, step))?;
            let mut answers: Vec<_> = pong(&message).into_iter().collect();
            answers.extend(self.wire.due_acknowledgement());
            let answers: Vec<_> = answers.into_iter().map(|answer| (CONTROL, answer)).collect();
            if !answers.is_empty() {
                self.write(&answers, step).await?;
            }
            if is_command(&message) {
                return Command::read(&message).map_err(|error| of_wire(error, step));
            }
        }
    }

    async fn send(&mut self, command: Command, step: &'static str) -> Result<(), ForwardError> {
        self.write(&[(COMMANDS, command.message())], step).await
    }

    async fn write(&mut self, messages: &[(u8, Message)], step: &'static str) -> Result<(), ForwardError> {
        self.wire.write(messages).await.map_err(|error| of_wire(error, step))
    }
}

fn command(name: &str, transaction: u32, stream: u32, values: Vec<Value>) -> Command {
    Command { name: name.to_owned(), transaction: transaction.into(), values, stream }
}

fn is_command(message: &Message) -> bool {
    matches!(message.kind, kind::COMMAND | kind::COMMAND_AMF3)
}

/// The answer to a ping.
fn pong(message: &Message) -> Option<Message> {
    let at = message.body.strip_prefix(&PING_REQUEST).filter(|_| message.kind == kind::USER_CONTROL)?;
    let body = [&PING_RESPONSE, at.get(..4)?].concat();
    Some(Message { body, ..wire::control(kind::USER_CONTROL, 0) })
}

/// Takes a message of a server that gets the stream. Adds the bytes of an answer to `out`. A command is for the caller.
pub(super) fn take(message: &Message, out: &mut Vec<u8>) -> Result<Option<Command>, ForwardError> {
    if let Some(pong) = pong(message) {
        write(CONTROL, &pong, out);
    }
    let command = is_command(message).then(|| Command::read(message)).transpose();
    command.map_err(|error| ForwardError::Protocol(error.to_string()))
}

/// Adds a message to `out` for a server that knows the size of our chunks.
pub(super) fn write(chunk_stream: u8, message: &Message, out: &mut Vec<u8>) {
    message.write(chunk_stream, CHUNK_BYTES as usize, out);
}

/// The bytes that end the stream.
pub(super) fn farewell(key: &str, message_stream: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let number = Value::Number(message_stream.into());
    for command in [
        command("FCUnpublish", 6, 0, vec![Value::Null, key.into()]),
        command("deleteStream", 7, 0, vec![Value::Null, number]),
    ] {
        write(COMMANDS, &command.message(), &mut bytes);
    }
    bytes
}

/// What a server says of a stream.
pub(super) struct Status<'a> {
    level: Option<&'a str>,
    code: Option<&'a str>,
    description: Option<&'a str>,
}

impl<'a> Status<'a> {
    /// The status in a command's values.
    pub(super) fn of(command: &'a Command) -> Option<Self> {
        let is_status = |value: &&Value| value.get("code").is_some() || value.get("description").is_some();
        let info = command.values.iter().find(is_status)?;
        let text = |name: &str| info.get(name).and_then(Value::as_str);
        Some(Self { level: text("level"), code: text("code"), description: text("description") })
    }

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

fn reason(status: Option<Status<'_>>) -> String {
    status.map_or_else(|| "it gives no reason".to_owned(), |status| status.text())
}
