//! A viewer as its stream sees it: what it is offered, and where it begins.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use freshwire::{LAYERS, Meta};
use freshwire_media::unit::Kind;

use super::stream::Offer;
use super::viewer::{Identity, SeatCounts};

/// Each unit passes by all seats: what it needs of a seat lies side by side.
pub(super) struct Seat {
    pub(super) id: u64,
    pub(super) ring: usize,
    identity: Arc<Identity>,
    is_paused: bool,
    only: Option<Kind>,
    /// How old a unit may be when it arrives, where the viewer wants it otherwise than the hub.
    latency: Option<Duration>,
    /// Number of the picture it began with, 0 if there are none; `None` while it waits for one to begin with.
    begun_at: Option<u64>,
    /// It has begun once: sound goes on while it waits for a picture.
    hears: bool,
    offered: [u64; LAYERS],
    missed: u64,
    /// Since when its ring has been full without a byte on the way, and how many had been sent by then.
    full: Option<(Instant, u64)>,
}

impl Seat {
    pub(super) fn new(
        ring: usize,
        identity: Arc<Identity>,
        only: Option<Kind>,
        latency: Option<Duration>,
    ) -> Self {
        Self {
            id: identity.id,
            ring,
            identity,
            is_paused: false,
            only,
            latency,
            begun_at: None,
            hears: false,
            offered: [0; LAYERS],
            missed: 0,
            full: None,
        }
    }

    /// The unit's descriptor with this viewer's deadline.
    pub(super) fn meta(&self, offer: &Offer) -> Meta {
        let Some(latency) = self.latency else { return offer.meta };
        Meta { deadline: offer.meta.generated + latency + offer.grace, ..offer.meta }
    }

    /// Whether it waits for a keyframe.
    pub(super) fn waits(&self) -> bool {
        self.begun_at.is_none() && !self.is_paused
    }

    /// Whether it gets nothing for now; then it goes on with a keyframe.
    pub(super) fn set_paused(&mut self, paused: bool) {
        self.is_paused = paused;
    }

    /// Whether its connection has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.identity.monitor.ended().is_some()
    }

    /// The ring has no room: whether it has given nothing for so long although all that was sent has arrived. A slow path is the
    /// engine's affair.
    //= spec/ring.md R-TRUST-7
    pub(super) fn is_stuck(&mut self, patience: Duration) -> bool {
        let sink = self.identity.monitor.stats();
        match self.full {
            Some((since, bytes)) if bytes == sink.bytes && bytes == sink.acked => since.elapsed() >= patience,
            _ => {
                self.full = Some((Instant::now(), sink.bytes));
                false
            }
        }
    }

    /// Its viewer is to be disconnected.
    pub(super) fn give_up(&self) {
        tracing::warn!(peer = %self.identity.peer, "a viewer is given up: its ring gives nothing, although its path is free");
        self.identity.is_given_up.store(true, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> SeatCounts {
        let Self { offered, missed, .. } = *self;
        SeatCounts { identity: Arc::clone(&self.identity), offered, missed }
    }

    /// Whether the unit is for this viewer now. A viewer begins with a keyframe, or with sound if there is nothing else,
    /// and never gets what depends on a unit from before. Where it missed a picture, sound goes on: a player without it stands
    /// still.
    pub(super) fn wants(&mut self, offer: &Offer) -> bool {
        if self.is_paused {
            (self.begun_at, self.hears) = (None, false);
            return false;
        }
        if self.only.is_some_and(|only| only != offer.kind) {
            return false;
        }
        let is_picture = offer.kind == Kind::Video;
        if offer.begins || self.only == Some(Kind::Audio) {
            self.begun_at.get_or_insert(if is_picture { offer.meta.user_seq } else { 0 });
            self.hears = true;
        }
        if !is_picture {
            return self.hears;
        }
        let Some(first) = self.begun_at else { return false };
        let wanted = references(&offer.meta).all(|seq| seq >= first);
        if wanted {
            let layer = usize::from(offer.meta.layer).min(LAYERS - 1);
            self.offered[layer] += 1;
        }
        wanted
    }

    /// The unit could not be queued. If others depend on it, the viewer's pictures begin anew.
    pub(super) fn missed(&mut self, offer: &Offer) {
        if !offer.is_leaf {
            self.begun_at = None;
        }
        self.missed += 1;
    }
}

fn references(meta: &Meta) -> impl Iterator<Item = u64> {
    let seq = meta.user_seq;
    let distances = meta.refs.into_iter().filter(|&distance| distance != 0);
    distances.map(move |distance| seq.saturating_sub(distance.into()))
}
