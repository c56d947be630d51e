//! RTP over UDP, for viewers who ask for it; the ports also for those who publish so.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use freshwire_media::rtp::{Datagrams, Identity, Reports, Stream};
use freshwire_media::unit::{Kind, UnitHead};
use tokio::task::JoinSet;

use crate::hub::DatagramSink;

/// The sockets of one track. They are connected: what comes from elsewhere than the client's ports is not received, and
/// nothing is sent anywhere else.
#[derive(Debug)]
pub(crate) struct Ports {
    rtp: UdpSocket,
    rtcp: UdpSocket,
}

/// The same host, in the same zone, and another port.
pub(crate) fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

impl Ports {
    /// Two ports in a row, the first even, towards the client's ports.
    pub(crate) fn open(local: SocketAddr, client: SocketAddr, rtp: u16, rtcp: u16) -> io::Result<Self> {
        let ports = Self::bind(local)?;
        for (socket, port) in [(&ports.rtp, rtp), (&ports.rtcp, rtcp)] {
            socket.connect(with_port(client, port))?;
        }
        Ok(ports)
    }

    /// Two ports in a row, the first even, towards nobody yet.
    pub(crate) fn bind(local: SocketAddr) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let first = UdpSocket::bind(with_port(local, 0))?;
            let port = first.local_addr()?.port();
            // The partner of an odd port is the one below.
            let Ok(second) = UdpSocket::bind(with_port(local, port ^ 1)) else { continue };
            let (rtp, rtcp) = if port % 2 == 0 { (first, second) } else { (second, first) };
            rtp.set_nonblocking(true)?;
            rtcp.set_nonblocking(true)?;
            return Ok(Self { rtp, rtcp });
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no two UDP ports in a row are free"))
    }

    /// The numbers of the own ports.
    pub(crate) fn own(&self) -> io::Result<(u16, u16)> {
        Ok((self.rtp.local_addr()?.port(), self.rtcp.local_addr()?.port()))
    }

    /// Sends a datagram without content to both ports of a sender, so that firewalls let its datagrams in.
    pub(crate) fn greet(&self, sender: SocketAddr, rtp: u16, rtcp: u16) -> io::Result<()> {
        self.rtp.send_to(&[], with_port(sender, rtp))?;
        self.rtcp.send_to(&[], with_port(sender, rtcp)).map(|_| ())
    }

    /// What the answer to SETUP says of them.
    pub(crate) fn transport(&self) -> io::Result<String> {
        let [client, server] = [UdpSocket::peer_addr, UdpSocket::local_addr].map(|end| {
            let (rtp, rtcp) = (end(&self.rtp)?.port(), end(&self.rtcp)?.port());
            io::Result::Ok(format!("{rtp}-{rtcp}"))
        });
        Ok(format!("RTP/AVP;unicast;client_port={};server_port={}", client?, server?))
    }

    /// The socket for RTP and that for RTCP.
    pub(crate) fn into_sockets(self) -> (UdpSocket, UdpSocket) {
        (self.rtp, self.rtcp)
    }
}

/// A playing viewer, from its control connection's side. Dropping it ends the viewer.
#[derive(Debug)]
pub(super) struct Control {
    flags: Arc<Flags>,
    /// Read RTCP; end when dropped.
    _listeners: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Flags {
    gone: AtomicBool,
    paused: AtomicBool,
    heard: AtomicBool,
}

impl Control {
    pub(super) fn pause(&self, paused: bool) {
        self.flags.paused.store(paused, Ordering::Relaxed);
    }

    /// Whether RTCP has come since this was asked last.
    pub(super) fn was_heard(&self) -> bool {
        self.flags.heard.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.flags.gone.store(true, Ordering::Relaxed);
    }
}

/// Sends units as they are published. What a socket does not take at once is lost, as on the way.
#[derive(Debug)]
pub(super) struct UdpSink {
    video: Option<Track>,
    audio: Option<Track>,
    reports: Reports,
    flags: Arc<Flags>,
    report: Vec<u8>,
    awaits_key: bool,
}

#[derive(Debug)]
struct Track {
    ports: Ports,
    stream: Stream,
    datagrams: Datagrams,
}

impl UdpSink {
    /// The sink and its control. Needs a Tokio runtime.
    pub(super) fn new(
        video: Option<(Ports, Identity)>,
        audio: Option<(Ports, Identity)>,
        reports: Reports,
    ) -> io::Result<(Self, Control)> {
        let flags = Arc::new(Flags::default());
        let mut listeners = JoinSet::new();
        for (ports, _) in [&video, &audio].into_iter().flatten() {
            let socket = tokio::net::UdpSocket::from_std(ports.rtcp.try_clone()?)?;
            listeners.spawn(listen(socket, Arc::clone(&flags)));
        }
        let track = |kind, given: Option<(Ports, Identity)>| {
            given.map(|(ports, identity)| Track {
                ports,
                stream: Stream::new(kind, identity),
                datagrams: Datagrams::default(),
            })
        };
        let sink = Self {
            video: track(Kind::Video, video),
            audio: track(Kind::Audio, audio),
            reports,
            flags: Arc::clone(&flags),
            report: Vec::new(),
            awaits_key: false,
        };
        Ok((sink, Control { flags, _listeners: listeners }))
    }
}

async fn listen(socket: tokio::net::UdpSocket, flags: Arc<Flags>) {
    let mut datagram = [0; 1500];
    loop {
        match socket.recv(&mut datagram).await {
            Ok(_) => flags.heard.store(true, Ordering::Relaxed),
            // The client's port was closed for what was sent to it; it may open again.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return,
        }
    }
}

impl DatagramSink for UdpSink {
    fn is_gone(&self) -> bool {
        self.flags.gone.load(Ordering::Relaxed)
    }

    fn send(&mut self, head: &UnitHead, bytes: &[u8]) -> bool {
        if self.flags.gone.load(Ordering::Relaxed) {
            return false;
        }
        if self.flags.paused.load(Ordering::Relaxed) {
            self.awaits_key = self.video.is_some();
            return true;
        }
        if self.awaits_key && !(head.kind == Kind::Video && head.key) {
            return true;
        }
        self.awaits_key = false;
        let track = match head.kind {
            Kind::Video => &mut self.video,
            Kind::Audio => &mut self.audio,
        };
        let Some(track) = track else { return true };
        let head = Arc::new(head.clone());
        if track.stream.report_is_due(&head) {
            self.report.clear();
            track.stream.write_report(&self.reports, &head, &mut self.report);
            let _ = track.ports.rtcp.send(&self.report);
        }
        track.datagrams.clear();
        // A unit that does not go over RTP is left out, as in the interleaved stream.
        if track.datagrams.write(&mut track.stream, &head, bytes).is_ok() {
            for datagram in track.datagrams.iter() {
                let _ = track.ports.rtp.send(datagram);
            }
        }
        true
    }
}

const ATTEMPTS: u32 = 16;
