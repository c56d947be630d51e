//! A reader of RTSP over TCP that notes when each access unit is whole and whether it is as it was encoded.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use freshwire_io::netns::Namespaces;
use freshwire_media::depacketize::{Depacketizer, Packet};
use freshwire_media::sdp;
use freshwire_media::unit::Kind;
use freshwire_units::Timestamp;

use super::clip::Clip;
use super::player::Sight;
use super::server;

/// Longest body of an answer.
const MAX_BODY_BYTES: usize = 64 << 10;
/// How often the server is told that somebody is there: sessions last a minute.
const ALIVE_EVERY: Duration = Duration::from_secs(20);

/// The probe at work.
#[derive(Debug)]
pub(super) struct Running {
    socket: TcpStream,
    thread: JoinHandle<anyhow::Result<Sight>>,
}

impl Running {
    /// Connects from the far namespace and begins to play.
    pub(super) fn start(namespaces: &Namespaces, clip: Arc<Clip>) -> anyhow::Result<Self> {
        let socket = namespaces
            .in_far(|| TcpStream::connect(server::address()))?
            .context("the probe cannot connect across the link")?;
        let reader = socket.try_clone().context("cannot duplicate a socket")?;
        let thread = std::thread::spawn(move || {
            let mut session = Session::new(reader)?;
            let depacketizer = session.play()?;
            Ok(session.watch(depacketizer, &clip))
        });
        Ok(Self { socket, thread })
    }

    /// Ends it; what it had seen by then.
    pub(super) fn stop(self) -> anyhow::Result<Sight> {
        // Fails only when the server has closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.thread.join().map_err(|_| anyhow::anyhow!("the probe panicked"))?
    }
}

struct Session {
    input: BufReader<TcpStream>,
    output: TcpStream,
    id: Option<String>,
    sequence: u32,
}

struct Answer {
    body: Vec<u8>,
    /// `Content-Base`, which a track's address is relative to.
    base: Option<String>,
}

impl Session {
    fn new(socket: TcpStream) -> anyhow::Result<Self> {
        let input = BufReader::new(socket.try_clone().context("cannot duplicate a socket")?);
        Ok(Self { input, output: socket, id: None, sequence: 0 })
    }

    fn play(&mut self) -> anyhow::Result<Depacketizer> {
        let described = self.ask("DESCRIBE", &server::url(), "Accept: application/sdp\r\n")?;
        let tracks = sdp::parse(&described.body).context("the server's description")?;
        let track =
            tracks.iter().find(|track| track.kind == Kind::Video).context("the stream has no video")?;
        let codec = track.codec.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
        let base = described.base.unwrap_or_else(server::url);
        let control = match track.control.as_deref() {
            None | Some("*") => base,
            Some(whole) if whole.starts_with("rtsp://") => whole.to_owned(),
            Some(part) => format!("{}/{part}", base.trim_end_matches('/')),
        };
        self.ask("SETUP", &control, "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n")?;
        self.ask("PLAY", &server::url(), "Range: npt=0.000-\r\n")?;
        Depacketizer::new(track, codec).context("the server's video")
    }

    fn request(&mut self, method: &str, url: &str, headers: &str) -> io::Result<()> {
        self.sequence += 1;
        let session = self.id.as_ref().map(|id| format!("Session: {id}\r\n")).unwrap_or_default();
        let request = format!("{method} {url} RTSP/1.0\r\nCSeq: {}\r\n{session}{headers}\r\n", self.sequence);
        self.output.write_all(request.as_bytes())
    }

    fn ask(&mut self, method: &str, url: &str, headers: &str) -> anyhow::Result<Answer> {
        self.request(method, url, headers).with_context(|| format!("cannot send {method}"))?;
        self.answer().with_context(|| format!("the answer to {method}"))
    }

    /// The next answer.
    fn answer(&mut self) -> anyhow::Result<Answer> {
        let status = self.line()?;
        ensure!(status.starts_with("RTSP/1.0 200"), "it is {status:?}");
        let mut answer = Answer { body: Vec::new(), base: None };
        let mut length = 0;
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().context("its Content-Length")?,
                "content-base" => answer.base = Some(value.to_owned()),
                "session" => self.id = value.split(';').next().map(str::to_owned),
                _ => {}
            }
        }
        ensure!(length <= MAX_BODY_BYTES, "it has a body of {length} bytes");
        answer.body.resize(length, 0);
        self.input.read_exact(&mut answer.body).context("its body")?;
        Ok(answer)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if (&mut self.input).take(MAX_BODY_BYTES as u64).read_line(&mut line).context("cannot read it")? == 0
        {
            bail!("the connection has ended");
        }
        Ok(line.trim_end().to_owned())
    }

    /// Reads until the connection ends.
    fn watch(&mut self, mut depacketizer: Depacketizer, clip: &Clip) -> Sight {
        let mut sight = Sight::default();
        let mut next_alive = freshwire_io::now() + ALIVE_EVERY;
        while let Ok(record) = self.record() {
            let now = freshwire_io::now();
            if let Some(packet) = record.as_deref().and_then(|bytes| Packet::parse(bytes).ok()) {
                depacketizer.push(&packet);
            }
            while let Some(frame) = depacketizer.poll_frame() {
                note(&mut sight, now, clip.identify(&frame.bytes));
            }
            if now >= next_alive {
                next_alive = now + ALIVE_EVERY;
                if self.request("GET_PARAMETER", &server::url(), "").is_err() {
                    break;
                }
            }
        }
        let damage = depacketizer.damage();
        sight.damaged += damage.frames + damage.lost + damage.malformed;
        sight
    }

    /// The next packet of the video; `None` for anything else.
    fn record(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let first = *self.input.fill_buf()?.first().context("the connection has ended")?;
        if first != b'$' {
            self.answer()?;
            return Ok(None);
        }
        let mut head = [0; 4];
        self.input.read_exact(&mut head)?;
        let [_, channel, high, low] = head;
        let mut bytes = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        self.input.read_exact(&mut bytes)?;
        Ok((channel == 0).then_some(bytes))
    }
}

fn note(sight: &mut Sight, now: Timestamp, picture: Option<u32>) {
    match picture {
        Some(picture) => sight.seen.push((now, picture)),
        None => sight.damaged += 1,
    }
}
