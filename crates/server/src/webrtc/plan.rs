use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use freshwire::choice::Aim;
use freshwire_media::framing::interleaved::{Config, Interleaved, TrackChannel};
use freshwire_media::rtp::{Identity, WallClock};
use freshwire_media::unit::{Catalog, Kind, MediaTime};

use super::path::SessionPath;
use super::session::Session;
use crate::hub::{HubError, RenditionSelection, Stream, ViewRequest, ViewSocket, Viewer, WEBRTC};

/// The largest RTP packet before encryption. Extensions, the number of a packet that is sent again and the authentication tag fit into the
/// rest of the 1200 bytes that WebRTC datagrams have.
const PACKET_BYTES: usize = 1140;

/// What a session's task needs to begin to view.
pub(super) struct ViewPlan {
    pub(super) stream: Arc<Stream>,
    pub(super) peer: SocketAddr,
    pub(super) user: Option<String>,
    pub(super) latency: Option<Duration>,
    pub(super) renditions: RenditionSelection,
    pub(super) has_video: bool,
    pub(super) has_audio: bool,
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
            aim: Aim::Screen,
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
