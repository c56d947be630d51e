//! Which pictures of an H.265 stream depend on which (ITU-T H.265, 8.1.3 and 8.3).

use std::sync::Arc;

use super::repeat::{self, Blank};
use super::syntax::{self, PICTURE_SETS, is_intra_access};
use super::{H265, Picture};
use crate::coding::depend::{Dependencies, Use};
use crate::coding::nal::{Codec, Followed, NalRole, Place, Properties};
use crate::unit::{Repeatable, VideoCodec, VideoTrack};

/// Follows the pictures of a live H.265 stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    headers: H265,
    dependencies: Dependencies,
    /// The decoded picture buffer.
    kept: Vec<KeptPicture>,
    /// Picture order count of the newest picture that others are counted from.
    order: i64,
    /// What display order adds to picture order counts.
    base: i64,
    highest: i64,
    begin_anew: bool,
    /// Pictures that are shown before the newest intra access picture, and refer to what was before it, have nothing to
    /// refer to.
    skip_leading: bool,
    /// Picture order count of the picture that was followed last.
    newest: i64,
    /// What repetitions of pictures like the last one have in common.
    blank: Option<Arc<Blank>>,
}

/// A picture that others may refer to.
#[derive(Clone, Copy, Debug)]
struct KeptPicture {
    order: i64,
    number: u64,
}

/// What the reference picture set says.
struct References {
    kept: Vec<KeptPicture>,
    /// Numbers of the units that the picture uses; `None` for one that is missing.
    used: Vec<Option<u64>>,
}

impl Live {
    /// The picture order count (8.3.1).
    fn order_of(&self, picture: &Picture, begins: bool) -> i64 {
        let low = i64::from(picture.slice.order);
        if begins {
            return low;
        }
        let period = 1_i64 << picture.sequence.order_bits;
        let before = self.order.rem_euclid(period);
        let high = self.order - before;
        if low < before && before - low >= period / 2 {
            high + period + low
        } else if low > before && low - before > period / 2 {
            high - period + low
        } else {
            high + low
        }
    }

    /// The reference picture set (8.3.2).
    fn references(&self, picture: &Picture, order: i64) -> References {
        let mut found = References { kept: Vec::new(), used: Vec::new() };
        let mut add = |kept: Option<KeptPicture>, used: bool| {
            found.kept.extend(kept);
            if used {
                found.used.push(kept.map(|kept| kept.number));
            }
        };
        for entry in picture.slice.short_term.entries() {
            let wanted = order + i64::from(entry.delta);
            add(self.kept.iter().find(|kept| kept.order == wanted).copied(), entry.used);
        }
        let period = 1_i64 << picture.sequence.order_bits;
        for long_term in &picture.slice.long_term {
            let low = i64::from(long_term.order);
            let is_it = |kept: &&KeptPicture| match long_term.cycles {
                Some(cycles) => {
                    kept.order == order - order.rem_euclid(period) - i64::from(cycles) * period + low
                }
                None => kept.order.rem_euclid(period) == low,
            };
            add(self.kept.iter().find(is_it).copied(), long_term.used);
        }
        found
    }
}

impl Codec for Live {
    type Headers = H265;

    fn headers(&mut self) -> &mut H265 {
        &mut self.headers
    }

    fn role(header: [u8; 2]) -> NalRole {
        match syntax::nal_kind(&header) {
            Some((syntax::VPS | syntax::SPS | syntax::PPS, 0)) => NalRole::ParameterSet,
            Some((syntax::ACCESS_UNIT_DELIMITER..=syntax::FILLER, _)) => NalRole::Leave,
            Some((_, 0)) => NalRole::Keep,
            _ => NalRole::Leave,
        }
    }

    fn is_key(&self, picture: &Picture) -> bool {
        is_intra_access(picture.slice.kind)
    }

    fn lost(&mut self) {
        self.begin_anew = true;
    }

    fn follow(&mut self, picture: &Picture) -> Followed {
        let kind = picture.slice.kind;
        let key = is_intra_access(kind);
        let anew = std::mem::take(&mut self.begin_anew) || picture.after_end;
        let begins = key && (anew || kind != CRA);
        if key {
            self.skip_leading = begins;
        }
        if matches!(kind, RASL_N | RASL_R) && self.skip_leading {
            return Followed::Undecodable;
        }
        let order = self.order_of(picture, begins);
        self.newest = order;
        if begins {
            self.kept.clear();
            self.base =
                self.highest + if self.dependencies.next_number() > 0 { LEADING_SPAN } else { 0 } - order;
        }
        let references = self.references(picture, order);
        let mut on = Vec::new();
        if !key {
            for number in references.used {
                let Some(number) = number else { return Followed::Damaged };
                on.push(number);
            }
        }
        let temporal_id = picture.slice.temporal_id;
        let droppable = !is_referenced(kind) && temporal_id >= picture.sequence.profile.sub_layers_minus1;
        let part = match kind {
            _ if key => Use::Key,
            _ if droppable => Use::Leaf,
            RADL_N..=RASL_R => Use::LeadingReference,
            _ => Use::Reference,
        };
        let holds = |number| references.kept.iter().any(|kept| kept.number == number);
        let Some(links) = self.dependencies.add(part, &on, holds) else { return Followed::Damaged };
        self.kept = references.kept;
        if !droppable {
            self.kept.push(KeptPicture { order, number: links.number });
        }
        if temporal_id == 0 && !matches!(kind, RADL_N..=RASL_R) && is_referenced(kind) {
            self.order = order;
        }
        let display = self.base + order;
        self.highest = self.highest.max(display);
        let layer = match part {
            Use::Key => 0,
            Use::Leaf => 3,
            Use::Reference | Use::LeadingReference => {
                if temporal_id == 0 && part == Use::Reference {
                    1
                } else {
                    2
                }
            }
        };
        Followed::Placed(Place { key, layer, group: links.group, refs: links.refs, display })
    }

    fn repeat(&mut self, picture: &Picture) -> Option<Arc<dyn Repeatable>> {
        if self.blank.as_ref().is_none_or(|blank| !blank.is_of(&picture.sequence)) {
            self.blank = Blank::new(&picture.sequence).map(Arc::new);
        }
        // The highest number is for the repetitions.
        if self.headers.pictures.get(PICTURE_SETS - 1).is_some() {
            return None;
        }
        let blank = Arc::clone(self.blank.as_ref()?);
        Some(Arc::new(repeat::Place::new(blank, picture, self.newest)))
    }

    fn collect_sets(&mut self, picture: &Picture, key: bool) -> Vec<Vec<u8>> {
        let mut sets = Vec::new();
        let video = picture.sequence.video;
        if let Some(set) = self.headers.video.nal(video).filter(|_| key) {
            sets.push(set.to_vec());
        }
        self.headers.sequences.collect(key, |set| set.id == picture.sequence_id, &mut sets);
        self.headers.pictures.collect(key, |set| set.sequence == picture.sequence_id, &mut sets);
        sets
    }

    fn track(&self, picture: &Picture) -> Option<VideoTrack> {
        let vps = self.headers.video.nal(picture.sequence.video).unwrap_or_default().to_vec();
        let sps = self.headers.sequences.nal(picture.sequence_id)?.to_vec();
        let pps = self.headers.pictures.first(|set| set.sequence == picture.sequence_id)?.to_vec();
        Some(VideoTrack {
            codec: VideoCodec::H265 { vps, sps, pps },
            width: picture.sequence.width,
            height: picture.sequence.height,
        })
    }

    fn properties(&self, picture: &Picture) -> Properties {
        Properties { reorder: Some(picture.sequence.reorder), frame_ns: picture.sequence.frame_ns }
    }
}

/// Pictures of the same temporal layer may depend on it.
fn is_referenced(kind: u8) -> bool {
    kind >= 16 || kind & 1 == 1
}

const RADL_N: u8 = 6;
const RASL_N: u8 = 8;
const RASL_R: u8 = 9;
const CRA: u8 = 21;

/// By how much more a picture's order count is at most than that of one that leads it, across groups.
const LEADING_SPAN: i64 = 1 << 16;
