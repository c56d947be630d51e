//! The terms of the cost.

use crate::Record;

/// A picture shown for longer than this is frozen, in seconds.
pub const FREEZE: f64 = 0.5;
/// Seconds of age that a second of frozen picture costs besides.
pub const FREEZE_WEIGHT: f64 = 1.0;
/// Seconds of age that a second of mean distance between the pictures shown costs.
///
/// From 12 to 6 pictures a second that distance grows by 42 ms, which is as bad as 170 ms of age. There, the
/// subjective scale of Ou, Ma and Wang ("Perceptual quality assessment of video considering both frame rate and
/// quantization artifacts", 2011) loses a fifth of its range. That of ITU-T G.107.1 loses as much for about 150 ms of
/// delay beyond the first 150.
pub const MOTION_WEIGHT: f64 = 4.0;

/// The integral of the distance back to the last picture shown, over a gap between the capture times of two.
pub(super) fn coarseness(gap: f64) -> f64 {
    let moving = gap.clamp(0.0, FREEZE);
    moving * moving / 2.0 + (gap - moving).max(0.0) * FREEZE
}

/// The integral of the age of a picture taken at `captured`, from `from` to `until`.
pub(super) fn area(captured: f64, from: f64, until: f64) -> f64 {
    (until - from) * ((until - captured) + (from - captured)) / 2.0
}

/// By how much a picture that is shown between others makes the motion less coarse, in square seconds. Its neighbours are the nearest
/// pictures that it depends on, one taken before it and one after. 0 if none was taken after it.
pub(super) fn between<'a>(find: impl Fn(u64) -> Option<&'a Record>, picture: &Record) -> f64 {
    let at = |record: &Record| record.generated.as_secs_f64();
    let own = at(picture);
    let (mut left, mut right) = (f64::NEG_INFINITY, f64::INFINITY);
    // Breadth first: the nearest ones are a few steps back.
    let mut open: Vec<u64> = picture.references().flatten().collect();
    let mut next = 0;
    while let Some(&seq) = open.get(next) {
        next += 1;
        let Some(record) = find(seq) else { continue };
        if at(record) < own {
            left = left.max(at(record));
        } else {
            right = right.min(at(record));
        }
        for seq in record.references().flatten() {
            if open.len() < ANCESTORS && !open.contains(&seq) {
                open.push(seq);
            }
        }
    }
    if left.is_finite() && right.is_finite() {
        coarseness(right - left) - coarseness(own - left) - coarseness(right - own)
    } else {
        0.0
    }
}

/// Ancestors looked at: a pyramid of three levels has no more between a picture and its neighbours.
const ANCESTORS: usize = 12;
