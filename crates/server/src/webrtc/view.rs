//! WHEP: a viewer.

use std::sync::Arc;
use std::time::Duration;

use freshwire_media::unit::{AudioCodec, Tracks};

use super::ask::{Ask, Opened};
use super::offer::{Line, Negotiated, OfferError, answer_viewer, negotiate};
use super::plan::ViewPlan;
use super::session::Role;
use super::sessions::WebRtc;
use super::viewing::{TrackOut, Viewing};
use super::work::{self, Work};
use crate::context::Context;
use crate::hub::{RenditionSelection, Stream};
use crate::lease::Lease;
use crate::net::Permit;

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

/// Begins a viewer's session. It views from the moment on at which the client has proved who it is.
///
/// # Errors
///
/// If the offer cannot be answered.
pub(crate) async fn view(
    webrtc: &Arc<WebRtc>,
    context: &Arc<Context>,
    asked: ViewAsk,
) -> Result<Opened, OfferError> {
    let ViewAsk { ask, stream, tracks, lease, permit, latency, renditions } = asked;
    let Ask { peer, local, offer } = ask;
    let offered = Arc::clone(&tracks);
    let negotiated = negotiate(webrtc, move |port| answer_viewer(port, &offer, &offered, local)).await?;
    let has_aac = tracks.audio.as_ref().is_some_and(|audio| matches!(audio.codec, AudioCodec::Aac { .. }));
    if has_aac {
        tracing::info!(
            %peer,
            stream = stream.name(),
            "a viewer gets no sound: it is AAC, which WebRTC does not carry"
        );
    }
    let Negotiated { agreed, answer, video, audio } = negotiated;
    let track = |line: Line, clock_rate| TrackOut::new(line.mid, line.pt, clock_rate);
    let mut viewing =
        Viewing::new(video.map(|line| track(line, 90_000)), audio.map(|line| track(line, 48_000)));
    if video.is_some_and(|line| !line.has_feedback) {
        viewing.is_blind();
    }
    let carried = Tracks {
        video: tracks.video.clone().filter(|_| video.is_some()),
        audio: tracks.audio.clone().filter(|_| audio.is_some()),
    };
    let lease = lease.until_recoded(&stream, &carried);
    let plan = ViewPlan {
        stream,
        peer,
        user: lease.user().map(str::to_owned),
        latency,
        renditions,
        has_video: video.is_some(),
        has_audio: audio.is_some(),
    };
    let work = Work { role: work::Part::View(plan), lease, permit };
    work::begin(webrtc, context, agreed, Role::Viewer(viewing), work).map(|id| Opened { id, answer })
}
