//! The viewer: reads without a pause, and notes when each picture was whole.

use std::io::Read as _;
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_media::depacketize::{Depacketizer, Packet};
use freshwire_record::Timestamp;

use super::plain::{self, Header};
use crate::viewers::session::{SOUND_CHANNEL, Session, Tracks, VIDEO_CHANNEL};

/// Interval of keep-alives: sessions last a minute.
const ALIVE_EVERY: Duration = Duration::from_secs(20);

/// Overhead of interleaving for each packet.
const INTERLEAVED_HEADER_BYTES: usize = 4;

/// A whole picture.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// When the last byte was there.
    pub(super) at: Timestamp,
    /// Its presentation time, on a clock of [`super::source::TICKS`] with an origin that the sender chose.
    pub(super) ticks: i64,
    pub(super) bytes: Vec<u8>,
}

/// All that a viewer received.
#[derive(Debug, Default)]
pub(super) struct ViewerLog {
    /// Its pictures, in order of arrival.
    pub(super) frames: Vec<Frame>,
    /// When frames of sound were there.
    pub(super) sound: Vec<Timestamp>,
    /// Times and sizes of reads, in bytes.
    pub(super) reads: Vec<(Timestamp, usize)>,
    /// Packets that were missing or broken.
    pub(super) damage: u64,
    /// When the sender had agreed to play.
    pub(super) joined: Option<Timestamp>,
    /// Why it ended before it was stopped.
    pub(super) ended: Option<String>,
}

/// A viewer at work.
#[derive(Debug)]
pub(super) struct Viewer {
    socket: TcpStream,
    thread: JoinHandle<anyhow::Result<ViewerLog>>,
}

impl Viewer {
    /// Asks a server for the stream `url` over a connection to it, and views.
    pub(super) fn of_server(socket: TcpStream, url: String, with_sound: bool) -> anyhow::Result<Self> {
        Self::start(socket, move |socket| {
            let mut session = Session::new(socket, url)?;
            let tracks = session.play_tracks(with_sound)?;
            Ok(watch(session, tracks))
        })
    }

    /// Reads what [`plain::send`] writes.
    pub(super) fn of_plain(socket: TcpStream) -> anyhow::Result<Self> {
        Self::start(socket, |socket| Ok(read_plain(socket)))
    }

    fn start(
        socket: TcpStream,
        view: impl FnOnce(TcpStream) -> anyhow::Result<ViewerLog> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let reader = socket.try_clone().context("cannot duplicate a socket")?;
        Ok(Self { socket, thread: std::thread::spawn(move || view(reader)) })
    }

    /// Ends it.
    pub(super) fn stop(self) -> anyhow::Result<ViewerLog> {
        let has_ended = self.thread.is_finished();
        // Fails only when the sender has closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
        let mut seen = self.thread.join().map_err(|_| anyhow::anyhow!("the viewer panicked"))??;
        seen.ended = seen.ended.filter(|_| has_ended);
        Ok(seen)
    }
}

/// Reads until the connection ends.
fn watch(mut session: Session, mut tracks: Tracks) -> ViewerLog {
    let mut seen = ViewerLog { joined: Some(freshwire_io::now()), ..ViewerLog::default() };
    let mut next_alive = freshwire_io::now() + ALIVE_EVERY;
    loop {
        let packet = match session.packet() {
            Ok(packet) => packet,
            Err(error) => {
                seen.ended = Some(format!("{error:#}"));
                break;
            }
        };
        let now = freshwire_io::now();
        if let Some((channel, bytes)) = packet {
            seen.reads.push((now, bytes.len() + INTERLEAVED_HEADER_BYTES));
            let track = match channel {
                VIDEO_CHANNEL => Some(&mut tracks.video),
                SOUND_CHANNEL => tracks.sound.as_mut(),
                _ => None,
            };
            if let (Some(track), Ok(packet)) = (track, Packet::parse(&bytes)) {
                track.push(&packet);
            }
        }
        while let Some(frame) = tracks.video.poll_frame() {
            seen.frames.push(Frame { at: now, ticks: frame.ticks, bytes: frame.bytes });
        }
        while tracks.sound.as_mut().and_then(Depacketizer::poll_frame).is_some() {
            seen.sound.push(now);
        }
        if now >= next_alive {
            next_alive = now + ALIVE_EVERY;
            // A connection that has ended is seen by the next read.
            let _ = session.keep_alive();
        }
    }
    for track in [Some(&tracks.video), tracks.sound.as_ref()].into_iter().flatten() {
        let damage = track.damage();
        seen.damage += damage.frames + damage.lost + damage.malformed;
    }
    seen
}

fn read_plain(mut socket: TcpStream) -> ViewerLog {
    let mut seen = ViewerLog { joined: Some(freshwire_io::now()), ..ViewerLog::default() };
    let mut buffer = vec![0; READ_BYTES];
    let mut pending = Vec::new();
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => seen.ended = Some("the connection has ended".to_owned()),
            Err(error) => seen.ended = Some(error.to_string()),
            Ok(length) => {
                let now = freshwire_io::now();
                seen.reads.push((now, length));
                pending.extend_from_slice(&buffer[..length]);
                while let Some((header, bytes)) = plain::take(&mut pending) {
                    match header {
                        Header::Picture(ticks) => seen.frames.push(Frame { at: now, ticks, bytes }),
                        Header::Sound => seen.sound.push(now),
                    }
                }
                continue;
            }
        }
        return seen;
    }
}

const READ_BYTES: usize = 64 << 10;
