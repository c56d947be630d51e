//! Decoding times from shown times, and both from the order of pictures.

use super::coding::{Coding, DEFAULT_FRAME_NS, SECOND};

/// Decoding times where a source gives only shown times: the n-th smallest of all, `reorder` pictures later.
#[derive(Clone, Debug, Default)]
pub(super) struct Decoding {
    /// Shown times that have not been given out as a decoding time, ascending.
    waiting: Vec<i64>,
    newest: i64,
    given: Option<i64>,
}

impl Decoding {
    /// The decoding time of the picture that is shown at `pts`; `interval` is the distance of pictures.
    pub(super) fn time(&mut self, pts: i64, reorder: u8, interval: i64) -> i64 {
        let depth = usize::from(reorder).min(DEEPEST);
        if self.given.is_none() || (pts - self.newest).abs() > SECOND {
            self.waiting = (1..=depth as i64).rev().map(|back| pts - back * interval).collect();
            self.given = None;
        }
        self.newest = pts;
        // Without an element more, a picture that is shown before one whose time was given out has none left.
        let shallow = self.given.is_some_and(|given| pts < given);
        if let Some(given) = self.given
            && (shallow || self.waiting.len() < depth)
            && self.waiting.len() < DEEPEST
        {
            self.waiting.insert(0, given.min(pts));
        }
        let at = self.waiting.partition_point(|&time| time <= pts);
        self.waiting.insert(at, pts);
        let time = self.waiting.remove(0);
        let time = self.given.map_or(time, |given| given.max(time));
        self.given = Some(time);
        time
    }
}

/// Both times where a source gives none: a picture's number gives the time at which it is decoded, its place in display
/// order the time at which it is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Display {
    /// Decoding time of the next picture.
    dts: i64,
    /// Place in display order from which others are counted, and its distance from the decoding order.
    anchor: Option<Anchor>,
    /// Distance of neighbours in display order as the sequence before showed it.
    step: i64,
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    display: i64,
    /// When the picture of the anchor is shown, in pictures.
    shown: i64,
    /// Pictures decoded since, the one of the anchor included.
    decoded: i64,
    /// Greatest common divisor of all distances from the anchor.
    divisor: i64,
}

impl Display {
    /// Shown and decoding time of the next picture.
    pub(super) fn times(&mut self, coding: &Coding) -> (i64, i64) {
        let frame = i64::from(coding.frame_ns.unwrap_or(DEFAULT_FRAME_NS).max(1));
        let dts = self.dts;
        self.dts = self.dts.saturating_add(frame);
        let reorder = i64::from(coding.reorder).min(DEEPEST as i64);
        let ahead = if reorder == 0 { 0 } else { self.ahead(coding, reorder) };
        (dts.saturating_add(ahead * frame), dts)
    }

    /// How many pictures are decoded before this one is shown.
    fn ahead(&mut self, coding: &Coding, reorder: i64) -> i64 {
        let hint = i64::from(coding.display_step.max(1));
        let Some(anchor) = self.anchor.as_mut().filter(|_| !coding.restart) else {
            // What a short sequence shows may be a multiple: its pictures need not include neighbours.
            let known = self.anchor.filter(|anchor| anchor.divisor > 0 && anchor.decoded > 2 * reorder + 2);
            self.step = known.map_or(self.step, |anchor| anchor.divisor);
            self.anchor = Some(Anchor { display: coding.display, shown: reorder, decoded: 1, divisor: 0 });
            return reorder;
        };
        let distance = coding.display.saturating_sub(anchor.display);
        anchor.divisor = common_divisor(anchor.divisor, distance.saturating_abs());
        let step = common_divisor(if self.step == 0 { hint } else { self.step }, anchor.divisor).max(1);
        let ahead = anchor.shown.saturating_add(distance / step).saturating_sub(anchor.decoded);
        anchor.decoded += 1;
        ahead.clamp(0, 2 * DEEPEST as i64)
    }
}

fn common_divisor(mut one: i64, mut other: i64) -> i64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Deepest reordering of any codec: `max_num_reorder_frames` of H.264 and H.265.
const DEEPEST: usize = 16;
