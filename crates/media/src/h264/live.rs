//! H.264 as one of the live formats.

use std::sync::Arc;

use super::headers::{CodedPicture, H264};
use super::ladder::Ladder;
use super::repeat::{self, Blank};
use crate::coding::nal::{Codec, Followed, NalRole, Place, Properties};
use crate::unit::{Repeatable, VideoCodec, VideoTrack};

/// Follows the pictures of a live H.264 stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    headers: H264,
    ladder: Ladder,
    /// `frame_num` of the newest reference picture.
    frame_num: Option<u32>,
    /// What repetitions of pictures like the last one have in common.
    blank: Option<Arc<Blank>>,
    keys: Keys,
}

/// What the keys of the stream are.
#[derive(Clone, Copy, Debug)]
struct Keys {
    newest_is_idr: bool,
    /// The newest one and the one before it are IDR pictures, so the next one probably is. One of another kind says by their
    /// numbers which pictures before it are no references any more, and a decoder would miss them.
    are_idr: bool,
}

impl Default for Keys {
    fn default() -> Self {
        Self { newest_is_idr: true, are_idr: true }
    }
}

impl Keys {
    fn add(&mut self, is_idr: bool) {
        *self = Self { newest_is_idr: is_idr, are_idr: self.newest_is_idr && is_idr };
    }
}

impl Codec for Live {
    type Headers = H264;

    fn headers(&mut self) -> &mut H264 {
        &mut self.headers
    }

    fn role(header: [u8; 2]) -> NalRole {
        match header[0] & 31 {
            7 | 8 => NalRole::ParameterSet,
            9..=12 => NalRole::Leave,
            _ => NalRole::Keep,
        }
    }

    fn is_key(&self, picture: &CodedPicture) -> bool {
        picture.is_key()
    }

    fn lost(&mut self) {
        self.ladder.begin_anew();
        self.frame_num = None;
    }

    fn follow(&mut self, picture: &CodedPicture) -> Followed {
        let identity = picture.slice.identity;
        let follows = match self.frame_num {
            _ if picture.is_key() || picture.sequence.gaps_allowed => true,
            Some(before) => {
                let next = (before + 1) & ((1 << picture.sequence.frame_num_bits) - 1);
                identity.frame_num == before || identity.frame_num == next
            }
            None => true,
        };
        if !follows || !picture.slice.is_first {
            return Followed::Damaged;
        }
        if picture.is_key() {
            self.keys.add(identity.idr);
        }
        if picture.ref_idc > 0 {
            self.frame_num = Some(identity.frame_num);
        }
        match self.ladder.place(picture) {
            Some(place) => Followed::Placed(Place {
                key: picture.is_key(),
                layer: place.layer,
                group: place.group,
                refs: place.refs,
                display: place.display,
            }),
            None => Followed::Undecodable,
        }
    }

    fn collect_sets(&mut self, picture: &CodedPicture, key: bool) -> Vec<Vec<u8>> {
        let mut sets = Vec::new();
        let sequence = picture.sequence.id;
        self.headers.sequences.collect(key, |set| set.id == sequence, &mut sets);
        self.headers.pictures.collect(key, |set| set.sequence == sequence, &mut sets);
        sets
    }

    fn track(&self, picture: &CodedPicture) -> Option<VideoTrack> {
        let sequence = &picture.sequence;
        let sps = self.headers.sequences.nal(sequence.id)?.to_vec();
        let pps = self.headers.pictures.first(|set| set.sequence == sequence.id)?.to_vec();
        Some(VideoTrack {
            codec: VideoCodec::H264 { sps, pps },
            width: sequence.width,
            height: sequence.height,
        })
    }

    fn properties(&self, picture: &CodedPicture) -> Properties {
        let usability = picture.sequence.usability;
        Properties { reorder: usability.reorder, frame_ns: usability.frame_ns }
    }

    fn repeat(&mut self, picture: &CodedPicture) -> Option<Arc<dyn Repeatable>> {
        let CodedPicture { sequence, picture: set, .. } = picture;
        if self.blank.as_ref().is_none_or(|blank| !blank.is_of(sequence, set)) {
            self.blank = Blank::new(sequence, set).map(Arc::new);
        }
        let blank = self.blank.as_ref().filter(|_| self.keys.are_idr).map(Arc::clone)?;
        Some(Arc::new(repeat::Place::new(blank, picture)))
    }
}
