//! RTP over UDP, from publishers.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use freshwire::now;
use freshwire_media::depacketize::Reorder;
use rustix::net::sockopt;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::channel::Channel;
use super::udp::{Ports, with_port};

/// The datagrams of a session's tracks, each track's RTP packets in order.
#[derive(Debug)]
pub(crate) struct Receiver {
    tracks: BTreeMap<usize, Track>,
    arrivals: mpsc::Receiver<(Channel, Vec<u8>)>,
    to: mpsc::Sender<(Channel, Vec<u8>)>,
}

#[derive(Debug)]
struct Track {
    order: Reorder,
    rtcp: Arc<UdpSocket>,
    /// Where reports go; `None`: the socket is connected, or nobody knows.
    reports_to: Option<SocketAddr>,
    /// End when dropped.
    _listeners: JoinSet<()>,
}

impl Receiver {
    /// Without tracks.
    pub(crate) fn new() -> Self {
        let (to, arrivals) = mpsc::channel(QUEUED_DATAGRAMS);
        Self { tracks: BTreeMap::new(), arrivals, to }
    }

    /// Listens for the track at this place of the description. Needs a Tokio runtime.
    pub(crate) fn add(&mut self, index: usize, ports: Ports) -> io::Result<()> {
        self.listen_on(index, ports, None, None)
    }

    /// The same for ports that are not connected: takes what comes from this address, whatever port, and sends reports to
    /// its port `rtcp`, if that is known.
    pub(crate) fn add_from(
        &mut self,
        index: usize,
        ports: Ports,
        from: SocketAddr,
        rtcp: Option<u16>,
    ) -> io::Result<()> {
        self.listen_on(index, ports, Some(from.ip()), rtcp.map(|port| with_port(from, port)))
    }

    fn listen_on(
        &mut self,
        index: usize,
        ports: Ports,
        from: Option<IpAddr>,
        reports_to: Option<SocketAddr>,
    ) -> io::Result<()> {
        let (rtp, rtcp) = ports.into_sockets();
        // A key picture comes at once. Beyond the system's limit only with CAP_NET_ADMIN; then as much as there may be.
        sockopt::set_socket_recv_buffer_size_force(&rtp, RECEIVE_BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&rtp, RECEIVE_BUFFER))?;
        let rtp = Arc::new(UdpSocket::from_std(rtp)?);
        let rtcp = Arc::new(UdpSocket::from_std(rtcp)?);
        let mut listeners = JoinSet::new();
        for (socket, channel) in [(rtp, Channel::Rtp(index)), (Arc::clone(&rtcp), Channel::Rtcp(index))] {
            listeners.spawn(listen(socket, from, channel, self.to.clone()));
        }
        self.tracks
            .insert(index, Track { order: Reorder::default(), rtcp, reports_to, _listeners: listeners });
        Ok(())
    }

    /// No longer listens for a track.
    pub(crate) fn remove(&mut self, index: usize) {
        self.tracks.remove(&index);
    }

    /// Whether it listens for any track.
    pub(crate) fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }

    /// The next packet. Nothing is lost if it is given up waiting for.
    pub(crate) async fn next(&mut self) -> (Channel, Vec<u8>) {
        loop {
            let at = now();
            for (&index, track) in &mut self.tracks {
                if let Some(packet) = track.order.pop(at) {
                    return (Channel::Rtp(index), packet);
                }
            }
            let deadline = self.tracks.values().filter_map(|track| track.order.deadline()).min();
            let arrival = match deadline {
                None => self.arrivals.recv().await,
                Some(deadline) => {
                    let waited = tokio::time::timeout(deadline.saturating_since(at), self.arrivals.recv());
                    waited.await.unwrap_or_default()
                }
            };
            match arrival {
                Some((Channel::Rtp(index), packet)) => {
                    if let Some(track) = self.tracks.get_mut(&index) {
                        track.order.push(packet, now());
                    }
                }
                Some(report) => return report,
                None => {}
            }
        }
    }

    /// Sends a report about a track; `false` if that is not received here.
    pub(crate) fn report(&self, index: usize, packet: &[u8]) -> bool {
        self.tracks.get(&index).is_some_and(|track| {
            track.send(packet);
            true
        })
    }

    /// Sends a report about each track.
    pub(crate) fn report_all(&self, packet: &[u8]) {
        self.tracks.values().for_each(|track| track.send(packet));
    }
}

impl Track {
    fn send(&self, packet: &[u8]) {
        // One that the socket does not take is lost, as on the way.
        let _ = match self.reports_to {
            Some(to) => self.rtcp.try_send_to(packet, to),
            None => self.rtcp.try_send(packet),
        };
    }
}

async fn listen(
    socket: Arc<UdpSocket>,
    from: Option<IpAddr>,
    channel: Channel,
    to: mpsc::Sender<(Channel, Vec<u8>)>,
) {
    let mut datagram = vec![0; LARGEST_DATAGRAM];
    loop {
        match socket.recv_from(&mut datagram).await {
            Ok((_, sender)) if from.is_some_and(|from| from.to_canonical() != sender.ip().to_canonical()) => {
            }
            Ok((bytes, _)) => {
                let packet = datagram.get(..bytes).unwrap_or_default().to_vec();
                if to.send((channel, packet)).await.is_err() {
                    return;
                }
            }
            // The client's port was closed for what was sent to it; it may open again.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return,
        }
    }
}

const LARGEST_DATAGRAM: usize = 1 << 16;
/// Until the session takes them; then they wait in the socket.
const QUEUED_DATAGRAMS: usize = 256;
const RECEIVE_BUFFER: usize = 4 << 20;
