//! ICE over TCP (RFC 6544), for clients in networks that let no datagrams through. Packets have their length in front (RFC 4571).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use str0m::net::Protocol;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::outlet::TcpOutlet;
use super::session::Arrival;
use super::sessions::WebRtc;
use crate::context::Context;
use crate::net::canonical;

/// The largest packet that is read: more than any that WebRTC sends.
const MOST_BYTES: usize = 2000;

/// The pause when the system has no descriptor for a connection.
const EXHAUSTED: Duration = Duration::from_millis(200);

/// Takes connections until the server stops.
pub(super) async fn accept(webrtc: &Arc<WebRtc>, context: &Arc<Context>) {
    let listener = webrtc.port.listener.try_clone().and_then(TcpListener::from_std);
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "WebRTC takes no TCP connections");
            return;
        }
    };
    let mut shutdown = context.shutdown.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // A sender that is gone has stopped, too.
            _ = shutdown.wait_for(|&stops| stops) => return,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "WebRTC could not take a TCP connection");
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            }
        };
        let peer = canonical(peer);
        match context.admission.admit(peer.ip()) {
            Ok(permit) => {
                let (webrtc, context) = (Arc::clone(webrtc), Arc::clone(context));
                context.tasks.clone().spawn("WebRTC over TCP", async move {
                    let _permit = permit;
                    let mut shutdown = context.shutdown.clone();
                    tokio::select! {
                        ended = attend(socket, peer, &webrtc, &context) => {
                            if let Err(error) = ended {
                                tracing::debug!(%peer, %error, "a connection of WebRTC has ended");
                            }
                        }
                        _ = shutdown.wait_for(|&stops| stops) => {}
                    }
                });
            }
            Err(limit) => tracing::info!(%peer, limit, "refused a connection"),
        }
    }
}

/// Reads packets until the connection or its session ends. The first one has to prove that its sender knows the password of a session.
async fn attend(
    mut socket: TcpStream,
    peer: SocketAddr,
    webrtc: &WebRtc,
    context: &Context,
) -> io::Result<()> {
    let _ = socket.set_nodelay(true);
    let outlet = Arc::new(TcpOutlet::new(&socket)?);
    let mut buffer = vec![0; MOST_BYTES];
    let limits = context.limits();
    let mut patience = limits.handshake_timeout;
    let deadline = tokio::time::Instant::now() + limits.handshake_timeout;
    let mut session = None;
    loop {
        let packet = read(&mut socket, &mut buffer);
        let length = tokio::time::timeout(patience, packet).await.map_err(io::Error::from)??;
        let bytes = buffer.get(..length).unwrap_or_default();
        let (at, outlet) = (Instant::now(), Some(&outlet));
        let arrival = Arrival { at, protocol: Protocol::Tcp, from: peer, to: None, bytes, outlet };
        session = webrtc.deliver(&arrival).or(session);
        if let Some(session) = &session {
            if session.has_ended() {
                return Err(io::Error::other("its session has ended"));
            }
            patience = limits.keepalive_timeout;
        } else if tokio::time::Instant::now() >= deadline {
            return Err(io::Error::other("it belongs to no session"));
        }
    }
}

/// Reads a packet and returns its length.
async fn read(socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let length = usize::from(socket.read_u16().await?);
    let too_large = || io::Error::new(io::ErrorKind::InvalidData, "a packet is too large");
    socket.read_exact(buffer.get_mut(..length).ok_or_else(too_large)?).await?;
    Ok(length)
}
