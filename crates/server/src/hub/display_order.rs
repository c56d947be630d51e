//! Which pictures a decoder can have that shows them as they come.

use freshwire::choice::MAX_RENDITIONS;
use freshwire_media::unit::MediaTime;

use super::unit_info::UnitInfo;

/// Pictures left out since the keyframe that others may depend on; with more, the rest of the group is left out.
const MOST_LEFT_OUT: usize = 64;

/// Leaves out pictures that are shown before one that was sent (B pictures), and those that depend on them. For each rendition, as a
/// viewer is offered two of them while it changes.
#[derive(Default)]
pub(super) struct DisplayOrder([Group; MAX_RENDITIONS]);

/// The pictures since a keyframe.
#[derive(Default)]
struct Group {
    newest: Option<MediaTime>,
    left_out: Vec<u64>,
}

impl DisplayOrder {
    /// Whether the picture can be sent, given that those before it were.
    pub(super) fn takes(&mut self, offer: &UnitInfo) -> bool {
        let Some(group) = self.0.get_mut(offer.rendition) else { return false };
        if offer.begins {
            *group = Group { newest: Some(offer.shown), left_out: Vec::new() };
            return true;
        }
        let is_full = group.left_out.len() >= MOST_LEFT_OUT;
        let is_taken = !is_full
            && group.newest.is_none_or(|newest| offer.shown > newest)
            && offer.references().all(|seq| !group.left_out.contains(&seq));
        if is_taken {
            group.newest = Some(offer.shown);
        } else if !offer.is_leaf && !is_full {
            group.left_out.push(offer.meta.seq);
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use freshwire::{Meta, Timestamp};
    use freshwire_media::unit::Kind;

    use super::*;

    /// A picture by its number, when it is shown, and the distances to what it refers to.
    fn picture(seq: u64, shown: i64, refs: [u32; 2], is_leaf: bool) -> UnitInfo {
        UnitInfo {
            meta: Meta { seq, refs, ..Meta::default() },
            rendition: 0,
            kind: Kind::Video,
            begins: refs == [0; 2],
            is_leaf,
            shown: MediaTime::from_nanos(shown),
            published: Timestamp::ZERO,
            grace: Duration::ZERO,
        }
    }

    fn taken(pictures: &[UnitInfo]) -> Vec<u64> {
        let mut order = DisplayOrder::default();
        let taken = pictures.iter().filter(|picture| order.takes(picture));
        taken.map(|picture| picture.meta.seq).collect()
    }

    #[test]
    fn pictures_shown_before_their_predecessor_are_left_out() {
        // I0 P4 B2 b1 b3 P8 in decoding order; then a keyframe with a picture that leads it.
        let group = [
            picture(1, 0, [0; 2], false),
            picture(2, 4, [1, 0], false),
            picture(3, 2, [1, 2], false),
            picture(4, 1, [1, 3], true),
            picture(5, 3, [2, 3], true),
            picture(6, 8, [4, 0], false),
            picture(7, 12, [0; 2], false),
            picture(8, 10, [1, 2], true),
            picture(9, 13, [2, 0], false),
        ];
        assert_eq!(taken(&group), [1, 2, 6, 7, 9]);
    }

    #[test]
    fn dependents_of_a_picture_that_was_left_out_go_too() {
        let group = [
            picture(1, 0, [0; 2], false),
            picture(2, 4, [1, 0], false),
            picture(3, 2, [1, 2], false),
            picture(4, 8, [1, 0], false),
            picture(5, 9, [1, 0], true),
            picture(6, 12, [4, 0], false),
            picture(7, 13, [0; 2], false),
            picture(8, 14, [1, 0], false),
        ];
        assert_eq!(taken(&group), [1, 2, 6, 7, 8]);
    }

    /// Whatever comes: times only grow within a group, and nothing is taken that depends on what was not.
    #[test]
    fn any_pictures_come_in_order_and_with_their_references() {
        bolero::check!().with_type::<Vec<(i8, [u8; 2], bool)>>().for_each(|pictures| {
            let mut order = DisplayOrder::default();
            let (mut newest, mut left_out) = (i64::MIN, Vec::new());
            for (&(shown, refs, is_leaf), seq) in pictures.iter().zip(1000..) {
                let offer = picture(seq, shown.into(), refs.map(|back| u32::from(back % 8)), is_leaf);
                let is_taken = order.takes(&offer);
                if offer.begins {
                    (newest, left_out) = (i64::MIN, Vec::new());
                }
                if is_taken {
                    assert!(i64::from(shown) > newest);
                    assert!(offer.references().all(|seq| !left_out.contains(&seq)));
                    newest = shown.into();
                } else if !is_leaf {
                    left_out.push(seq);
                }
            }
        });
    }
}
