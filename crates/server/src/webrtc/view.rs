//! WHEP: a viewer.

use std::sync::Arc;

use freshwire_media::framing::interleaved::{Config, Interleaved, TrackChannel};
use freshwire_media::rtp::{Identity, WallClock};
use freshwire_media::unit::{AudioCodec, Catalog, Kind, MediaTime, Tracks};
use std::time::Duration;

use super::offer::{Negotiated, OfferError, answer_viewer};
use super::path::{SessionPath, TrackOut, Viewing};
use super::session::{Role, Session};
use super::work::{self, Work};
use super::{Ask, Begun, WEBRTC, WebRtc};
use crate::context::Context;
use crate::hub::{HubError, RenditionSelection, Stream, ViewRequest, ViewSocket, Viewer};
use crate::lease::Lease;
use crate::net::Permit;

/// The largest RTP packet before encryption: extensions, the number of a packet that is sent again and the authentication tag have to fit
/// into the 1200 bytes that WebRTC datagrams have.
const PACKET_BYTES: usize = 1140;

/// What a viewer asked for.
pub(crate) struct ViewAsk {
    pub(crate) ask: Ask,
    pub(crate) stream: Arc<Stream>,
    pub(crate) tracks: Arc<Tracks>,
    pub(crate) lease: Lease,
    pub(crate) permit: Permit,
    pub(crate) latency: Option<Duration>,
    pub(crate) renditions: RenditionSelection,
}

/// What a session's task needs to begin to view.
pub(super) struct ViewPlan {
    pub(super) stream: Arc<Stream>,
    pub(super) peer: std::net::SocketAddr,
    pub(super) user: Option<String>,
    pub(super) latency: Option<Duration>,
    pub(super) renditions: RenditionSelection,
    has_video: bool,
    has_audio: bool,
}

/// Begins a viewer's session. It views from the moment on at which the client has proved who it is.
///
/// # Errors
///
/// If the offer cannot be answered.
pub(crate) fn view(context: &Arc<Context>, asked: ViewAsk) -> Result<Begun, OfferError> {
    let ViewAsk { ask, stream, tracks, lease, permit, latency, renditions } = asked;
    let Some(port) = context.webrtc.port.get() else { return Err(OfferError::NoAddress) };
    let negotiated = answer_viewer(port, &ask.offer, &tracks, ask.local)?;
    let has_aac = tracks.audio.as_ref().is_some_and(|audio| matches!(audio.codec, AudioCodec::Aac { .. }));
    if has_aac {
        tracing::info!(
            peer = %ask.peer,
            stream = stream.name(),
            "a viewer gets no sound: it is AAC, which WebRTC does not carry"
        );
    }
    let Negotiated { agreed, answer, video, audio } = negotiated;
    let track = |line: super::offer::Line, clock_rate| TrackOut::new(line.mid, line.pt, clock_rate);
    let mut viewing =
        Viewing::new(video.map(|line| track(line, 90_000)), audio.map(|line| track(line, 48_000)));
    if video.is_some_and(|line| !line.has_feedback) {
        viewing.is_blind();
    }
    let plan = ViewPlan {
        stream,
        peer: ask.peer,
        user: lease.user().map(str::to_owned),
        latency,
        renditions,
        has_video: video.is_some(),
        has_audio: audio.is_some(),
    };
    let work = Work { role: work::Part::View(plan), lease, permit };
    work::begin(context, agreed, Role::Viewer(viewing), work).map(|id| Begun { id, answer })
}

impl ViewPlan {
    /// Begins to view.
    pub(super) fn begin(&self, session: &Arc<Session>) -> Result<Viewer, HubError> {
        let catalog = self.stream.catalog();
        self.stream.view(ViewRequest {
            socket: ViewSocket::Datagrams(Box::new(SessionPath(Arc::clone(session)))),
            preface: Vec::new(),
            framer: Box::new(self.framer(Arc::clone(&catalog))),
            catalog,
            renditions: self.renditions.clone(),
            seal: None,
            protocol: WEBRTC,
            peer: self.peer,
            user: self.user.clone(),
            only: match (self.has_video, self.has_audio) {
                (true, false) => Some(Kind::Video),
                (false, true) => Some(Kind::Audio),
                _ => None,
            },
            reorders: false,
            latency: self.latency,
            join_age: None,
        })
    }

    /// Packets, in the frames that [`SessionPath`] takes apart. Timestamps are those of the stream: the page knows them by that. Reports
    /// are the protocol's own.
    fn framer(&self, catalog: Arc<Catalog>) -> Interleaved {
        let channel = |has: bool, channel| {
            let identity = Identity { ssrc: 0, seq: 0, timestamp_offset: 0 };
            has.then_some(TrackChannel { channel, identity })
        };
        let config = Config {
            video: channel(self.has_video, 0),
            audio: channel(self.has_audio, 2),
            clock: WallClock { media: MediaTime::default(), ntp: 0 },
            cname: String::new(),
            max_packet_bytes: PACKET_BYTES,
            report_interval: Duration::from_secs(3600),
        };
        Interleaved::new(catalog, &config)
    }
}

impl WebRtc {
    /// Whether the session was offered with this ICE user fragment.
    pub(crate) fn is_offered(&self, id: &str, ufrag: &str) -> bool {
        self.sessions().find(id).is_some_and(|session| session.is_offered(ufrag))
    }

    /// Whether there is a session of this identifier.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.sessions().find(id).is_some()
    }
}
