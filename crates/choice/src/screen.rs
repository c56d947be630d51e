//! What a person sees of a live stream, as one number, and the best that a sender could have done.
//!
//! The cost of a time T in front of the screen is
//!
//! ```text
//!        1  ⌠
//!  C  =  ── ⎮ ( a(t)  +  F · z(t) ) dt   +   M · m
//!        T  ⌡
//! ```
//!
//! - `a(t)` is the age of the screen: `t` minus the capture time of the newest picture that has arrived. It is the delay that a
//!   person notices in a conversation or at a remote control. A frozen picture ages, so a freeze of length g costs g²/2.
//! - `z(t)` is 1 while the picture has stood for more than [`FREEZE`], else 0. Age alone takes a picture that is
//!   steadily one second old and one that is frozen for two seconds for the same. A person does not: `F` =
//!   [`FREEZE_WEIGHT`] makes a second of standing picture cost one second of age more.
//! - `m` is how coarse the motion is: the mean, over the filmed time, of the distance back to the last picture shown.
//!   At most [`FREEZE`] of it counts, since nothing moves beyond that. A gap g between the capture times of two
//!   pictures shown adds g²/2 while it is shorter. Without this term a picture that arrives after a newer one, as B
//!   pictures do, would be worth nothing. `M` = [`MOTION_WEIGHT`].
//!
//! All terms are seconds. Smaller is better.

mod formula;
mod ladder;
mod plan;
mod policy;

use std::time::Duration;

use freshwire_record::Timestamp;

use crate::Record;
pub use formula::{FREEZE, FREEZE_WEIGHT, MOTION_WEIGHT};
use formula::{area, between, coarseness};
use plan::{Item, Planner, Start};
pub use policy::Screen;

/// A picture that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// When it was taken.
    pub captured: Timestamp,
    /// When it was there, whole, with everything that it depends on.
    pub arrived: Timestamp,
}

/// What a person saw in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Mean age of the screen, in seconds.
    pub mean_age: f64,
    /// The age that the screen kept to for 95 % of the time, in seconds.
    pub p95_age: f64,
    /// Share of the time in which the picture had stood for more than [`FREEZE`].
    pub frozen: f64,
    /// Times that it stood for longer than that.
    pub freezes: usize,
    /// The longest time without a new picture, in seconds.
    pub longest_gap: f64,
    /// Pictures that arrived, for each second.
    pub pictures_per_second: f64,
    /// Mean distance between the pictures shown, as the term `m` of the cost has it, in seconds.
    pub motion: f64,
    /// The cost: see the [module](self).
    pub cost: f64,
}

/// Scores what was shown from `from` to `until`. `shown` is in order of arrival. Pictures that arrived before `from` count as being on
/// the screen then; without any, the screen is as old as the first picture, from its arrival on.
//= spec/choice.md 32
pub fn score(shown: &[Shown], from: Timestamp, until: Timestamp) -> Score {
    let Some(first) = shown.first() else { return Score::default() };
    let from = from.max(first.arrived);
    let before = shown.partition_point(|picture| picture.arrived <= from);
    let seconds = |at: Timestamp| at.as_secs_f64() - from.as_secs_f64();
    let end = seconds(until);
    if end <= 0.0 {
        return Score::default();
    }
    let (early, rest) = shown.split_at(before);
    let newest = early.iter().map(|picture| picture.captured).max().unwrap_or_default();
    let (mut newest, mut at) = (seconds(newest), 0.0);
    let mut score = Score::default();
    let mut pieces = Vec::new();
    let mut captures = vec![newest];
    let within = rest.iter().take_while(|picture| picture.arrived <= until);
    for (captured, arrived) in
        within.map(|p| (seconds(p.captured), seconds(p.arrived))).chain([(f64::NEG_INFINITY, end)])
    {
        let gap = arrived - at;
        score.mean_age += area(newest, at, arrived) / end;
        score.frozen += (gap - FREEZE).max(0.0) / end;
        score.freezes += usize::from(gap > FREEZE);
        score.longest_gap = score.longest_gap.max(gap);
        pieces.push((at - newest, gap));
        at = arrived;
        if captured.is_finite() {
            score.pictures_per_second += 1.0 / end;
            captures.push(captured);
            newest = newest.max(captured);
        }
    }
    captures.sort_unstable_by(f64::total_cmp);
    captures.push(end);
    score.motion = captures.windows(2).map(|pair| coarseness(pair[1] - pair[0])).sum::<f64>() / end;
    score.p95_age = quantile(&pieces, end * 0.95);
    score.cost = score.mean_age + FREEZE_WEIGHT * score.frozen + MOTION_WEIGHT * score.motion;
    score
}

/// The age below which the screen was for `time`. Each piece begins at an age and grows for a while.
fn quantile(pieces: &[(f64, f64)], time: f64) -> f64 {
    let below =
        |age: f64| -> f64 { pieces.iter().map(|&(begin, length)| (age - begin).clamp(0.0, length)).sum() };
    let (mut low, mut high) = (0.0, pieces.iter().map(|&(begin, length)| begin + length).fold(0.0, f64::max));
    for _ in 0..48 {
        let middle = (low + high) / 2.0;
        if below(middle) < time { low = middle } else { high = middle }
    }
    high
}

/// What the best sender shows that knows beforehand the size of every picture and the link.
///
/// `pictures` are all of the stream in coding order, numbered without gaps; each is offered at `offered`. `end_of` tells when `len` bytes
/// that begin to leave at an instant have left; they arrive `one_way` later. Dynamic programming over the [cost](self) with at most
/// `ways` ways kept at each picture: a few hundred are as good as any number on real streams.
pub fn oracle(
    pictures: &[Record],
    offered: &[Timestamp],
    end_of: &dyn Fn(Timestamp, u64) -> Timestamp,
    one_way: Duration,
    ways: usize,
) -> Vec<Shown> {
    let Some(first) = pictures.first() else { return Vec::new() };
    let end = |start: f64, len: u32| {
        end_of(Timestamp::from_nanos((start * 1e9) as u64), u64::from(len)).as_secs_f64()
    };
    let items: Vec<Item> = pictures
        .iter()
        .zip(offered)
        .map(|(picture, &offered)| Item {
            len: picture.len,
            captured: picture.generated.as_secs_f64(),
            release: offered.as_secs_f64(),
            refs: picture.refs,
            possible: true,
            between: between(|seq| pictures.get(usize::try_from(seq.checked_sub(first.seq)?).ok()?), picture),
            latest: f64::INFINITY,
            patience: 0.0,
        })
        .collect();
    let captured = first.generated.as_secs_f64();
    let start = Start { free: 0.0, shown_at: captured, newest: captured };
    let mut planner = Planner::new(ways);
    planner.plan(&items, start, false, &end);
    let sent = planner.best_path();
    sent.into_iter()
        .map(|(at, left)| Shown {
            captured: pictures[at].generated,
            arrived: Timestamp::from_nanos((left * 1e9) as u64) + one_way,
        })
        .collect()
}
