use std::time::Duration;

use crate::screen::Screen;
use crate::{Frames, Live, Order, Policy, Rule};

/// Sends everything in order; drops nothing.
pub fn fifo() -> Policy {
    Policy::builder().build()
}

/// The application of Birkedal 2006: in order; at a window's end the rest of the window is dropped, the
/// highest layer first. The experiment uses one second; its "improper use" is an eighth of a second.
pub fn thesis(window: Duration) -> Policy {
    Policy::builder().rule(Rule::WindowEnd { window }).build()
}

/// Priority-progress streaming (Birkedal 2006, section 3.2.3): within a window the lowest layer is sent
/// first, and the rest is dropped at its end.
pub fn priority_progress(window: Duration) -> Policy {
    Policy::builder()
        .rule(Rule::WindowEnd { window })
        .rule(Rule::DependencyClosure)
        .order(Order::ByLayer)
        .build()
}

/// In order, without expired records. The kernel ring implements this by itself.
pub fn expiring() -> Policy {
    Policy::builder().rule(Rule::Expired).build()
}

/// In order, without records that have expired or would arrive less than `margin` before their deadline.
pub fn deadline(margin: Duration) -> Policy {
    Policy::builder().rule(Rule::Expired).rule(Rule::PredictedLate { margin }).build()
}

/// For layered media with deadlines: the lowest layer of the oldest live window is sent first. A layer is
/// never sent if a lower one of its window was lost, has expired, or would arrive less than `margin` before
/// its deadline.
pub fn layered(margin: Duration) -> Policy {
    Policy::builder()
        .rule(Rule::Expired)
        .rule(Rule::DependencyClosure)
        .rule(Rule::PredictedLate { margin })
        .order(Order::ByLayer)
        .build()
}

/// For state of which only the newest value counts: one record per key, none past its deadline, and the key
/// that has waited longest first. On a path that is too slow all keys are sent equally often;
/// [`Policy::with_weights`] favours some.
pub fn latest() -> Policy {
    Policy::builder().rule(Rule::LatestByKey).rule(Rule::Expired).order(Order::ByTurn).build()
}

/// For video frames with deadlines: as many complete, decodable frames on time as the link carries. A frame
/// that will be late is sent only for the sake of timely frames that depend on it.
pub fn frames() -> Frames {
    Frames::default().with_late_references(true)
}

/// For pictures: the freshest and smoothest [screen](mod@crate::screen) that the link allows.
pub fn screen() -> Screen {
    Screen::default()
}

/// For live pictures with sound: sound first, then as [`screen()`].
pub fn live() -> Live {
    Live::new(screen())
}
