//! The client's side of RTMP over a blocking socket, for the publisher that drops by a rule and for the player.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::{Buf as _, Bytes, BytesMut};
use rtmp_rs::amf::AmfValue;
use rtmp_rs::protocol::chunk::{ChunkDecoder, ChunkEncoder, RtmpChunk};
use rtmp_rs::protocol::constants::{
    CSID_AUDIO, CSID_COMMAND, CSID_PROTOCOL_CONTROL, CSID_VIDEO, MSG_AUDIO, MSG_COMMAND_AMF0,
    MSG_SET_CHUNK_SIZE,
};
use rtmp_rs::protocol::handshake::{Handshake, HandshakeRole};
use rtmp_rs::protocol::message::{Command, RtmpMessage};

/// Where the server's application is; each run has a stream of its own in it.
pub(super) const APPLICATION: &str = "live";
pub(super) const PORT: u16 = 1935;

/// Bytes of a chunk, as OBS sends them (`m_outChunkSize` in plugins/obs-outputs/rtmp-stream.c).
const CHUNK_BYTES: u32 = 4096;

/// How long the server may take for an answer while the connection is set up. Afterwards reads may wait for ever.
const PATIENCE: Duration = Duration::from_secs(10);

const READ_BYTES: usize = 64 << 10;

/// A connection to an RTMP server.
pub(super) struct Client {
    socket: TcpStream,
    decoder: ChunkDecoder,
    encoder: ChunkEncoder,
    incoming: BytesMut,
    outgoing: BytesMut,
    stream: u32,
}

/// The URL of a stream, as programs take it.
pub(super) fn url(host: Ipv4Addr, key: &str) -> String {
    format!("rtmp://{host}:{PORT}/{APPLICATION}/{key}")
}

impl Client {
    /// Shakes hands, connects to the application and creates a stream.
    pub(super) fn open(socket: TcpStream) -> anyhow::Result<Self> {
        socket.set_nodelay(true).context("cannot set a socket up")?;
        socket.set_read_timeout(Some(PATIENCE)).context("cannot set a socket up")?;
        let server: SocketAddr = socket.peer_addr().context("the server has no address")?;
        let mut client = Self {
            socket,
            decoder: ChunkDecoder::new(),
            encoder: ChunkEncoder::new(),
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            stream: 0,
        };
        client.shake_hands()?;
        let text = |text: String| AmfValue::String(text);
        let about = [
            ("app", text(APPLICATION.to_owned())),
            ("type", text("nonprivate".to_owned())),
            ("tcUrl", text(format!("rtmp://{server}/{APPLICATION}"))),
        ];
        let about = AmfValue::Object(about.map(|(name, value)| (name.to_owned(), value)).into());
        client.command("connect", 1.0, about, Vec::new())?;
        client.answer(|answer| answer.name == "_result")?;
        client.command("createStream", 2.0, AmfValue::Null, Vec::new())?;
        let created = client.answer(|answer| answer.name == "_result")?;
        let Some(AmfValue::Number(stream)) = created.arguments.first() else {
            bail!("the server has not numbered the stream: {created:?}")
        };
        client.stream = *stream as u32;
        Ok(client)
    }

    /// Starts to publish.
    pub(super) fn publish(&mut self, key: &str) -> anyhow::Result<()> {
        self.encoder.set_chunk_size(CHUNK_BYTES);
        let size = Bytes::copy_from_slice(&CHUNK_BYTES.to_be_bytes());
        self.write(CSID_PROTOCOL_CONTROL, MSG_SET_CHUNK_SIZE, 0, 0, size)?;
        let live = AmfValue::String("live".to_owned());
        self.command("publish", 3.0, AmfValue::Null, vec![AmfValue::String(key.to_owned()), live])?;
        self.wait_for("NetStream.Publish.Start")
    }

    /// Starts to play; a stream that nobody publishes yet is waited for by the server.
    pub(super) fn play(&mut self, key: &str) -> anyhow::Result<()> {
        self.command("play", 3.0, AmfValue::Null, vec![AmfValue::String(key.to_owned())])?;
        self.wait_for("NetStream.Play.Start")
    }

    /// Sends a message of the stream; waits while the socket takes no more.
    pub(super) fn send(&mut self, kind: u8, timestamp_ms: u32, payload: Bytes) -> anyhow::Result<()> {
        let channel = if kind == MSG_AUDIO { CSID_AUDIO } else { CSID_VIDEO };
        self.write(channel, kind, timestamp_ms, self.stream, payload)
    }

    /// The next message; `None` at the stream's end.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<RtmpChunk>> {
        loop {
            // Without a message it has taken a chunk, or needs more bytes.
            loop {
                let before = self.incoming.len();
                if let Some(message) = self.decoder.decode(&mut self.incoming)? {
                    if let (MSG_SET_CHUNK_SIZE, Ok(RtmpMessage::SetChunkSize(size))) =
                        (message.message_type, RtmpMessage::from_chunk(&message))
                    {
                        self.decoder.set_chunk_size(size);
                    }
                    return Ok(Some(message));
                }
                if self.incoming.len() == before {
                    break;
                }
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// The socket, to end the connection from another thread.
    pub(super) fn socket(&self) -> std::io::Result<TcpStream> {
        self.socket.try_clone()
    }

    /// Reads whatever comes, without a limit to the wait.
    pub(super) fn wait_without_limit(&self) -> std::io::Result<()> {
        self.socket.set_read_timeout(None)
    }

    fn shake_hands(&mut self) -> anyhow::Result<()> {
        let mut handshake = Handshake::new(HandshakeRole::Client);
        let hello = handshake.generate_initial().context("the handshake does not begin")?;
        self.socket.write_all(&hello).context("cannot shake hands")?;
        while !handshake.is_done() {
            ensure!(self.read()?, "the server ended the handshake");
            let mut bytes = Bytes::copy_from_slice(&self.incoming);
            if let Some(answer) = handshake.process(&mut bytes)? {
                self.socket.write_all(&answer).context("cannot shake hands")?;
            }
            self.incoming.advance(self.incoming.len() - bytes.len());
        }
        Ok(())
    }

    fn command(
        &mut self,
        name: &str,
        transaction: f64,
        object: AmfValue,
        arguments: Vec<AmfValue>,
    ) -> anyhow::Result<()> {
        let command = Command {
            name: name.to_owned(),
            transaction_id: transaction,
            command_object: object,
            arguments,
            stream_id: self.stream,
        };
        let (kind, payload) = RtmpMessage::Command(command).encode();
        self.write(CSID_COMMAND, kind, 0, self.stream, payload)
    }

    /// The first answer that is the wanted one; others are skipped.
    fn answer(&mut self, is_wanted: impl Fn(&Command) -> bool) -> anyhow::Result<Command> {
        while let Some(message) = self.next()? {
            if message.message_type != MSG_COMMAND_AMF0 {
                continue;
            }
            if let RtmpMessage::Command(answer) = RtmpMessage::from_chunk(&message)? {
                ensure!(answer.name != "_error", "the server refused: {answer:?}");
                if is_wanted(&answer) {
                    return Ok(answer);
                }
            }
        }
        bail!("the server ended the connection")
    }

    fn wait_for(&mut self, code: &str) -> anyhow::Result<()> {
        self.answer(|answer| {
            let values = answer.arguments.iter();
            values.into_iter().any(|value| match value {
                AmfValue::Object(status) => status.get("code") == Some(&AmfValue::String(code.to_owned())),
                _ => false,
            })
        })
        .with_context(|| format!("no {code}"))?;
        Ok(())
    }

    fn write(
        &mut self,
        channel: u32,
        kind: u8,
        timestamp: u32,
        stream: u32,
        payload: Bytes,
    ) -> anyhow::Result<()> {
        let message = RtmpChunk { csid: channel, timestamp, message_type: kind, stream_id: stream, payload };
        self.outgoing.clear();
        self.encoder.encode(&message, &mut self.outgoing);
        self.socket.write_all(&self.outgoing).context("cannot send to the RTMP server")
    }

    fn read(&mut self) -> anyhow::Result<bool> {
        let begin = self.incoming.len();
        self.incoming.resize(begin + READ_BYTES, 0);
        let read = self.socket.read(&mut self.incoming[begin..]);
        self.incoming.truncate(begin + read.as_ref().copied().unwrap_or(0));
        Ok(read.context("cannot read from the RTMP server")? > 0)
    }
}
