//! A viewer's session, from DESCRIBE to PLAY.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use freshwire::Ended;
use freshwire::choice::Aim;
use freshwire_media::framing::interleaved::{Config, Interleaved, TrackChannel};
use freshwire_media::rtp::{
    DEFAULT_MAX_DATAGRAM_BYTES, DEFAULT_REPORT_INTERVAL, Identity, RETRANSMISSION_TIME, Retransmitter,
    WallClock, goodbye,
};
use freshwire_media::sdp::{self, DescribeError};
use freshwire_media::unit::{Catalog, Kind, MediaTime, Tracks};

use super::begin_error::BeginError;
use super::common::{self, SESSION_TIMEOUT, random, session_id};
use super::preferences::Preferences;
use super::reply::Reply;
use super::rtp_path::{Listener, PathTrack, RtpPath, TrackPorts};
use super::target::Target;
use super::transport::{Offer, Profile, multicast};
use crate::hub::{RenditionSelection, Stream, ViewRequest, ViewSocket, Viewer};
use crate::lease::Withdrawal;
use crate::multicast::{Farewell, Group, Groups};

/// A viewer's session.
pub(super) struct ViewSession {
    /// Its name.
    pub(super) id: String,
    /// The stream.
    pub(super) stream: Arc<Stream>,
    /// The viewer's name, if it had to give one.
    pub(super) user: Option<String>,
    /// What the address asks for.
    pub(super) preferences: Preferences,
    /// Which renditions it may get.
    pub(super) renditions: RenditionSelection,
    /// The tracks that were set up, as they were then.
    pub(super) described: Tracks,
    cname: String,
    video: Option<TrackCarrier>,
    audio: Option<TrackCarrier>,
}

/// How a track goes to the viewer.
struct TrackCarrier {
    carrier: Carrier,
    identity: Identity,
    /// The retransmission of lost packets, if the viewer asked for it.
    retransmitter: Option<Retransmitter>,
    /// The URI of its SETUP, by which players know it again.
    uri: String,
}

enum Carrier {
    Interleaved(u8),
    Udp(TrackPorts),
    Multicast(Arc<Group>),
}

/// The connection's properties for SETUP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) encrypted: bool,
}

/// Answers DESCRIBE. A stream whose source has just started has a few seconds to show its tracks. `retransmission`: lost packets are
/// sent again on request.
pub(super) async fn describe(stream: &Stream, target: &Target, local: IpAddr, retransmission: bool) -> Reply {
    let Some(tracks) = known_tracks(stream).await else {
        return Reply::refuse(404, format!("Not Found: stream {} has no source", stream.name()));
    };
    let session = sdp::Session {
        name: stream.name().to_owned(),
        id: stream.name().bytes().fold(7, |id: u64, byte| (id << 5 ^ id >> 27 ^ u64::from(byte)) >> 1),
        version: 1,
        address: local,
        key_on_request: false,
        retransmission: retransmission.then_some(RETRANSMISSION_TIME),
    };
    match sdp::describe(&tracks, &session) {
        Ok(text) => Reply::ok()
            .header("Content-Base", target.content_base())
            .header("Cache-Control", "no-cache")
            .body("application/sdp", text),
        Err(error @ DescribeError::OpusChannels(_)) => {
            Reply::refuse(415, format!("Unsupported Media Type: {error}"))
        }
        Err(error) => Reply::refuse(503, format!("Service Unavailable: {error}")),
    }
}

/// The renditions that the URI asks for, if the stream can give them.
pub(super) fn renditions_asked(
    target: &Target,
    stream: &Stream,
) -> Result<Option<RenditionSelection>, Reply> {
    let asked = target.renditions().map_err(|error| Reply::refuse(400, format!("Bad Request: {error}")))?;
    if let Some(asked) = &asked {
        let checked = stream.check_renditions(asked);
        checked.map_err(|error| Reply::refuse(404, format!("Not Found: {error}")))?;
    }
    Ok(asked)
}

async fn known_tracks(stream: &Stream) -> Option<Arc<Tracks>> {
    let mut tracks = stream.tracks();
    let known = tokio::time::timeout(WAIT_FOR_TRACKS, tracks.wait_for(Option::is_some)).await;
    known.ok()?.ok()?.clone()
}

impl ViewSession {
    /// A session without tracks. `preferences` were named before.
    pub(super) fn new(
        stream: Arc<Stream>,
        user: Option<String>,
        preferences: Preferences,
    ) -> io::Result<Self> {
        let cname = format!("{:016x}", u64::from_be_bytes(random()?));
        Ok(Self {
            id: session_id()?,
            stream,
            user,
            preferences,
            renditions: RenditionSelection::All,
            described: Tracks::default(),
            cname,
            video: None,
            audio: None,
        })
    }

    /// Answers SETUP of a track by the first offer that can be met.
    pub(super) fn setup(
        &mut self,
        target: &Target,
        mut offers: impl Iterator<Item = (Profile, Offer)>,
        ends: &Ends,
        groups: &Groups,
    ) -> io::Result<Reply> {
        match Preferences::of(target) {
            // A player may leave the query out from its second request on.
            Ok(preferences) => self.preferences = preferences.or(self.preferences),
            Err(refusal) => return Ok(refusal),
        }
        match renditions_asked(target, &self.stream) {
            Ok(renditions) => self.renditions = renditions.unwrap_or_else(|| self.renditions.clone()),
            Err(refusal) => return Ok(refusal),
        }
        let tracks = self.stream.tracks().borrow().clone().unwrap_or_default();
        let Some(kind) = kind_of(target.track, &tracks) else {
            return Ok(Reply::refuse(404, "Not Found: the stream has no such track"));
        };
        // All tracks go the same way.
        let first = self.carried().next().map(|carried| &carried.carrier);
        let (in_connection, to_ports) = (
            first.is_none_or(|carrier| matches!(carrier, Carrier::Interleaved(_))),
            first.is_none_or(|carrier| matches!(carrier, Carrier::Udp(_))) && !ends.encrypted,
        );
        let to_group =
            first.is_none_or(|carrier| matches!(carrier, Carrier::Multicast(_))) && !ends.encrypted;
        let group = |_: &Offer| {
            if to_group { groups.of(&self.stream, || Ok([identity()?, identity()?])) } else { None }
        };
        let met = offers.find_map(|(profile, offer)| match offer {
            Offer::Interleaved(_) => in_connection.then_some((profile, offer, None)),
            Offer::Udp { .. } => to_ports.then_some((profile, offer, None)),
            Offer::Multicast => group(&offer).map(|group| (profile, offer, Some(group))),
        });
        let mut retransmitter = None;
        let (carrier, identity, transport) = match met {
            None | Some((_, Offer::Multicast, None)) => {
                let way = if ends.encrypted { "RTP/AVP/TCP" } else { "RTP/AVP/TCP or unicast RTP/AVP" };
                return Ok(Reply::refuse(461, format!("Unsupported Transport; use {way}")));
            }
            Some((profile, Offer::Interleaved(wanted), _)) => {
                let channel = self.free_channel(kind, wanted);
                let profile = profile.name();
                let pair = format!("{profile}/TCP;unicast;interleaved={channel}-{}", channel + 1);
                (Carrier::Interleaved(channel), identity()?, pair)
            }
            Some((profile, Offer::Udp { rtp, rtcp }, _)) => {
                let ports = TrackPorts::open(ends.local, ends.peer, rtp, rtcp)?;
                let pair = ports.transport(profile)?;
                let identity = identity()?;
                if profile == Profile::Avpf {
                    retransmitter = Some(retransmitter_beside(&identity, kind)?);
                }
                (Carrier::Udp(ports), identity, pair)
            }
            Some((profile, Offer::Multicast, Some(group))) => {
                let transport =
                    multicast(profile, group.address(kind), group.source(ends.local.ip()), group.ttl());
                let identity = group.identity(kind);
                (Carrier::Multicast(group), identity, transport)
            }
        };
        let carried = TrackCarrier { carrier, identity, retransmitter, uri: target.uri.clone() };
        match kind {
            Kind::Video => {
                self.video = Some(carried);
                self.described.video = tracks.video.clone();
            }
            Kind::Audio => {
                self.audio = Some(carried);
                self.described.audio = tracks.audio.clone();
            }
        }
        let transport = format!("{transport};ssrc={:08X};mode=\"PLAY\"", identity.ssrc);
        Ok(Reply::ok().header("Transport", transport).header("Session", session_header(&self.id)))
    }

    fn carried(&self) -> impl Iterator<Item = &TrackCarrier> {
        [&self.video, &self.audio].into_iter().flatten()
    }

    /// The wanted channel, or the first free pair if the other track has it: some clients ask for the same ones twice.
    fn free_channel(&self, kind: Kind, wanted: Option<u8>) -> u8 {
        let other = match kind {
            Kind::Video => &self.audio,
            Kind::Audio => &self.video,
        };
        let taken = match other.as_ref().map(|carried| &carried.carrier) {
            Some(Carrier::Interleaved(channel)) => Some(*channel),
            _ => None,
        };
        let is_free = |channel: u8| taken.is_none_or(|taken| channel.abs_diff(taken) > 1);
        wanted.into_iter().chain([0, 2]).find(|&channel| is_free(channel)).unwrap_or(4)
    }

    /// Whether a track was set up.
    pub(super) fn is_ready(&self) -> bool {
        self.carried().next().is_some()
    }

    /// Whether the stream goes in the connection.
    pub(super) fn is_interleaved(&self) -> bool {
        self.carried().any(|carried| matches!(carried.carrier, Carrier::Interleaved(_)))
    }

    /// Takes over the preferences of PLAY, if it is the first one.
    pub(super) fn asked_at_play(&mut self, target: &Target, is_first: bool) -> Result<(), Reply> {
        let preferences = Preferences::of(target)?.or(self.preferences);
        if is_first {
            self.preferences = preferences;
        }
        if self.preferences == preferences {
            return Ok(());
        }
        Err(common::wrong_state("latency= and packet= stay as they were at the first PLAY"))
    }

    /// The answer to PLAY.
    pub(super) fn play(&self) -> Reply {
        let info = self.carried().map(|TrackCarrier { identity, uri, .. }| {
            // Both end a value of this header.
            let uri = uri.replace(',', "%2C").replace(';', "%3B");
            // The first unit's time is not known yet, and a wrong rtptime is worse than none.
            format!("url={uri};seq={}", identity.seq)
        });
        Reply::ok()
            .header("Session", session_header(&self.id))
            .header("Range", "npt=now-")
            .header("RTP-Info", info.collect::<Vec<_>>().join(","))
    }

    /// The RTCP packets that end the sources of all tracks, for the connection.
    pub(super) fn goodbye(&self, reason: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for TrackCarrier { carrier, identity, .. } in self.carried() {
            let Carrier::Interleaved(channel) = *carrier else { continue };
            let packet = goodbye(identity.ssrc, reason);
            bytes.extend([b'$', channel + 1]);
            bytes.extend(u16::try_from(packet.len()).unwrap_or(u16::MAX).to_be_bytes());
            bytes.extend(packet);
        }
        bytes
    }

    /// The framing of the stream. Over UDP a track has the channels that its number gives; [`RtpPath`] takes them apart again.
    pub(super) fn framer(&self, catalog: Arc<Catalog>) -> Interleaved {
        let channel = |carried: &Option<TrackCarrier>, number: u8| {
            carried.as_ref().map(|TrackCarrier { carrier, identity, .. }| {
                let channel = if let Carrier::Interleaved(channel) = carrier { *channel } else { 2 * number };
                TrackChannel { channel, identity: *identity }
            })
        };
        let (video, audio) = (channel(&self.video, 0), channel(&self.audio, 1));
        if self.is_interleaved() {
            let config = self.config(video, audio);
            return Interleaved::new(catalog, &config);
        }
        self.datagram_framer(catalog, video, audio)
    }

    fn datagram_framer(
        &self,
        catalog: Arc<Catalog>,
        video: Option<TrackChannel>,
        audio: Option<TrackChannel>,
    ) -> Interleaved {
        let config = self.config(video, audio);
        let config = Config {
            max_packet_bytes: config.max_packet_bytes.min(DEFAULT_MAX_DATAGRAM_BYTES),
            report_interval: UDP_REPORT_INTERVAL,
            ..config
        };
        Interleaved::new(catalog, &config)
    }

    fn config(&self, video: Option<TrackChannel>, audio: Option<TrackChannel>) -> Config {
        Config {
            video,
            audio,
            clock: wall_clock(&self.stream),
            cname: self.cname.clone(),
            max_packet_bytes: self.preferences.packet_bytes.unwrap_or_else(|| self.stream.rtp_packet_bytes()),
            report_interval: DEFAULT_REPORT_INTERVAL,
        }
    }

    /// The only track, if it is not both.
    pub(super) fn only(&self) -> Option<Kind> {
        match (&self.video, &self.audio) {
            (Some(_), None) => Some(Kind::Video),
            (None, Some(_)) => Some(Kind::Audio),
            _ => None,
        }
    }

    /// Begins to play over UDP. Takes the ports of all tracks.
    pub(super) fn view_datagrams(
        &mut self,
        ends: &Ends,
        round_trip: Option<Duration>,
    ) -> Result<Transmission, BeginError> {
        let carried = self.carried().next().map(|carried| &carried.carrier);
        if let Some(Carrier::Multicast(group)) = carried {
            let group = Arc::clone(group);
            group.begin(|| self.view_group(&group, ends.local))?;
            return Ok(Transmission::Group(group));
        }
        let catalog = self.stream.catalog();
        let framer = self.framer(Arc::clone(&catalog));
        let only = self.only();
        let track = |carried: &mut Option<TrackCarrier>| match carried.take() {
            Some(TrackCarrier { carrier: Carrier::Udp(ports), identity, retransmitter, .. }) => {
                Some(PathTrack { ports, ssrc: identity.ssrc, seq: identity.seq, retransmitter })
            }
            _ => None,
        };
        let (path, listener) = RtpPath::open([track(&mut self.video), track(&mut self.audio)], round_trip)?;
        path.ask_network(&self.stream.network())?;
        let request = ViewRequest {
            renditions: self.renditions.clone(),
            user: self.user.clone(),
            only,
            latency: self.preferences.latency,
            ..datagram_request(path, framer, catalog, ends.peer)
        };
        Ok(Transmission::Udp(self.stream.view(request)?, listener))
    }

    /// The viewer that represents all members of a group: they get the stream's own rendition, with all tracks.
    fn view_group(&self, group: &Group, local: SocketAddr) -> Result<(Viewer, Farewell), BeginError> {
        let tracks = self.stream.tracks().borrow().clone().unwrap_or_default();
        let local = SocketAddr::new(group.source(local.ip()), local.port());
        let track = |kind| -> io::Result<_> {
            let Identity { ssrc, seq, .. } = group.identity(kind);
            let ports = TrackPorts::to_group(local, group.address(kind))?;
            Ok(Some(PathTrack { ports, ssrc, seq, retransmitter: None }))
        };
        let video = if tracks.video.is_some() { track(Kind::Video)? } else { None };
        let audio = if tracks.audio.is_some() { track(Kind::Audio)? } else { None };
        let channel = |track: &Option<PathTrack>, channel, kind| {
            track.as_ref().map(|_| TrackChannel { channel, identity: group.identity(kind) })
        };
        let catalog = self.stream.catalog();
        let (video_channel, audio_channel) =
            (channel(&video, 0, Kind::Video), channel(&audio, 2, Kind::Audio));
        let framer = self.datagram_framer(Arc::clone(&catalog), video_channel, audio_channel);
        let (path, farewell) = RtpPath::open_group([video, audio], group.ttl())?;
        path.ask_network(&self.stream.network())?;
        let address = group.address(Kind::Video);
        let request = ViewRequest {
            renditions: RenditionSelection::None,
            protocol: "rtp-multicast",
            ..datagram_request(path, framer, catalog, address)
        };
        Ok((self.stream.view(request)?, Box::new(move |reason| farewell.say(reason))))
    }
}

fn datagram_request(
    path: RtpPath,
    framer: Interleaved,
    catalog: Arc<Catalog>,
    peer: SocketAddr,
) -> ViewRequest {
    ViewRequest {
        socket: ViewSocket::Datagrams(Box::new(path)),
        preface: Vec::new(),
        framer: Box::new(framer),
        catalog,
        renditions: RenditionSelection::All,
        seal: None,
        protocol: "rtp",
        peer,
        user: None,
        only: None,
        latency: None,
        reorders: true,
        join_age: None,
        aim: Aim::Screen,
    }
}

/// A stream that plays over UDP.
pub(super) enum Transmission {
    Udp(Viewer, Listener),
    Group(Arc<Group>),
}

impl Transmission {
    /// Pauses or goes on. A group goes on for its other members.
    pub(super) fn pause(&self, paused: bool) {
        match self {
            Self::Udp(viewer, _) if paused => viewer.pause(),
            Self::Udp(viewer, _) => viewer.resume(),
            Self::Group(_) => {}
        }
    }

    /// How it ended; `None` while it plays.
    pub(super) fn ended(&self) -> Option<Ended> {
        match self {
            Self::Udp(viewer, _) => viewer.ended(),
            Self::Group(group) => group.viewer().and_then(Viewer::ended),
        }
    }

    /// Ends it with a reason. A group goes on for its other members, unless the reason holds for all.
    pub(super) fn say_goodbye(&self, why: Withdrawal) {
        match self {
            Self::Udp(viewer, listener) => {
                viewer.pause();
                listener.say_goodbye(&why.to_string());
            }
            Self::Group(group) if matches!(why, Withdrawal::Removed | Withdrawal::Codec) => {
                group.say_goodbye(&why.to_string());
            }
            Self::Group(_) => {}
        }
    }

    /// Whether the viewer has said anything by RTCP since this was asked last. Reports of members of a group go to the group.
    pub(super) fn was_heard(&self) -> bool {
        matches!(self, Self::Udp(_, listener) if listener.was_heard())
    }

    /// The viewer's number in the metrics; a group's members share one.
    pub(super) fn viewer(&self) -> Option<u64> {
        match self {
            Self::Udp(viewer, _) => Some(viewer.id()),
            Self::Group(group) => group.viewer().map(Viewer::id),
        }
    }

    /// By which protocol.
    pub(super) fn protocol(&self) -> &'static str {
        match self {
            Self::Udp(..) => "rtp",
            Self::Group(_) => "rtp-multicast",
        }
    }
}

/// The identity of a track's packets.
fn identity() -> io::Result<Identity> {
    let [s0, s1, s2, s3, q0, q1, t0, t1, t2, t3] = random::<10>()?;
    Ok(Identity {
        ssrc: u32::from_be_bytes([s0, s1, s2, s3]),
        seq: u16::from_be_bytes([q0, q1]),
        timestamp_offset: u32::from_be_bytes([t0, t1, t2, t3]),
    })
}

/// The retransmission of the stream with this identity, as a stream of its own.
fn retransmitter_beside(original: &Identity, kind: Kind) -> io::Result<Retransmitter> {
    let mut own = identity()?;
    while own.ssrc == original.ssrc {
        own = identity()?;
    }
    Ok(Retransmitter::new(kind, own.ssrc, own.seq))
}

/// Whether the address asks to have lost packets sent again; an answer if it says neither `on` nor `off`.
pub(super) fn retransmission_asked(target: &Target) -> Result<bool, Reply> {
    let mut pairs = target.query.as_deref().unwrap_or_default().split('&');
    match pairs.find_map(|pair| pair.strip_prefix("retransmission=")) {
        None | Some("off") => Ok(false),
        Some("on") => Ok(true),
        Some(_) => Err(Reply::refuse(400, "Bad Request: retransmission= is on or off")),
    }
}

/// The value of the header `Session`.
pub(super) fn session_header(id: &str) -> String {
    format!("{id};timeout={}", SESSION_TIMEOUT.as_secs())
}

/// The track that SETUP names. A stream of one track needs no name for it.
fn kind_of(track: Option<u8>, tracks: &Tracks) -> Option<Kind> {
    match (track, &tracks.video, &tracks.audio) {
        (Some(0), Some(_), _) | (None, Some(_), None) => Some(Kind::Video),
        (Some(1), _, Some(_)) | (None, None, Some(_)) => Some(Kind::Audio),
        _ => None,
    }
}

fn wall_clock(stream: &Stream) -> WallClock {
    let (media, wall) = stream.wall_clock().unwrap_or((MediaTime::default(), SystemTime::now()));
    let since_1970 = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = since_1970.as_secs().wrapping_add(SECONDS_1900_TO_1970);
    let fraction = (u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000;
    WallClock { media, ntp: seconds << 32 | fraction }
}

/// Answers a request that keeps a session alive and asks for nothing.
pub(super) fn keep_alive(id: Option<&str>) -> Reply {
    match id {
        Some(id) => Reply::ok().header("Session", session_header(id)),
        None => Reply::ok().header("Public", common::METHODS),
    }
}

const WAIT_FOR_TRACKS: Duration = Duration::from_secs(5);
/// Over UDP a report shows the round trip, so the newest should be fresh when the player answers (RFC 3550, 6.2, allows 360 divided by
/// the rate in kbit/s).
const UDP_REPORT_INTERVAL: Duration = Duration::from_secs(1);
const SECONDS_1900_TO_1970: u64 = 2_208_988_800;
