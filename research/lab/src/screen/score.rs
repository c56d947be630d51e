//! The live policy's objective, and what it would have been at best.

use std::time::Duration;

use freshwire::choice::Record;
use freshwire::choice::screen::{self, Score, Shown};
use freshwire_record::Timestamp;

use super::schema::{Picture, Window};
use crate::metrics::transfer_end_ns;
use crate::schema::LinkConfig;

/// Ways that the oracle keeps at each picture: more of them find nothing better.
const WAYS: usize = 400;

/// Scores what was shown, in order of arrival. At the window's begin the screen is empty, which counts as a picture of that
/// instant: who shows nothing has an age, too.
pub(super) fn score(shown: &[Shown], window: Window) -> Score {
    let at = Timestamp::from_nanos;
    let empty = Shown { captured: at(window.begin_ns), arrived: at(window.begin_ns) };
    let all: Vec<Shown> = std::iter::once(empty).chain(shown.iter().copied()).collect();
    screen::score(&all, at(window.from_ns), at(window.until_ns))
}

/// The screen with the best sender, which knows all pictures and the link. The link carries 1448 of 1500 bytes, less the losses.
pub(super) fn oracle(pictures: &[Picture], link: &LinkConfig) -> Vec<Shown> {
    let (mut records, mut offered) = (Vec::new(), Vec::new());
    // Where each picture is among those that can be decoded if all of them arrive.
    let mut places: Vec<Option<usize>> = Vec::with_capacity(pictures.len());
    for picture in pictures {
        let references: Option<Vec<usize>> =
            picture.refs.iter().map(|place| *places.get(usize::try_from((*place)?).ok()?)?).collect();
        let here = records.len();
        places.push(references.as_ref().map(|_| here));
        let Some(references) = references else { continue };
        let mut record = Record::numbered(here as u64);
        record.len = picture.bytes;
        record.generated = Timestamp::from_nanos(picture.captured_ns);
        for (distance, place) in record.refs.iter_mut().zip(references) {
            *distance = (here - place) as u32;
        }
        records.push(record);
        offered.push(Timestamp::from_nanos(picture.offered_ns));
    }
    let end_of = |start: Timestamp, bytes: u64| {
        Timestamp::from_nanos(transfer_end_ns(link, start.as_nanos() as f64, bytes) as u64)
    };
    let mut shown = screen::oracle(&records, &offered, &end_of, Duration::from_nanos(link.delay_ns()), WAYS);
    shown.sort_by_key(|shown| (shown.arrived, shown.captured));
    shown
}
