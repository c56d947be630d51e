//! Groups without reordered pictures, for a path that has no room for them.
//!
//! A decoder holds back as many pictures as the sequence parameter set says may be shown before one that it has
//! decoded already. Where only I and P pictures are sent, nothing is reordered, and holding them back only costs
//! time. It costs the time of two P pictures within a group, and behind the end of a chain the time until the next
//! group. So the initialization before such a group says that nothing is reordered. Pictures that are reordered
//! nevertheless are left out until the next key picture.

use std::sync::Arc;

use crate::h264::without_reordering;
use crate::unit::{MediaTime, Tracks, UnitHead, VideoCodec, VideoTrack};

/// Follows the pictures of one viewer and decides at each key picture about the group that it begins.
#[derive(Debug, Default)]
pub(super) struct Straight {
    tracks: Option<Forms>,
    /// The group has no reordered pictures.
    is_on: bool,
    group: Option<Group>,
    /// The highest rank of what is not reordered. A reordered picture of this rank is one that all that follow depend on.
    chain_rank: u8,
    /// Such pictures came: this stream cannot do without what is reordered.
    is_impossible: bool,
}

/// The stream's tracks as they are, and with H.264 pictures that are not reordered.
#[derive(Debug)]
struct Forms {
    original: Arc<Tracks>,
    straight: Option<Arc<Tracks>>,
}

impl Forms {
    fn is_of(&self, head: &UnitHead) -> bool {
        Arc::ptr_eq(&self.original, &head.tracks)
    }
}

/// What the viewer was to get of a group.
#[derive(Debug)]
struct Group {
    /// Number of its key picture.
    first: u64,
    /// The latest presentation time.
    latest: MediaTime,
    in_order: u64,
    reordered: u64,
}

impl Straight {
    /// Takes the next picture that the viewer is to get; false if it has to be left out.
    pub(super) fn takes(&mut self, seq: u64, head: &UnitHead) -> bool {
        if head.key {
            self.begin_group(seq, head);
            return true;
        }
        let Some(group) = &mut self.group else { return true };
        let rank = rank(head);
        if head.pts >= group.latest {
            group.latest = head.pts;
            group.in_order += 1;
            self.chain_rank = self.chain_rank.max(rank);
            return true;
        }
        group.reordered += 1;
        let in_chain = rank > 0 && rank >= self.chain_rank;
        self.is_impossible |= in_chain;
        in_chain || !self.is_on
    }

    fn begin_group(&mut self, seq: u64, head: &UnitHead) {
        if !self.tracks.as_ref().is_some_and(|forms| forms.is_of(head)) {
            let straight = straightened(&head.tracks).map(Arc::new);
            *self = Self {
                tracks: Some(Forms { original: Arc::clone(&head.tracks), straight }),
                ..Self::default()
            };
        }
        let has_form = self.tracks.as_ref().is_some_and(|forms| forms.straight.is_some());
        let is_possible = has_form && !self.is_impossible && sets(head).count() == 1;
        let before = self.group.replace(Group { first: seq, latest: head.pts, in_order: 0, reordered: 0 });
        self.is_on = before.is_some_and(|group| {
            let few = group.reordered.saturating_mul(FEW) < seq.saturating_sub(group.first);
            is_possible && few && group.in_order > 0
        });
    }

    /// The unit's tracks as the group in progress has them.
    pub(super) fn tracks<'a>(&'a self, head: &'a UnitHead) -> &'a Arc<Tracks> {
        let forms = self.tracks.as_ref().filter(|forms| self.is_on && forms.is_of(head));
        forms.and_then(|forms| forms.straight.as_ref()).unwrap_or(&head.tracks)
    }

    /// The NAL unit of the picture that is left out, because the initialization has it in another form.
    pub(super) fn omitted(&self, head: &UnitHead) -> Option<usize> {
        let has_other = head.key && !Arc::ptr_eq(self.tracks(head), &head.tracks);
        if has_other { sets(head).next() } else { None }
    }
}

/// The tracks with a sequence parameter set that lets a decoder show each picture at once; `None` if it does already, or if
/// there is none.
fn straightened(tracks: &Tracks) -> Option<Tracks> {
    let video = tracks.video.as_ref()?;
    let VideoCodec::H264 { sps, pps } = &video.codec else { return None };
    let codec = VideoCodec::H264 { sps: without_reordering(sps)?, pps: pps.clone() };
    Some(Tracks { video: Some(VideoTrack { codec, ..video.clone() }), audio: tracks.audio.clone() })
}

/// `nal_ref_idc` of an H.264 picture: 0 if nothing depends on it.
fn rank(head: &UnitHead) -> u8 {
    let slices = head.nal_headers.iter().filter(|header| matches!(header[0] & 31, 1 | 5));
    slices.map(|header| header[0] >> 5 & 3).max().unwrap_or(0)
}

/// The places of an H.264 picture's sequence parameter sets among its NAL units.
fn sets(head: &UnitHead) -> impl Iterator<Item = usize> + '_ {
    (0..).zip(&head.nal_headers).filter(|(_, header)| header[0] & 31 == 7).map(|(at, _)| at)
}

/// Reordered pictures are few if they are less than one in this number of the group's pictures. Chosen, not
/// measured.
const FEW: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Kind;

    /// A picture of the stream with this set: its place in time, its NAL unit's header, and whether it is a key.
    fn picture(tracks: &Arc<Tracks>, pts: i64, header: u8, key: bool) -> UnitHead {
        UnitHead {
            kind: Kind::Video,
            pts: MediaTime::from_nanos(pts),
            dts: MediaTime::from_nanos(pts),
            duration_ns: 1,
            key,
            len: 9,
            nals: Vec::new(),
            nal_headers: if key { vec![[0x67, 0], [header, 0]] } else { vec![[header, 0]] },
            repeat: None,
            tracks: Arc::clone(tracks),
        }
    }

    fn tracks(sps: &[u8]) -> Arc<Tracks> {
        let codec = VideoCodec::H264 { sps: sps.to_vec(), pps: Vec::new() };
        Arc::new(Tracks { video: Some(VideoTrack { codec, width: 1280, height: 720 }), audio: None })
    }

    const KEY: u8 = 0x65;
    const P: u8 = 0x41;
    const REFERENCE_B: u8 = 0x21;
    const LEAF_B: u8 = 0x01;

    /// Groups of ten pictures: the viewer is to get the key, a P picture and `reordered`, until each has been
    /// tried. Returns for each whether the reordered picture was taken.
    fn groups(tracks: &Arc<Tracks>, groups: &[&[u8]]) -> Vec<Option<bool>> {
        let mut straight = Straight::default();
        let mut first = 0;
        let mut group = |reordered: &&[u8]| {
            let at = first as i64;
            assert!(straight.takes(first, &picture(tracks, at, KEY, true)));
            assert!(straight.takes(first + 1, &picture(tracks, at + 4, P, false)));
            let taken = reordered.iter().zip(1..).map(|(&header, after)| {
                straight.takes(first + 1 + after, &picture(tracks, at + after as i64 % 4, header, false))
            });
            let taken = taken.reduce(|all, one| all && one);
            first += 10;
            taken
        };
        groups.iter().map(&mut group).collect()
    }

    #[test]
    fn reordered_pictures_come_back_with_the_group_after() {
        let tracks = tracks(&crate::testing::X264_SEQUENCE);
        let seen = groups(&tracks, &[&[], &[LEAF_B; 2], &[REFERENCE_B, LEAF_B], &[], &[LEAF_B], &[LEAF_B]]);
        assert_eq!(seen, [None, Some(false), Some(true), None, Some(false), Some(false)]);
    }

    #[test]
    fn dependencies_of_the_chain_are_never_left_out() {
        const CHAIN_B: u8 = P;
        let tracks = tracks(&crate::testing::X264_SEQUENCE);
        let seen = groups(&tracks, &[&[], &[CHAIN_B, LEAF_B], &[], &[CHAIN_B, LEAF_B]]);
        assert_eq!(seen, [None, Some(false), None, Some(true)]);
    }

    #[test]
    fn a_set_that_says_nothing_of_reordering_stays() {
        let sps = without_reordering(&crate::testing::X264_SEQUENCE).unwrap();
        assert_eq!(groups(&tracks(&sps), &[&[], &[LEAF_B; 2]]), [None, Some(true)]);
    }
}
