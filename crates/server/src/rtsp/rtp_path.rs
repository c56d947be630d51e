//! RTP over UDP to one viewer, as the engine drives it: pace, segmentation, and the rate that follows the viewer's reports.
//!
//! ```text
//!  engine ─► Interleaved framer ─► '$' frames ─► RtpPath ─┬─ RTP  ─► names datagrams ─► engine, one system call for many viewers
//!                                                         └─ RTCP ─► socket (sender reports)
//!  player ─► RTCP ─► listen ─┬─ reports ─► SentLog, RateControl ─► pace and LinkView
//!                             └─ NACK ─► Retransmitter ─► socket, at the same pace and before new packets
//! ```

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire::choice::{LinkView, Record};
use freshwire::datagram::{DatagramPath, DatagramSender, Flushed, KnownPath, PacketPieces};
use freshwire::network::NetworkQos;
use freshwire::stats::PathRate;
use freshwire::{Timestamp, now};
use freshwire_io::udp::{Group, Interface, Outgoing, Sent};
use freshwire_media::framing::interleaved::FRAME_HEADER_BYTES;
use freshwire_media::rtp::{
    Cease, Change, Feedback, HEADER_BYTES, PictureInfo, RateControl, ReportBlock, Retransmitter, RoundTrip,
    SentLog, goodbye, read_feedback,
};
use tokio::task::JoinSet;

use super::transport::Profile;
use super::udp::{Ports, with_port};
use crate::net::{GRAIN, ONE_PACKET, Pace};

/// The ports of a track and those of its viewer, from SETUP on.
#[derive(Debug)]
pub(super) struct TrackPorts {
    ports: Ports,
    rtp: SocketAddr,
    rtcp: SocketAddr,
}

impl TrackPorts {
    /// Two ports in a row at this end, for the client's ports.
    pub(super) fn open(local: SocketAddr, client: SocketAddr, rtp: u16, rtcp: u16) -> io::Result<Self> {
        let ports = Ports::bind(local)?;
        Ok(Self { ports, rtp: with_port(client, rtp), rtcp: with_port(client, rtcp) })
    }

    /// Two ports at this end, for a multicast group behind the interface of the local address.
    pub(super) fn to_group(local: SocketAddr, group: SocketAddr) -> io::Result<Self> {
        let ports = Ports::bind(local)?;
        Ok(Self { ports, rtp: group, rtcp: with_port(group, group.port().saturating_add(1)) })
    }

    /// The ports in the answer to SETUP.
    pub(super) fn transport(&self, profile: Profile) -> io::Result<String> {
        let (rtp, rtcp) = self.ports.own()?;
        let (client_rtp, client_rtcp) = (self.rtp.port(), self.rtcp.port());
        let profile = profile.name();
        Ok(format!("{profile};unicast;client_port={client_rtp}-{client_rtcp};server_port={rtp}-{rtcp}"))
    }
}

/// The path to one viewer. The engine has it; [`Listener`] shares it.
pub(super) struct RtpPath(Arc<Mutex<Inner>>);

/// Reads what the viewer says, until it is dropped.
pub(super) struct Listener {
    farewell: Farewell,
    heard: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

/// Says goodbye on the ports of a path.
pub(crate) struct Farewell(Arc<Mutex<Inner>>);

struct Inner {
    /// By half their channel's number.
    tracks: Vec<Option<Track>>,
    /// The track whose reports set the rate.
    leading: usize,
    control: RateControl,
    pace: Pace,
    /// Room for a packet's bytes that are kept.
    body: Vec<u8>,
    flushed: Flushed,
    /// When the control was asked last whether the viewer has fallen silent.
    looked_at: Timestamp,
    /// Bytes that the viewer has reported.
    acked: u64,
    /// Bytes in all at the last report that set the rate, and those of them that were not of the leading track.
    at_report: (u64, u64),
    /// Bytes of packets that were sent again.
    repeated: u64,
    /// Bytes per second that were sent between the last two reports.
    offered: u64,
    ceased: Option<Cease>,
    /// The network has to carry what is published: nobody's rate counts.
    is_group: bool,
}

struct Track {
    ssrc: u32,
    rtp: freshwire_io::udp::UdpSocket,
    /// For many packets in one system call; `None`: each has a departure time.
    sender: Option<DatagramSender>,
    rtcp: UdpSocket,
    to: SocketAddr,
    rtcp_to: SocketAddr,
    log: SentLog,
    /// Only if the viewer asked for it: no other viewer's packets are kept.
    retransmitter: Option<Retransmitter>,
    /// Number of the first packet at the present rate.
    changed: u64,
    reported_at: Timestamp,
}

/// An RTP or RTCP packet in what the framing has written.
pub(crate) struct Frame {
    /// Half its channel's number.
    pub(crate) track: usize,
    pub(crate) is_report: bool,
    /// Its bytes in the head of the piece.
    pub(crate) head: Range<usize>,
    /// The body of the piece is its rest.
    has_body: bool,
}

impl Frame {
    /// The one that begins at this byte of a head with `body` bytes behind it.
    pub(crate) fn read(head: &[u8], at: usize, body: usize) -> Option<Self> {
        let (&[b'$', channel, high, low], _) = head.get(at..)?.split_first_chunk()? else { return None };
        let begin = at + FRAME_HEADER_BYTES;
        let end = begin + usize::from(u16::from_be_bytes([high, low]));
        let has_body = end > head.len();
        if has_body && end != head.len() + body {
            return None;
        }
        let (track, is_report) = (usize::from(channel / 2), channel % 2 == 1);
        Some(Self { track, is_report, head: begin..end.min(head.len()), has_body })
    }
}

/// A packet that is about to leave.
struct Packet<'a> {
    /// The header at least.
    head: &'a [u8],
    /// The rest, if the packet is kept.
    body: &'a [u8],
    bytes: usize,
}

/// A track of a path: its ports, source identifier and first sequence number.
pub(super) struct PathTrack {
    pub(super) ports: TrackPorts,
    pub(super) ssrc: u32,
    pub(super) seq: u16,
    pub(super) retransmitter: Option<Retransmitter>,
}

impl RtpPath {
    /// The path to a multicast group, of routers that are `ttl` away at most. Nobody's reports set its rate.
    pub(super) fn open_group(tracks: [Option<PathTrack>; 2], ttl: u8) -> io::Result<(Self, Farewell)> {
        let (path, Listener { farewell, .. }) = Self::open(tracks, None)?;
        let mut inner = path.lock();
        inner.is_group = true;
        for track in inner.tracks.iter().flatten() {
            let interface = match track.rtp.local_addr()?.ip() {
                IpAddr::V4(ip) if !ip.is_unspecified() => Interface::Of(ip),
                _ => Interface::Routed,
            };
            track.rtp.set_multicast(Group { address: track.to.ip(), interface }, ttl, true)?;
            let clone = freshwire_io::udp::UdpSocket::from_std(track.rtcp.try_clone()?)?;
            clone.set_multicast(Group { address: track.rtcp_to.ip(), interface }, ttl, true)?;
        }
        drop(inner);
        Ok((path, farewell))
    }

    /// The path and what reads the viewer's reports. `tracks` in the order of their channels. Needs a Tokio runtime.
    pub(super) fn open(
        tracks: [Option<PathTrack>; 2],
        round_trip: Option<Duration>,
    ) -> io::Result<(Self, Listener)> {
        let mut listening = Vec::new();
        let mut opened = Vec::new();
        for track in tracks {
            let Some(PathTrack { ports, ssrc, seq, retransmitter }) = track else {
                opened.push(None);
                continue;
            };
            let TrackPorts { ports, rtp: to, rtcp: rtcp_to } = ports;
            let (rtp, rtcp) = ports.into_sockets();
            listening.push((tokio::net::UdpSocket::from_std(rtcp.try_clone()?)?, rtcp_to));
            let mut rtp = freshwire_io::udp::UdpSocket::from_std(rtp)?;
            let sender = rtp.sender()?;
            let log = SentLog::new(seq);
            let (changed, reported_at) = (log.next(), Timestamp::ZERO);
            let track =
                Track { ssrc, rtp, sender, rtcp, to, rtcp_to, log, retransmitter, changed, reported_at };
            opened.push(Some(track));
        }
        let at = now();
        let inner = Inner {
            leading: opened.iter().position(Option::is_some).unwrap_or(0),
            tracks: opened,
            control: RateControl::new(at, round_trip),
            pace: Pace::new(at),
            body: Vec::new(),
            flushed: Flushed::default(),
            looked_at: at,
            acked: 0,
            at_report: (0, 0),
            repeated: 0,
            offered: 0,
            ceased: None,
            is_group: false,
        };
        let inner = Arc::new(Mutex::new(inner));
        let heard = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (socket, peer) in listening {
            tasks.spawn(listen(socket, peer, Arc::clone(&inner), Arc::clone(&heard)));
        }
        let farewell = Farewell(Arc::clone(&inner));
        Ok((Self(inner), Listener { farewell, heard, _tasks: tasks }))
    }

    /// Asks the network for this service. A pacing rate that nothing on the way out enforces is left out, and the log says so: the path
    /// paces its packets itself, at the viewer's rate.
    pub(super) fn ask_network(&self, wanted: &NetworkQos) -> io::Result<()> {
        for track in self.lock().tracks.iter_mut().flatten() {
            let mut network = *wanted;
            if let Err(error) = network.check_towards(track.to) {
                tracing::warn!(%error, "viewers over UDP have no pacing rate");
                network = network.max_rate(None);
            }
            track.rtp.set_network_qos(&network).map_err(io::Error::other)?;
            track.sender = track.rtp.sender()?;
            let reports = network.max_rate(None);
            reports.apply_to_datagrams(&track.rtcp, track.rtcp_to).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }
}

/// Every change is of one field, so what a panic left is still sound.
fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener {
    /// Whether the viewer has said anything since this was asked last.
    pub(super) fn was_heard(&self) -> bool {
        self.heard.swap(false, Ordering::Relaxed)
    }

    /// Says why the viewer gets no more.
    pub(super) fn say_goodbye(&self, reason: &str) {
        self.farewell.say(reason);
    }
}

impl Farewell {
    /// Ends each track's source. A player that misses it is left with the end of its connection.
    pub(super) fn say(&self, reason: &str) {
        for track in lock(&self.0).tracks.iter().flatten() {
            let _ = track.rtcp.send_to(&goodbye(track.ssrc, reason), track.rtcp_to);
        }
    }
}

/// Reads RTCP. Reports may come from another port than the one of SETUP, as behind an address translator, but not from another host;
/// nothing is ever sent to where they come from. Requests for lost packets count from the port of SETUP only.
async fn listen(
    socket: tokio::net::UdpSocket,
    peer: SocketAddr,
    inner: Arc<Mutex<Inner>>,
    heard: Arc<AtomicBool>,
) {
    let mut datagram = [0; 1500];
    let (mut since, mut count) = (tokio::time::Instant::now(), 0);
    let mut repeat_at = None;
    loop {
        let is_flood = count >= FLOOD;
        let received = tokio::select! {
            received = socket.recv_from(&mut datagram), if !is_flood => received,
            // The rest of a flood stays in the socket's buffer, where the system drops it.
            () = tokio::time::sleep_until(since + FLOOD_WINDOW), if is_flood => {
                (since, count) = (tokio::time::Instant::now(), 0);
                continue;
            }
            () = sleep_until(repeat_at) => {
                repeat_at = lock(&inner).repeat(now());
                continue;
            }
        };
        match received {
            Ok((length, from)) if from.ip().to_canonical() == peer.ip().to_canonical() => {
                heard.store(true, Ordering::Relaxed);
                let bytes = datagram.get(..length).unwrap_or_default();
                let mut inner = lock(&inner);
                inner.on_rtcp(now(), bytes, from.port() == peer.port());
                repeat_at = inner.repeat(now());
            }
            Ok(_) => {}
            // The viewer's port was closed for what was sent to it; it may open again.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return,
        }
        count += 1;
        if since.elapsed() >= FLOOD_WINDOW {
            (since, count) = (tokio::time::Instant::now(), 0);
        }
    }
}

async fn sleep_until(at: Option<Timestamp>) {
    match at {
        Some(at) => tokio::time::sleep(at.saturating_since(now())).await,
        None => std::future::pending().await,
    }
}

impl DatagramPath for RtpPath {
    fn view(&self, now: Timestamp, committed: u64) -> LinkView {
        let inner = self.lock();
        if inner.is_group {
            return LinkView::default();
        }
        let rate = inner.control.rate();
        LinkView {
            rtt: inner.control.round_trip().unwrap_or_default(),
            min_rtt: inner.control.min_round_trip().unwrap_or_default(),
            unsent: committed,
            agreed: Some(rate),
            credit: inner.pace.tokens_at(now, inner.control.rate()) as i64,
            ..LinkView::default()
        }
    }

    fn ready_at(&self, now: Timestamp, bytes: u64) -> Timestamp {
        let inner = self.lock();
        if inner.is_group {
            return now;
        }
        if inner.ceased.is_some() {
            return Timestamp::MAX;
        }
        // Packets that are sent again go first.
        inner.pace.ready_at(now, bytes + inner.queued_bytes(), inner.control.rate())
    }

    fn send(&mut self, now: Timestamp, record: Option<&Record>, packets: &[u8]) {
        let mut inner = self.lock();
        let mut bytes = 0;
        let mut at = 0;
        while let Some(Frame { track, is_report, head, .. }) = Frame::read(packets, at, 0) {
            at = head.end;
            let packet = packets.get(head).unwrap_or_default();
            if is_report {
                inner.send_report(now, track, packet);
            } else {
                let whole = Packet { head: packet, body: &[], bytes: packet.len() };
                bytes += inner.note(now, track, record, &whole);
                inner.send_alone(track, packet);
            }
        }
        inner.spend(now, bytes);
    }

    fn gather(&mut self, now: Timestamp, record: Option<&Record>, pieces: &mut PacketPieces<'_>) -> bool {
        let mut inner = self.lock();
        if inner.tracks.iter().flatten().any(|track| track.sender.is_none()) {
            return false;
        }
        let mut bytes = 0;
        for place in pieces.places() {
            bytes += inner.gather_piece(now, record, pieces, place);
        }
        inner.spend(now, bytes);
        true
    }

    fn flush(&mut self, now: Timestamp) -> io::Result<Flushed> {
        let mut inner = self.lock();
        inner.repeat(now);
        inner.look(now);
        match inner.ceased {
            Some(why) => Err(io::Error::other(why)),
            None => Ok(std::mem::take(&mut inner.flushed)),
        }
    }

    fn known(&self) -> KnownPath {
        let inner = self.lock();
        let is_limited = inner.control.is_limited();
        let offered = freshwire::Rate::from_bytes_per_sec(inner.offered);
        let rate = if is_limited { inner.control.rate() } else { offered };
        let known = is_limited || inner.offered > 0;
        let retransmitters = inner.tracks.iter().flatten().filter_map(|track| track.retransmitter.as_ref());
        let (repaired, late_repairs) = retransmitters
            .map(|retransmitter| retransmitter.counts())
            .fold((0, 0), |(repaired, late), counts| (repaired + counts.repaired, late + counts.late));
        KnownPath {
            rate: known.then_some(PathRate { at_least: !is_limited, rate }),
            acked: inner.acked,
            repaired,
            late_repairs,
        }
    }
}

impl Inner {
    /// Names the datagrams in a piece, sends the reports in it, and returns the bytes of packets on the wire.
    fn gather_piece(
        &mut self,
        now: Timestamp,
        record: Option<&Record>,
        pieces: &mut PacketPieces<'_>,
        place: usize,
    ) -> u64 {
        let mut bytes = 0;
        let mut at = 0;
        while let Some(frame) = Frame::read(pieces.head(place), at, pieces.body_bytes(place)) {
            let Frame { track, is_report, head: range, has_body } = frame;
            at = range.end;
            let head = pieces.head(place).get(range.clone()).unwrap_or_default();
            if is_report {
                self.send_report(now, track, head);
                continue;
            }
            let mut body = std::mem::take(&mut self.body);
            body.clear();
            if has_body && self.keeps(track) {
                pieces.copy_body(place, &mut body);
            }
            let bytes_in_all = head.len() + if has_body { pieces.body_bytes(place) } else { 0 };
            let packet = Packet { head, body: &body, bytes: bytes_in_all };
            bytes += self.note(now, track, record, &packet);
            self.body = body;
            if let Some(Some(Track { sender: Some(sender), to, .. })) = self.tracks.get(track) {
                pieces.send(place, range, sender, *to);
            }
        }
        bytes
    }

    /// Whether packets of this track are kept, to be sent again.
    fn keeps(&self, track: usize) -> bool {
        self.tracks.get(track).and_then(Option::as_ref).is_some_and(|track| track.retransmitter.is_some())
    }

    /// Sends a packet with a call of its own.
    fn send_alone(&mut self, track: usize, packet: &[u8]) {
        let Self { tracks, flushed, .. } = self;
        let Some(Some(track)) = tracks.get_mut(track) else { return };
        let outgoing = Outgoing { to: track.to, from: None, ecn: None, bytes: packet, segment: None };
        flushed.calls += 1;
        // A packet that the system refuses is lost like one in the network: the viewer's reports count it.
        let sent = match track.rtp.send(&outgoing) {
            // The answer to an earlier datagram, for which this one is not to blame.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => track.rtp.send(&outgoing),
            sent => sent,
        };
        if matches!(sent, Ok(Sent::All)) {
            flushed.bytes += packet.len() as u64;
        }
    }

    fn spend(&mut self, now: Timestamp, bytes: u64) {
        let Self { pace, control, .. } = self;
        pace.spend(now, bytes, control.rate());
    }

    /// Takes note of a packet that is about to leave, and returns its bytes on the wire.
    fn note(&mut self, now: Timestamp, track: usize, record: Option<&Record>, packet: &Packet<'_>) -> u64 {
        let Some(Some(Track { log, to, retransmitter, .. })) = self.tracks.get_mut(track) else { return 0 };
        let bytes = packet.bytes as u64 + header_bytes(to);
        log.sent(now, bytes);
        if let Some(retransmitter) = retransmitter {
            // A keyframe makes no earlier sound useless.
            let group = |group| if track == 0 { group } else { 0 };
            let picture = |&Record { seq, group: of, deadline, .. }: &Record| PictureInfo {
                seq,
                group: group(of),
                deadline,
            };
            retransmitter.keep_parts(now, record.map(picture), packet.head, packet.body);
        }
        bytes
    }

    fn send_report(&mut self, now: Timestamp, track: usize, packet: &[u8]) {
        let Some(Some(track)) = self.tracks.get_mut(track) else { return };
        if let Some(ntp) = packet.get(8..16).and_then(|bytes| bytes.first_chunk()) {
            track.log.reported(now, u64::from_be_bytes(*ntp));
        }
        // Lost like any other datagram if the system does not take it.
        let _ = track.rtcp.send_to(packet, track.rtcp_to);
        if let Some(report) = track.retransmitter.as_ref().and_then(|it| it.report(packet)) {
            let _ = track.rtcp.send_to(&report, track.rtcp_to);
        }
    }

    /// Takes in what the viewer says. `may_request`: it comes from where the viewer said that it would.
    fn on_rtcp(&mut self, now: Timestamp, bytes: &[u8], may_request: bool) {
        read_feedback(bytes, |item| match item {
            Feedback::Report(block) => {
                let track = self.tracks.iter_mut().flatten().find(|track| track.ssrc == block.ssrc);
                if let Some(retransmitter) = track.and_then(|track| track.retransmitter.as_mut()) {
                    retransmitter.reported(u64::try_from(block.lost).unwrap_or(0));
                }
                self.on_report(now, &block);
            }
            Feedback::Nack { ssrc, .. } if may_request => self.on_nack(now, ssrc, item),
            Feedback::Nack { .. } | Feedback::Bye => {}
        });
    }

    fn on_nack(&mut self, now: Timestamp, ssrc: u32, nack: Feedback) {
        let round_trip = self.round_trip();
        let queued = self.queued_bytes();
        let most = self.control.rate().bytes_in(MOST_QUEUED).max(ONE_PACKET as u64);
        let track = self.tracks.iter_mut().flatten().find(|track| track.ssrc == ssrc);
        let Some(retransmitter) = track.and_then(|track| track.retransmitter.as_mut()) else { return };
        let others = queued - retransmitter.queued_bytes();
        for missing in nack.missing() {
            if others + retransmitter.queued_bytes() >= most {
                // The viewer requests the rest again.
                break;
            }
            // Refusals are counted there.
            let _ = retransmitter.request(now, round_trip, missing);
        }
    }

    /// The round trip as far as it is known. The mean is no less than the pace can tell apart.
    fn round_trip(&self) -> RoundTrip {
        let mean = self.control.round_trip().unwrap_or(UNKNOWN_ROUND_TRIP).max(GRAIN);
        RoundTrip { mean, least: self.control.min_round_trip().unwrap_or_default() }
    }

    /// Bytes that wait to be sent again.
    fn queued_bytes(&self) -> u64 {
        let retransmitters = self.tracks.iter().flatten().filter_map(|track| track.retransmitter.as_ref());
        retransmitters.map(Retransmitter::queued_bytes).sum()
    }

    /// Sends packets again as far as the pace allows. Returns when there may be more.
    fn repeat(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.queued_bytes() == 0 || self.ceased.is_some() {
            return None;
        }
        let round_trip = self.round_trip();
        let Self { tracks, pace, control, flushed, repeated, .. } = self;
        let mut packet = Vec::new();
        for track in tracks.iter_mut().flatten() {
            let Some(retransmitter) = &mut track.retransmitter else { continue };
            while pace.tokens_at(now, control.rate()) > 0.0
                && retransmitter.next_packet(now, round_trip, &mut packet)
            {
                let outgoing =
                    Outgoing { to: track.to, from: None, ecn: None, bytes: &packet, segment: None };
                flushed.calls += 1;
                // Lost once more if the system does not take it.
                if track.rtp.send(&outgoing).is_ok() {
                    flushed.bytes += packet.len() as u64;
                }
                let bytes = packet.len() as u64 + header_bytes(&track.to);
                *repeated += bytes;
                pace.spend(now, bytes, control.rate());
                packet.clear();
            }
        }
        (self.queued_bytes() > 0).then(|| self.pace.ready_at(now, 1, self.control.rate()))
    }

    /// Bytes that were sent in all.
    fn sent_bytes(&self) -> u64 {
        self.tracks.iter().flatten().map(|track| track.log.bytes()).sum::<u64>() + self.repeated
    }

    fn on_report(&mut self, now: Timestamp, block: &ReportBlock) {
        let found =
            self.tracks.iter().position(|track| track.as_ref().is_some_and(|it| it.ssrc == block.ssrc));
        let Some((at, Some(track))) = found.and_then(|at| Some((at, self.tracks.get_mut(at)?.as_mut())))
        else {
            return;
        };
        if now < track.reported_at + SHORTEST_INTERVAL {
            return;
        }
        let bytes = track.log.bytes();
        let Some(mut reception) = track.log.received(now, block, track.changed) else { return };
        track.reported_at = now;
        self.acked += reception.received;
        if at != self.leading {
            return;
        }
        // The other track and repeated packets share the path: the same share of them has arrived.
        let (all, others) = (self.sent_bytes(), self.sent_bytes() - bytes);
        let since = all.saturating_sub(self.at_report.0);
        let others_since = others.saturating_sub(self.at_report.1);
        if let Some(arrived) = (reception.expected - reception.lost).checked_mul(others_since) {
            reception.received += arrived.checked_div(reception.expected).unwrap_or(0).min(others_since);
        }
        let micros = reception.interval.as_micros().max(1);
        self.offered = u64::try_from(u128::from(since) * 1_000_000 / micros).unwrap_or(u64::MAX);
        self.at_report = (all, others);
        let at_once = Pace::depth(self.control.rate()) as u64;
        let change = self.control.on_report(now, &reception, all, at_once);
        tracing::debug!(?reception, ?change, rate = %self.control.rate(), "a viewer over UDP has reported");
        match change {
            Change::Kept => {}
            Change::Fell => self.fell(),
            Change::Cease(why) => self.ceased = Some(why),
        }
    }

    /// From the next packets on another rate is in force.
    fn fell(&mut self) {
        for track in self.tracks.iter_mut().flatten() {
            track.changed = track.log.next();
        }
    }

    fn look(&mut self, now: Timestamp) {
        if self.is_group || now < self.looked_at + LOOK {
            return;
        }
        self.looked_at = now;
        if self.control.on_silence(now, self.sent_bytes()) {
            self.fell();
        }
    }
}

/// Bytes of the headers of UDP and IP.
fn header_bytes(to: &SocketAddr) -> u64 {
    if to.is_ipv4() { 28 } else { 48 }
}

/// Where no round trip is known, a packet is sent again no sooner.
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(200);
/// Requests are taken until the packets to be sent again fill the pace for this time, since new pictures wait for them: 2.5 pictures
/// at 25 per second. At 300 kbit/s these are three packets.
const MOST_QUEUED: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(250);
/// Reports that come more often say too little to judge by.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// The most datagrams of a viewer that are read in this time.
const FLOOD: u32 = 50;
const FLOOD_WINDOW: Duration = Duration::from_secs(1);

const _: () = assert!(FRAME_HEADER_BYTES == 4 && HEADER_BYTES == 12);

#[cfg(test)]
mod tests;
