//! A viewer that notes when each access unit is whole and whether it is as it was encoded.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_media::depacketize::{Depacketizer, Packet};
use freshwire_netns::Namespaces;

use super::clip::{Clip, is_repetition};
use super::player::Sight;
use super::server;
use super::session::Session;

/// Interval of keep-alives: sessions last a minute.
const ALIVE_EVERY: Duration = Duration::from_secs(20);

/// The probe at work.
#[derive(Debug)]
pub(crate) struct Running {
    socket: TcpStream,
    thread: JoinHandle<anyhow::Result<Sight>>,
}

impl Running {
    /// Connects from the far namespace and begins to play.
    pub(super) fn start(namespaces: &Namespaces, clip: Arc<Clip>) -> anyhow::Result<Self> {
        let socket = namespaces
            .in_far(|| TcpStream::connect(server::address()))?
            .context("the probe cannot connect across the link")?;
        Self::over(socket, server::url(), clip)
    }

    /// Begins to play the stream `url` over a connection to its server.
    pub(crate) fn over(socket: TcpStream, url: String, clip: Arc<Clip>) -> anyhow::Result<Self> {
        let reader = socket.try_clone().context("cannot duplicate a socket")?;
        let thread = std::thread::spawn(move || {
            let mut session = Session::new(reader, url)?;
            let depacketizer = session.play()?;
            let sight = Mutex::default();
            watch(session, depacketizer, &clip, &sight);
            Ok(sight.into_inner().unwrap_or_else(PoisonError::into_inner))
        });
        Ok(Self { socket, thread })
    }

    /// Ends it; what it had seen by then.
    pub(crate) fn stop(self) -> anyhow::Result<Sight> {
        // Fails only when the server has closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.thread.join().map_err(|_| anyhow::anyhow!("the probe panicked"))?
    }
}

/// Reads until the connection ends, and notes what comes.
pub(crate) fn watch(mut session: Session, mut depacketizer: Depacketizer, clip: &Clip, sight: &Mutex<Sight>) {
    let lock = || sight.lock().unwrap_or_else(PoisonError::into_inner);
    let mut next_alive = freshwire_io::now() + ALIVE_EVERY;
    while let Ok(record) = session.record() {
        let now = freshwire_io::now();
        if let Some(packet) = record.as_deref().and_then(|bytes| Packet::parse(bytes).ok()) {
            depacketizer.push(&packet);
        }
        while let Some(frame) = depacketizer.poll_frame() {
            match clip.identify(&frame.bytes) {
                Some(picture) => lock().seen.push((now, picture)),
                None if is_repetition(&frame.bytes) => {}
                None => lock().damaged += 1,
            }
        }
        if now >= next_alive {
            next_alive = now + ALIVE_EVERY;
            if session.keep_alive().is_err() {
                break;
            }
        }
    }
    let damage = depacketizer.damage();
    lock().damaged += damage.frames + damage.lost + damage.malformed;
}
