use std::time::Duration;

use crate::screen::Screen;
use crate::{Frames, Live, Order, Policy, Rule};

/// Sends everything in order; drops nothing.
pub fn fifo() -> Policy {
    Policy::builder().build()
}

/// The application of Birkedal 2006: in order, and when a window has ended what is left of it is dropped from the highest layer
/// down. The experiment uses one second; its "improper use" is the same with an eighth of a second.
pub fn thesis(window: Duration) -> Policy {
    Policy::builder().rule(Rule::WindowEnd { window }).build()
}

/// Priority-progress streaming (Birkedal 2006, section 3.2.3): within an adaptation window the lowest layer goes first, and
/// what is left at its end is dropped.
pub fn priority_progress(window: Duration) -> Policy {
    Policy::builder()
        .rule(Rule::WindowEnd { window })
        .rule(Rule::DependencyClosure)
        .order(Order::ByLayer)
        .build()
}

/// In order, without what has expired. The kernel's ring carries it out by itself.
pub fn expiring() -> Policy {
    Policy::builder().rule(Rule::Expired).build()
}

/// In order, without what has expired or would arrive less than `margin` before its deadline.
pub fn deadline(margin: Duration) -> Policy {
    Policy::builder().rule(Rule::Expired).rule(Rule::PredictedLate { margin }).build()
}

/// For layered media with deadlines: the lowest layer of the oldest window that is still alive goes first; a layer is
/// never sent when a lower one of its window was lost, has expired, or would arrive less than `margin` before its
/// deadline.
pub fn layered(margin: Duration) -> Policy {
    Policy::builder()
        .rule(Rule::Expired)
        .rule(Rule::DependencyClosure)
        .rule(Rule::PredictedLate { margin })
        .order(Order::ByLayer)
        .build()
}

/// For state where only the newest value counts: one record per key, none past its deadline, and the key that has waited longest
/// first. A newer value keeps its key's turn, so on a path that is too slow all keys are sent equally often;
/// [`Policy::with_weights`] gives some of them more.
pub fn latest() -> Policy {
    Policy::builder().rule(Rule::LatestByKey).rule(Rule::Expired).order(Order::ByTurn).build()
}

/// For video frames with deadlines: as many whole, decodable frames on time as the link carries. A frame that will itself be late is
/// begun only for the sake of those that depend on it and will be on time.
pub fn frames() -> Frames {
    Frames::default().with_late_references(true)
}

/// For pictures: the freshest and smoothest [screen](mod@crate::screen) that the link allows.
pub fn screen() -> Screen {
    Screen::default()
}

/// For live pictures with sound: sound first, then as [`screen()`] does.
pub fn live() -> Live {
    Live::new(screen())
}
