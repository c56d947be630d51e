//! A viewer that comes back whenever its server has gone.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use freshwire_record::Timestamp;

use super::wires::Dialer;
use crate::viewers::clip::Clip;
use crate::viewers::player::Sight;
use crate::viewers::probe;
use crate::viewers::session::Session;

/// The pause before it connects again.
const PAUSE: Duration = Duration::from_millis(100);

struct Shared {
    stops: AtomicBool,
    socket: Mutex<Option<TcpStream>>,
    sight: Mutex<Sight>,
}

/// A viewer at work. Dropping it ends it.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Views the stream `live` of an RTSP server.
    pub(super) fn start(dialer: Dialer, server: SocketAddr, clip: &Arc<Clip>) -> Self {
        let shared = Arc::new(Shared {
            stops: AtomicBool::new(false),
            socket: Mutex::default(),
            sight: Mutex::default(),
        });
        let (mine, clip) = (Arc::clone(&shared), Arc::clone(clip));
        let thread = std::thread::spawn(move || {
            while !mine.stops.load(Ordering::Relaxed) {
                // A server that is away is what it is there for.
                let _ = watch(&dialer, server, &clip, &mine);
                std::thread::sleep(PAUSE);
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// What it has seen since an instant: when each picture was there, and its number.
    pub(super) fn seen_since(&self, from: Timestamp) -> Vec<(Timestamp, u32)> {
        let sight = self.shared.sight.lock().unwrap_or_else(PoisonError::into_inner);
        sight.seen.iter().copied().filter(|(at, _)| *at >= from).collect()
    }

    /// Pictures that were not as they were encoded.
    pub(super) fn damaged(&self) -> u64 {
        self.shared.sight.lock().unwrap_or_else(PoisonError::into_inner).damaged
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        if let Some(socket) = &*self.shared.socket.lock().unwrap_or_else(PoisonError::into_inner) {
            // Fails only when the server has closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

fn watch(dialer: &Dialer, server: SocketAddr, clip: &Clip, shared: &Shared) -> anyhow::Result<()> {
    let socket = dialer.connect(server)?;
    *shared.socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket.try_clone()?);
    let mut session = Session::new(socket, format!("rtsp://{server}/live"))?;
    let depacketizer = session.play()?;
    probe::watch(session, depacketizer, clip, &shared.sight);
    Ok(())
}
