//! A stream that is announced at a relay of Media over QUIC.
//!
//! ```text
//!  hub::Stream ─► ring ─► policy ─► Frames ─► TrackPath ─► freshwire_moq::TrackWriter ─► relay
//!                  one for each rendition that the relay asks for, and one for the sound
//! ```
//!
//! What the uplink cannot carry in time is not written: the policy decides before a QUIC stream has the picture.

mod clock;
mod path;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use freshwire::choice::Aim;
use freshwire_media::framing::frames::Frames;
use freshwire_media::unit::{Kind, Tracks};
use freshwire_moq::{Announcement, Demand, TrackWriter};

use self::clock::WireClock;
use self::path::{TrackPath, TrackSink, Uplink};
use super::error::ForwardError;
use super::shared::{End, Forward, SILENCE, stops};
use crate::config::RelayAddress;
use crate::failures::Failures;
use crate::hub::{Offer, RelayReader, RenditionSelection, Stream, ViewRequest, ViewSocket, Viewer};
use crate::targets::TargetState as State;

/// How often to see what the relay asks for, what the stream has, and what the uplink carries. Chosen, not measured.
const LOOK: Duration = Duration::from_millis(50);

/// A track that nobody asks for any more is written for so long: an edge that has lost its connection comes back. As for an edge.
const LINGER: Duration = Duration::from_secs(2);

/// The name of the track of sound. That of a rendition cannot have the colon.
const SOUND: &str = "audio:main";

/// Announces the stream until its source ends, the server stops, or something fails.
pub(super) async fn announce(
    forward: &Forward,
    address: &RelayAddress,
    stream: &Arc<Stream>,
) -> Result<End, ForwardError> {
    let mut stopping = forward.context.shutdown.clone();
    let mut removed = stream.removed();
    let clock = Arc::new(WireClock::new(stream.capture_clock()));
    let announcement = tokio::select! {
        opened = Announcement::open(address.url(), stream.name(), clock.zero()) => opened?,
        () = stops(&mut stopping) => return Ok(End::Stop),
    };
    let mut session = Session {
        forward,
        stream,
        peer: peer(address),
        clock,
        uplink: Arc::new(Uplink::new(Instant::now())),
        tracks: BTreeMap::new(),
        is_announced: false,
        reader: None,
        refused: Vec::new(),
        failures: Failures::default(),
    };
    tracing::info!(stream = forward.name, relay = %address, "connected to the relay");
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = look.tick() => {
                if stream.fed().is_none_or(|fed| fed.elapsed() > SILENCE) {
                    return Ok(End::Source);
                }
                session.look(&announcement)?;
            }
            error = announcement.ended() => return Err(error.into()),
            _ = removed.wait_for(|&is_removed| is_removed) => return Ok(End::Source),
            () = stops(&mut stopping) => return Ok(End::Stop),
        }
    }
}

/// The relay's address for people; a name is not resolved for that.
fn peer(address: &RelayAddress) -> SocketAddr {
    let url = address.url();
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let ip = host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    SocketAddr::new(ip, url.port_or_known_default().unwrap_or_default())
}

/// A connection at which the stream is announced.
struct Session<'a> {
    forward: &'a Forward,
    stream: &'a Arc<Stream>,
    peer: SocketAddr,
    clock: Arc<WireClock>,
    uplink: Arc<Uplink>,
    tracks: BTreeMap<String, Track>,
    is_announced: bool,
    /// There while somebody reads pictures: the stream's ladder is made for them.
    reader: Option<RelayReader>,
    /// Tracks that cannot be published as they are, which the log has.
    refused: Vec<(String, Arc<Tracks>)>,
    failures: Failures,
}

/// One track of the broadcast.
struct Track {
    kind: Kind,
    /// What its catalog entry was made of.
    described: Arc<Tracks>,
    demand: Demand,
    sink: Arc<Mutex<TrackSink>>,
    viewer: Option<Viewer>,
    /// When somebody asked for it last.
    used: Option<Instant>,
}

impl Session<'_> {
    fn look(&mut self, announcement: &Announcement) -> Result<(), ForwardError> {
        self.clock.follow(self.stream.capture_clock());
        self.uplink.follow(&announcement.link(), Instant::now());
        if !self.tracks.values().any(|track| track.demand.is_used()) {
            self.uplink.clear();
        }
        self.list(announcement);
        if !self.is_announced && !self.tracks.is_empty() {
            announcement.announce()?;
            self.is_announced = true;
        }
        let now = Instant::now();
        let Self { forward, tracks, stream, peer, clock, uplink, failures, .. } = self;
        for (name, track) in tracks {
            track.look(now)?;
            if track.used.is_some() && track.viewer.is_none() {
                let path = TrackPath::new(Arc::clone(&track.sink), Arc::clone(clock), Arc::clone(uplink));
                let join_age = path::lock(&track.sink).join_age(now);
                match stream.view(request(stream, name, track.kind, *peer, path, join_age)) {
                    Ok(viewer) => track.viewer = Some(viewer),
                    // Such as too many viewers: there may be a place later.
                    Err(error) => {
                        let failure = error.to_string();
                        if failures.is_news(&failure, now) {
                            tracing::warn!(
                                stream = forward.name,
                                track = name,
                                failure,
                                "a track is not served"
                            );
                        }
                    }
                }
            }
        }
        let is_read = self.tracks.values().any(|track| track.kind == Kind::Video && track.used.is_some());
        match &self.reader {
            None if is_read => self.reader = Some(self.stream.read_from_relay()),
            Some(_) if !is_read => self.reader = None,
            _ => {}
        }
        self.forward.status.set(self.state());
        Ok(())
    }

    fn state(&self) -> State {
        let mut viewers = self.tracks.values().filter_map(|track| track.viewer.as_ref());
        viewers.next().map_or(State::Announced, |viewer| State::Publishing { viewer: viewer.id() })
    }

    /// Brings the broadcast's tracks to what the stream has.
    fn list(&mut self, announcement: &Announcement) {
        let offers = self.stream.offers();
        let sound = offers.iter().find(|offer| offer.tracks.audio.is_some());
        let sound = sound.map(|offer| (SOUND, Kind::Audio, offer));
        let pictures = offers.iter().filter(|offer| offer.tracks.video.is_some());
        let wanted: Vec<_> =
            pictures.map(|offer| (offer.name.as_str(), Kind::Video, offer)).chain(sound).collect();
        // While a stream has no source, it keeps its tracks.
        if offers.is_empty() {
            return;
        }
        self.tracks.retain(|name, track| {
            let offer = wanted.iter().find(|(other, ..)| other == name);
            let stays = offer.is_some_and(|(_, kind, offer)| is_same(*kind, &offer.tracks, &track.described));
            if !stays {
                path::lock(&track.sink).close();
            }
            stays
        });
        self.refused.retain(|(name, described)| {
            let offer = wanted.iter().find(|(other, ..)| other == name);
            offer.is_some_and(|(_, kind, offer)| is_same(*kind, &offer.tracks, described))
        });
        for (name, kind, offer) in wanted {
            if self.tracks.contains_key(name) || self.refused.iter().any(|(refused, _)| refused == name) {
                continue;
            }
            match publish(announcement, name, kind, offer) {
                Ok(writer) => {
                    self.tracks.insert(name.to_owned(), Track::new(kind, &offer.tracks, writer));
                }
                Err(error) => {
                    let (stream, target) = (&self.forward.name, &self.forward.target);
                    tracing::warn!(stream, %target, %error, "a track is left out");
                    self.refused.push((name.to_owned(), Arc::clone(&offer.tracks)));
                }
            }
        }
    }
}

fn publish(
    announcement: &Announcement,
    name: &str,
    kind: Kind,
    offer: &Offer,
) -> Result<TrackWriter, freshwire_moq::MoqError> {
    match (kind, &offer.tracks.video, &offer.tracks.audio) {
        (Kind::Video, Some(video), _) => announcement.video(name, video, offer.rate),
        (Kind::Audio, _, Some(audio)) => announcement.audio(name, audio),
        _ => Err(freshwire_moq::MoqError::Over),
    }
}

/// Whether the catalog's entry holds. Parameter sets that change come with the pictures.
fn is_same(kind: Kind, now: &Tracks, then: &Tracks) -> bool {
    match kind {
        Kind::Video => {
            let codec =
                |tracks: &Tracks| tracks.video.as_ref().map(|video| std::mem::discriminant(&video.codec));
            codec(now) == codec(then)
        }
        Kind::Audio => now.audio == then.audio,
    }
}

fn request(
    stream: &Stream,
    name: &str,
    kind: Kind,
    peer: SocketAddr,
    path: TrackPath,
    join_age: Duration,
) -> ViewRequest {
    let catalog = stream.catalog();
    ViewRequest {
        socket: ViewSocket::Datagrams(Box::new(path)),
        preface: Vec::new(),
        framer: Box::new(Frames::new(Arc::clone(&catalog))),
        catalog,
        renditions: match kind {
            Kind::Video => RenditionSelection::Named(name.to_owned()),
            Kind::Audio => RenditionSelection::None,
        },
        seal: None,
        protocol: "moq",
        peer,
        user: None,
        only: Some(kind),
        reorders: true,
        latency: None,
        join_age: Some(join_age),
        aim: Aim::Screen,
    }
}

impl Track {
    fn new(kind: Kind, described: &Arc<Tracks>, writer: TrackWriter) -> Self {
        let demand = writer.demand();
        let sink = Arc::new(Mutex::new(TrackSink::new(writer)));
        Self { kind, described: Arc::clone(described), demand, sink, viewer: None, used: None }
    }

    /// Sees whether it is asked for, and whether it goes on.
    fn look(&mut self, now: Instant) -> Result<(), ForwardError> {
        if let Some(error) = path::lock(&self.sink).take_failure() {
            return Err(error.into());
        }
        if self.demand.is_used() {
            self.used = Some(now);
        } else if self.used.is_some_and(|used| now.duration_since(used) > LINGER) {
            (self.used, self.viewer) = (None, None);
        }
        // One whose ring is stuck begins anew.
        self.viewer.take_if(|viewer| viewer.ended().is_some());
        Ok(())
    }
}
