//! A viewer as its stream sees it: what it is offered, and where it begins.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use freshwire::choice::{Selected, Selection, Why, rendition_of};
use freshwire::stats::LAYERS;
use freshwire::{Meta, SinkId};
use freshwire_media::unit::Kind;

use super::display_order::DisplayOrder;
use super::identity::Identity;
use super::renditions::Renditions;
use super::snapshot::{RenditionSnapshot, ViewerSnapshot};
use super::unit_info::UnitInfo;

/// Each unit passes by all queues: what it needs of a queue lies side by side.
pub(super) struct ViewerQueue {
    pub(super) id: u64,
    pub(super) sink: SinkId,
    identity: Arc<Identity>,
    is_paused: bool,
    only: Option<Kind>,
    /// How old a unit may be when it arrives, where the viewer wants it otherwise than the hub.
    latency: Option<Duration>,
    /// The renditions that it may have, as bits.
    pub(super) allowed: u8,
    /// The rendition that it has, and the one that it wants.
    pub(super) selection: Arc<Selection>,
    /// Numbers of the pictures it began with in these two; `None` while it waits for one to begin with.
    starts_at: [Option<u64>; 2],
    /// For a decoder that does not reorder.
    pub(super) order: Option<Box<DisplayOrder>>,
    /// Pictures that are left out for that reason.
    left_out: u64,
    /// It has had a keyframe: sound goes on while it waits for a picture.
    hears: bool,
    offered: [u64; LAYERS],
    missed: u64,
    /// Since when its ring has been full without a byte on the way, and how many had been sent by then.
    full: Option<(Instant, u64)>,
}

impl ViewerQueue {
    pub(super) fn new(
        sink: SinkId,
        identity: Arc<Identity>,
        only: Option<Kind>,
        latency: Option<Duration>,
    ) -> Self {
        Self {
            id: identity.id,
            sink,
            identity,
            is_paused: false,
            only,
            latency,
            allowed: u8::MAX,
            selection: Arc::default(),
            starts_at: [None; 2],
            order: None,
            left_out: 0,
            hears: false,
            offered: [0; LAYERS],
            missed: 0,
            full: None,
        }
    }

    /// The unit's descriptor with this viewer's deadline.
    pub(super) fn meta(&self, offer: &UnitInfo) -> Meta {
        let Some(latency) = self.latency else { return offer.meta };
        Meta { deadline: offer.published + latency + offer.grace, ..offer.meta }
    }

    /// Whether it waits for a keyframe of this rendition.
    pub(super) fn waits_for(&self, rendition: usize) -> bool {
        if self.is_paused || self.only == Some(Kind::Audio) {
            return false;
        }
        let Selected { current, wanted, .. } = self.selection.get();
        let is_selected = [current, wanted].contains(&Some(rendition)) || (current, wanted) == (None, None);
        is_selected && !self.starts_at.iter().flatten().any(|&seq| rendition_of(seq) == Some(rendition))
    }

    /// The renditions that it has or wants, as bits; those that it may have while that is open.
    #[cfg(feature = "moq")]
    pub(super) fn uses(&self) -> u8 {
        if self.is_paused {
            return 0;
        }
        let Selected { current, wanted, .. } = self.selection.get();
        let bits = [current, wanted].into_iter().flatten().fold(0, |bits, index| bits | 1 << index);
        if bits == 0 { self.allowed } else { bits }
    }

    /// The rendition to begin with.
    pub(super) fn first_rendition(&self, renditions: &Renditions) -> usize {
        let may_have = |&index: &usize| self.allowed & 1 << index != 0;
        let all = renditions.all().iter().enumerate();
        let mut present = all.filter(|(_, rendition)| rendition.is_present).map(|(index, _)| index);
        let wanted = self.selection.get().wanted.or_else(|| present.find(may_have));
        wanted.unwrap_or_else(|| renditions.reference())
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

    pub(super) fn counts(&self) -> QueueCounts {
        let Self { offered, missed, left_out, .. } = *self;
        let selected = self.selection.get();
        QueueCounts { identity: Arc::clone(&self.identity), offered, missed, left_out, selected }
    }

    /// Whether the unit is for this viewer now. A viewer begins with a keyframe, or with sound if there is nothing else,
    /// and never gets what depends on a unit from before. Where it missed a picture, sound goes on: a player without it freezes
    /// still.
    pub(super) fn wants(&mut self, offer: &UnitInfo) -> bool {
        if self.is_paused {
            (self.starts_at, self.hears) = ([None; 2], false);
            return false;
        }
        if self.only.is_some_and(|only| only != offer.kind) {
            return false;
        }
        let is_picture = offer.kind == Kind::Video;
        if !is_picture {
            self.hears |= offer.begins || self.only == Some(Kind::Audio);
            return self.hears;
        }
        let wanted = self.wants_picture(offer);
        if wanted {
            let layer = usize::from(offer.meta.layer).min(LAYERS - 1);
            self.offered[layer] += 1;
        }
        wanted
    }

    /// Whether the picture is of a rendition that is selected, and the viewer has what it refers to.
    fn wants_picture(&mut self, offer: &UnitInfo) -> bool {
        let rendition = Some(offer.rendition);
        let Selected { current, mut wanted, .. } = self.selection.get();
        if (current, wanted) == (None, None) && offer.begins && self.allowed & 1 << offer.rendition != 0 {
            self.selection.want(offer.rendition, Why::Start);
            wanted = rendition;
        }
        if rendition != current && rendition != wanted {
            return false;
        }
        for starts_at in &mut self.starts_at {
            let of = starts_at.and_then(rendition_of);
            if of != current && of != wanted {
                *starts_at = None;
            }
        }
        let of_rendition = |starts_at: &Option<u64>| starts_at.and_then(rendition_of) == rendition;
        let place = self.starts_at.iter().position(of_rendition);
        let place = place.or_else(|| self.starts_at.iter().position(Option::is_none));
        let Some(starts_at) = place.map(|place| &mut self.starts_at[place]) else { return false };
        if offer.begins {
            starts_at.get_or_insert(offer.meta.seq);
            self.hears = true;
        }
        let has_references = starts_at.is_some_and(|first| offer.references().all(|seq| seq >= first));
        let is_in_order = has_references && self.order.as_mut().is_none_or(|order| order.takes(offer));
        self.left_out += u64::from(has_references && !is_in_order);
        is_in_order
    }

    /// The unit could not be queued. If others depend on it, the viewer's pictures begin anew.
    pub(super) fn missed(&mut self, offer: &UnitInfo) {
        if !offer.is_leaf {
            for starts_at in &mut self.starts_at {
                *starts_at = starts_at.filter(|&seq| rendition_of(seq) != Some(offer.rendition));
            }
        }
        self.missed += 1;
    }
}

/// Counters of a viewer's queue: all of a snapshot that needs the stream's lock.
pub(super) struct QueueCounts {
    identity: Arc<Identity>,
    offered: [u64; LAYERS],
    missed: u64,
    left_out: u64,
    selected: Selected,
}

impl QueueCounts {
    pub(super) fn snapshot(&self, renditions: &[RenditionSnapshot]) -> ViewerSnapshot {
        let name = |index: Option<usize>| Some(renditions.get(index?)?.name.clone());
        let Selected { current, wanted, why, changes } = self.selected;
        let viewer = &self.identity;
        ViewerSnapshot {
            id: viewer.id,
            protocol: viewer.protocol,
            peer: viewer.peer,
            user: viewer.user.clone(),
            age: viewer.since.elapsed(),
            latency: viewer.latency,
            sink: viewer.monitor.stats(),
            offered: self.offered,
            missed: self.missed,
            left_out: self.left_out,
            rendition: name(current),
            wanted: name(wanted.filter(|_| wanted != current)),
            why: why.name(),
            changes,
        }
    }
}
