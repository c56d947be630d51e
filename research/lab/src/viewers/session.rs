//! A client of RTSP over TCP, as far as a measurement needs one.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, bail, ensure};
use freshwire_media::depacketize::Depacketizer;
use freshwire_media::sdp::{self, Media};
use freshwire_media::unit::Kind;

/// Longest body of an answer.
const MAX_BODY_BYTES: usize = 64 << 10;

/// The channel of the video's packets; the next one is for its reports.
pub(crate) const VIDEO_CHANNEL: u8 = 0;
/// The channel of the sound's packets.
pub(crate) const SOUND_CHANNEL: u8 = 2;

/// A connection to a server, from the first request on.
pub(crate) struct Session {
    input: BufReader<TcpStream>,
    output: TcpStream,
    id: Option<String>,
    sequence: u32,
    url: String,
}

struct Answer {
    body: Vec<u8>,
    /// `Content-Base`, which a track's address is relative to.
    base: Option<String>,
}

/// The video of a stream that is described so, and what puts its packets together.
pub(super) fn video(description: &[u8]) -> anyhow::Result<(Media, Depacketizer)> {
    track(description, Kind::Video)?.context("the stream has no video")
}

fn track(description: &[u8], kind: Kind) -> anyhow::Result<Option<(Media, Depacketizer)>> {
    let tracks = sdp::parse(description).context("the server's description")?;
    let Some(track) = tracks.into_iter().find(|track| track.kind == kind) else { return Ok(None) };
    let codec = track.codec.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
    let depacketizer = Depacketizer::new(&track, codec).context("a track of the server's")?;
    Ok(Some((track, depacketizer)))
}

/// The address of a track below that of its stream.
fn address(base: &str, track: &Media) -> String {
    match track.control.as_deref() {
        None | Some("*") => base.to_owned(),
        Some(whole) if whole.starts_with("rtsp://") => whole.to_owned(),
        Some(part) => format!("{}/{part}", base.trim_end_matches('/')),
    }
}

/// The depacketizers of a session's tracks.
pub(crate) struct Tracks {
    pub(crate) video: Depacketizer,
    pub(crate) sound: Option<Depacketizer>,
}

impl Session {
    /// Asks nothing yet. `url` is the stream's.
    pub(crate) fn new(socket: TcpStream, url: String) -> anyhow::Result<Self> {
        let input = BufReader::new(socket.try_clone().context("cannot duplicate a socket")?);
        Ok(Self { input, output: socket, id: None, sequence: 0, url })
    }

    /// Begins to play the video; what puts its packets together.
    pub(crate) fn play(&mut self) -> anyhow::Result<Depacketizer> {
        Ok(self.play_tracks(false)?.video)
    }

    /// Begins to play the video to this UDP port and the one after it.
    pub(crate) fn play_to(&mut self, port: u16) -> anyhow::Result<()> {
        let url = self.url.clone();
        let described = self.ask("DESCRIBE", &url, "Accept: application/sdp\r\n")?;
        let base = described.base.unwrap_or_else(|| url.clone());
        let (media, _) = video(&described.body)?;
        let transport = format!("Transport: RTP/AVP;unicast;client_port={port}-{}\r\n", port + 1);
        self.ask("SETUP", &address(&base, &media), &transport)?;
        self.ask("PLAY", &url, "Range: npt=0.000-\r\n")?;
        Ok(())
    }

    /// Begins to play the video, and the sound if that is wanted and there is any.
    pub(crate) fn play_tracks(&mut self, with_sound: bool) -> anyhow::Result<Tracks> {
        let url = self.url.clone();
        let described = self.ask("DESCRIBE", &url, "Accept: application/sdp\r\n")?;
        let base = described.base.unwrap_or_else(|| url.clone());
        let (media, video) = video(&described.body)?;
        self.set_up(&base, &media, VIDEO_CHANNEL)?;
        let sound = if with_sound { track(&described.body, Kind::Audio)? } else { None };
        if let Some((media, _)) = &sound {
            self.set_up(&base, media, SOUND_CHANNEL)?;
        }
        self.ask("PLAY", &url, "Range: npt=0.000-\r\n")?;
        Ok(Tracks { video, sound: sound.map(|(_, depacketizer)| depacketizer) })
    }

    fn set_up(&mut self, base: &str, track: &Media, channel: u8) -> anyhow::Result<()> {
        let control = address(base, track);
        let transport = format!("Transport: RTP/AVP/TCP;unicast;interleaved={channel}-{}\r\n", channel + 1);
        self.ask("SETUP", &control, &transport)?;
        Ok(())
    }

    /// The connection, and what has come over it behind the last answer.
    pub(crate) fn into_stream(self) -> (TcpStream, Vec<u8>) {
        (self.output, self.input.buffer().to_vec())
    }

    /// Tells the server that somebody is there: sessions last a minute.
    pub(crate) fn keep_alive(&mut self) -> io::Result<()> {
        let url = self.url.clone();
        self.request("GET_PARAMETER", &url, "")
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

    /// The next answer. Packets before it are for nobody: a server may begin to play before it has said so.
    fn answer(&mut self) -> anyhow::Result<Answer> {
        while self.is_record_next()? {
            self.interleaved()?;
        }
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

    /// The next packet of the video; `None` for anything else.
    pub(super) fn record(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(self.packet()?.and_then(|(channel, bytes)| (channel == VIDEO_CHANNEL).then_some(bytes)))
    }

    /// The next packet and its channel; `None` for an answer.
    pub(crate) fn packet(&mut self) -> anyhow::Result<Option<(u8, Vec<u8>)>> {
        if !self.is_record_next()? {
            self.answer()?;
            return Ok(None);
        }
        Ok(Some(self.interleaved()?))
    }

    fn is_record_next(&mut self) -> anyhow::Result<bool> {
        Ok(*self.input.fill_buf()?.first().context("the connection has ended")? == b'$')
    }

    fn interleaved(&mut self) -> anyhow::Result<(u8, Vec<u8>)> {
        let mut head = [0; 4];
        self.input.read_exact(&mut head)?;
        let [_, channel, high, low] = head;
        let mut bytes = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        self.input.read_exact(&mut bytes)?;
        Ok((channel, bytes))
    }
}
