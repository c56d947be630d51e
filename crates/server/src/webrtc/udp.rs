//! The port of all sessions: which datagram is whose.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire_io::udp::{ReceiveBuffer, UdpSocket};
use str0m::ice::StunMessage;
use str0m::net::Protocol;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::session::{Arrival, Session};
use super::sessions::WebRtc;
use crate::context::Context;

/// Batches of datagrams that are taken before other tasks have their turn.
const BATCHES: usize = 16;

/// The pause after an error of the port, which may be one of memory.
const PAUSE: Duration = Duration::from_secs(1);

/// Takes datagrams until the server stops.
pub(super) async fn receive(webrtc: &WebRtc, context: &Context) {
    let mut shutdown = context.shutdown.clone();
    let read = async {
        loop {
            if let Err(error) = run(webrtc).await {
                tracing::error!(%error, "the WebRTC port cannot be read; another attempt follows in {PAUSE:?}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = read => {}
        // A sender that is gone has stopped, too.
        _ = shutdown.wait_for(|&stops| stops) => {}
    }
}

async fn run(webrtc: &WebRtc) -> io::Result<()> {
    let port = &webrtc.port;
    let socket = UdpSocket::from_std(port.socket.try_clone()?)?;
    #[allow(deprecated, reason = "its successor is unsafe code, for types that may change their descriptor")]
    let ready = AsyncFd::with_interest(port.socket.try_clone()?, Interest::READABLE)?;
    let mut buffer = ReceiveBuffer::default();
    loop {
        let mut readable = ready.readable().await?;
        let mut is_empty = false;
        for _ in 0..BATCHES {
            match socket.receive(&mut buffer) {
                Ok(true) => {}
                Ok(false) => {
                    is_empty = true;
                    break;
                }
                // The answer to an earlier datagram: that client's port is closed.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            }
            let at = Instant::now();
            for datagram in buffer.datagrams() {
                let (from, to) = (datagram.from, datagram.to);
                let (protocol, bytes) = (Protocol::Udp, &*datagram.bytes);
                let arrival = Arrival { at, protocol, from, to, bytes, outlet: None };
                webrtc.deliver(&arrival);
            }
        }
        if is_empty {
            readable.clear_ready();
        }
        tokio::task::yield_now().await;
    }
}

impl WebRtc {
    /// Gives what arrived to its session: the one that has the address, or else the one whose password a STUN request proves to know.
    /// Returns it, unless nobody's it was.
    pub(super) fn deliver(&self, arrival: &Arrival<'_>) -> Option<Arc<Session>> {
        let known = self.sessions().at(arrival.from);
        if let Some(session) = known
            && session.take(arrival)
        {
            return Some(session);
        }
        let session = self.asked_for(arrival.bytes)?;
        session.take(arrival).then(|| {
            self.learn(&session, arrival.from);
            session
        })
    }

    /// The session that a STUN request names.
    fn asked_for(&self, bytes: &[u8]) -> Option<Arc<Session>> {
        // RFC 7983: STUN begins with 0 or 1.
        if bytes.first().is_none_or(|&first| first > 1) {
            return None;
        }
        let message = StunMessage::parse(bytes).ok()?;
        let (local, _) = message.split_username()?;
        self.sessions().of_ufrag(local)
    }

    fn learn(&self, session: &Arc<Session>, address: SocketAddr) {
        self.sessions().learn(session, address);
    }
}
