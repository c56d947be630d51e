//! A server, a publisher over RTMP that reports the server's answers, and the tags of what ffmpeg encodes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use freshwire_media::demux::{self, Demux, Event};
use freshwire_media::rtmp::amf0::{self, Value, object};
use freshwire_media::rtmp::{Bounds, HANDSHAKE_BYTES, Message, MessageReader, kind};
use freshwire_media::unit::{AudioCodec, Kind, Tracks, Unit, VideoCodec};
use freshwire_server::config::{Config, Listen};
use freshwire_server::hub::StreamSnapshot;
use freshwire_server::server::Server;
use tokio::runtime::Runtime;

/// A busy machine may be late by much.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Scene {
    pub(crate) runtime: Runtime,
    pub(crate) server: Server,
}

/// The settings of this text, on ports that are free.
pub(crate) fn config(text: &str) -> Config {
    let mut config = Config::parse(text, Path::new("freshwire.toml")).expect("settings");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let listen = Listen { plain: Some(any), tls: config.tls.as_ref().map(|_| any) };
    (config.rtsp, config.rtmp, config.http, config.internal) = (listen, listen, listen, None);
    config
}

impl Scene {
    pub(crate) fn new(text: &str) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(Server::start(config(text))).expect("it starts");
        Self { runtime, server }
    }

    pub(crate) fn address(&self, protocol: &str) -> SocketAddr {
        let mut all = self.server.addresses().iter();
        all.find(|address| address.protocol == protocol).expect("it is served").address
    }

    /// A publisher of `key` in the application `app`.
    pub(crate) fn publish(&self, app: &str, key: &str) -> Result<Client, String> {
        let mut client = Client::connect(self.address("rtmp"), app)?;
        client.publish(key)?;
        Ok(client)
    }

    pub(crate) fn snapshot(&self, stream: &str) -> Option<StreamSnapshot> {
        Some(self.server.context().hub.find(stream)?.snapshot())
    }

    /// Whether somebody publishes the stream.
    pub(crate) fn is_published(&self, stream: &str) -> bool {
        self.snapshot(stream).is_some_and(|stream| stream.origin.is_some())
    }

    pub(crate) fn units(&self, stream: &str) -> u64 {
        self.snapshot(stream).map_or(0, |stream| stream.units)
    }
}

/// A publisher.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    reader: MessageReader,
    transaction: f64,
    chunk_bytes: usize,
}

impl Client {
    /// A connection behind its handshake.
    pub(crate) fn open(address: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(address).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.write_all(&[3; 1 + HANDSHAKE_BYTES]).expect("sent");
        let mut answer = [0; 1 + 2 * HANDSHAKE_BYTES];
        socket.read_exact(&mut answer).expect("an answer");
        assert!(answer[0] == 3 && answer[5..9] == [0; 4], "no version, so that nobody asks for a digest");
        assert_eq!(answer[1 + HANDSHAKE_BYTES..], [3; HANDSHAKE_BYTES]);
        socket.write_all(&answer[1..=HANDSHAKE_BYTES]).expect("sent");
        let bounds = Bounds { message: 1 << 20, chunk_streams: 8 };
        Self { socket, reader: MessageReader::new(bounds), transaction: 0.0, chunk_bytes: 128 }
    }

    /// Connected to the application; the error has what the server says.
    pub(crate) fn connect(address: SocketAddr, app: &str) -> Result<Self, String> {
        let mut client = Self::open(address);
        let info =
            object([("app", app.into()), ("type", "nonprivate".into()), ("flashVer", "FMLE/3.0".into())]);
        let (name, values) = client.call("connect", vec![info]);
        let described =
            || values.last().and_then(|info| info.get("description")?.as_str().map(str::to_owned));
        if name == "_error" {
            return Err(described().expect("a description"));
        }
        client.send(kind::SET_CHUNK_SIZE, 0, 0, &60_000_u32.to_be_bytes());
        client.chunk_bytes = 60_000;
        Ok(client)
    }

    pub(crate) fn send(&mut self, kind: u8, stream: u32, timestamp: u32, body: &[u8]) {
        let message = Message { timestamp, kind, stream, body: body.to_vec() };
        let chunk_stream = match kind {
            kind::AUDIO => 4,
            kind::VIDEO => 6,
            kind::COMMAND => 3,
            _ => 2,
        };
        let mut bytes = Vec::new();
        message.write(chunk_stream, self.chunk_bytes, &mut bytes);
        self.socket.write_all(&bytes).expect("sent");
    }

    pub(crate) fn command(&mut self, name: &str, values: Vec<Value>) {
        self.transaction += 1.0;
        let values = [vec![name.into(), self.transaction.into()], values].concat();
        self.send(kind::COMMAND, 0, 0, &amf0::write_all(&values));
    }

    /// The answer to a command: its name and its values.
    pub(crate) fn call(&mut self, name: &str, values: Vec<Value>) -> (String, Vec<Value>) {
        self.command(name, values);
        let transaction = self.transaction;
        loop {
            let (name, answered, values) = self.heard().expect("an answer");
            if name.starts_with('_') && answered == transaction {
                return (name, values);
            }
        }
    }

    /// Publishes; the error has the code and the description.
    pub(crate) fn publish(&mut self, key: &str) -> Result<(), String> {
        for name in ["releaseStream", "FCPublish"] {
            self.command(name, vec![Value::Null, key.into()]);
        }
        let (_, stream) = self.call("createStream", vec![Value::Null]);
        assert_eq!(stream.last().and_then(Value::as_number), Some(1.0));
        self.command("publish", vec![Value::Null, key.into(), "live".into()]);
        match self.status() {
            Some(status) if status.starts_with("NetStream.Publish.Start") => Ok(()),
            status => Err(status.expect("a status")),
        }
    }

    /// The next status: its code and its description. `None` at the end.
    pub(crate) fn status(&mut self) -> Option<String> {
        loop {
            let (name, _, values) = self.heard()?;
            if name != "onStatus" {
                continue;
            }
            let text =
                |name: &str| values.last().and_then(|info| info.get(name)?.as_str()).unwrap_or_default();
            return Some(format!("{}: {}", text("code"), text("description")));
        }
    }

    /// The next command of the server. `None` at the end.
    fn heard(&mut self) -> Option<(String, f64, Vec<Value>)> {
        loop {
            let message = self.message()?;
            if message.kind == kind::COMMAND {
                let mut values = amf0::read_all(&message.body).expect("values").into_iter();
                let name = values.next()?.as_str()?.to_owned();
                return Some((name, values.next()?.as_number()?, values.collect()));
            }
        }
    }

    /// The next message. `None` at the end.
    pub(crate) fn message(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.reader.next() {
                return Some(message.expect("RTMP"));
            }
            let mut bytes = [0; 4096];
            match self.socket.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.reader.push(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// Sends the headers of the tracks, and all units, whose times are `later` milliseconds later.
    pub(crate) fn send_clip(&mut self, clip: &Clip, later: u32) {
        for (kind, tag) in clip.headers() {
            self.send(kind, 1, later, &tag);
        }
        for (kind, time, tag) in clip.tags() {
            self.send(kind, 1, later.wrapping_add(time), &tag);
        }
    }
}

/// What ffmpeg has encoded.
pub(crate) struct Clip {
    pub(crate) tracks: Tracks,
    pub(crate) units: Vec<Unit>,
}

impl Clip {
    /// Two seconds of pictures and sound by these encoders, in this container; `None` without ffmpeg.
    pub(crate) fn encode(video: &str, audio: &str, muxer: &str) -> Option<Self> {
        if !crate::testing::has("ffmpeg", "-version") {
            return None;
        }
        let source = "-nostdin -v error -f lavfi -i testsrc2=size=192x128:rate=25 -f lavfi -i sine=sample_rate=48000 -t 2";
        let coded = format!("-pix_fmt yuv420p -c:v {video} -g 25 -c:a {audio} -f {muxer} -");
        let arguments = source.split(' ').chain(coded.split(' '));
        let output = Command::new("ffmpeg").args(arguments).output().expect("ffmpeg runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut demux = Demux::new(demux::Config::default());
        demux.push(&output.stdout);
        demux.finish();
        let (mut tracks, mut units) = (Tracks::default(), Vec::new());
        for event in demux {
            match event.expect("readable") {
                Event::Tracks(new) => tracks = (*new).clone(),
                Event::Unit(unit) => units.push(unit),
            }
        }
        units.sort_by_key(|unit| unit.head.dts);
        Some(Self { tracks, units })
    }

    pub(crate) fn pictures(&self) -> usize {
        self.units.iter().filter(|unit| unit.head.kind == Kind::Video).count()
    }

    /// The sequence headers, in the tags of enhanced RTMP.
    pub(crate) fn headers(&self) -> Vec<(u8, Vec<u8>)> {
        let set = |nal: &[u8]| [&(nal.len() as u16).to_be_bytes(), nal].concat();
        let video = self.tracks.video.as_ref().map(|track| match &track.codec {
            VideoCodec::H264 { sps, pps } => {
                [b"\x90avc1\x01", &sps[1..4], b"\xff\xe1", &set(sps), &[1], &set(pps)].concat()
            }
            VideoCodec::H265 { vps, sps, pps } => {
                let array = |kind: u8, nal: &[u8]| [&[0x80 | kind, 0, 1], &set(nal)[..]].concat();
                let sets = [array(32, vps), array(33, sps), array(34, pps)].concat();
                [&b"\x90hvc1\x01"[..], &[0; 20], &[0xff, 3], &sets].concat()
            }
            VideoCodec::Av1 { sequence_header } => [b"\x90av01\x81\0\0\0", &sequence_header[..]].concat(),
            _ => b"\x90vp09\x01\0\0\0\0\x0a\x82\x02\x02\x02\0\0".to_vec(),
        });
        let audio = self.tracks.audio.as_ref().map(|track| match &track.codec {
            AudioCodec::Aac { config } => [&b"\x90mp4a"[..], config].concat(),
            _ => [b"\x90OpusOpusHead\x01", &[track.channels][..], &[0; 9]].concat(),
        });
        let tagged = |kind, tag: Option<Vec<u8>>| tag.map(|tag| (kind, tag));
        tagged(kind::VIDEO, video).into_iter().chain(tagged(kind::AUDIO, audio)).collect()
    }

    /// The units with their times in milliseconds, in the tags of enhanced RTMP.
    pub(crate) fn tags(&self) -> Vec<(u8, u32, Vec<u8>)> {
        let first = self.units.first().map_or(0, |unit| unit.head.dts.as_nanos());
        let milliseconds = |ns: i64| u32::try_from(ns / 1_000_000).expect("a short clip");
        self.units
            .iter()
            .map(|unit| {
                let time = milliseconds(unit.head.dts.as_nanos() - first);
                match (unit.head.kind, &self.tracks.video) {
                    (Kind::Video, Some(track)) => (kind::VIDEO, time, video_tag(&track.codec, unit)),
                    _ => {
                        let audio = self.tracks.audio.as_ref().map(|track| &track.codec);
                        let is_opus = matches!(audio, Some(AudioCodec::Opus));
                        let code: &[u8] = if is_opus { b"\x91Opus" } else { b"\x91mp4a" };
                        (kind::AUDIO, time, [code, &unit.bytes].concat())
                    }
                }
            })
            .collect()
    }
}

fn video_tag(codec: &VideoCodec, unit: &Unit) -> Vec<u8> {
    let shift = ((unit.head.pts.as_nanos() - unit.head.dts.as_nanos()) / 1_000_000) as u32;
    let frame: u8 = if unit.head.key { 0x90 } else { 0xa0 };
    let (code, is_cut) = match codec {
        VideoCodec::H264 { .. } => (b"avc1", true),
        VideoCodec::H265 { .. } => (b"hvc1", true),
        VideoCodec::Av1 { .. } => (b"av01", false),
        _ => (b"vp09", false),
    };
    if !is_cut {
        return [&[frame | 1], &code[..], &unit.bytes].concat();
    }
    // Where nothing is moved, the tag has no place for it.
    let head = if shift == 0 {
        [&[frame | 3], &code[..]].concat()
    } else {
        [&[frame | 1], &code[..], &shift.to_be_bytes()[1..]].concat()
    };
    let nal = |range: &std::ops::Range<u32>| {
        let nal = &unit.bytes[range.start as usize..range.end as usize];
        [&(nal.len() as u32).to_be_bytes(), nal].concat()
    };
    head.into_iter().chain(unit.head.nals.iter().flat_map(nal)).collect()
}
