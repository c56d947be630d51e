//! The ways to send state that are compared: their names in the result file, their labels and colours.

use plotters::style::RGBColor;

use crate::report::palette;
use crate::scheme::{A1, FRESHWIRE, TCP, TCP_SMALL_BUFFER};

/// A mailbox of one for each key in the application, emptied into the socket whenever that takes something.
pub(super) const MAILBOX: &str = "mailbox";
/// The same, with one segment at most that waits in the kernel (`TCP_NOTSENT_LOWAT`).
pub(super) const MAILBOX_LOWAT: &str = "mailbox-lowat";
/// Every value with a deadline.
pub(super) const DEADLINE: &str = "freshwire-deadline";

/// By key, behind a gate that the receiving program opens: it acknowledges what it has read.
pub(super) const GATE: &str = "freshwire-gate";

const LISTED: [(&str, &str, RGBColor); 8] = [
    (TCP, "plain TCP", palette::VERMILLION),
    (TCP_SMALL_BUFFER, "TCP, small buffer", palette::ORANGE),
    (MAILBOX, "mailbox of one", palette::PURPLE),
    (MAILBOX_LOWAT, "mailbox, low water", palette::YELLOW),
    (DEADLINE, "Freshwire, deadline", palette::SKY),
    (FRESHWIRE, "Freshwire, by key", palette::BLUE),
    (GATE, "Freshwire, by key, gate", palette::GREY),
    (A1, "A1, by key", palette::GREEN),
];

/// Their names, in the order in which they are listed.
pub(super) fn names() -> Vec<&'static str> {
    LISTED.iter().map(|(name, ..)| *name).collect()
}

/// Its label.
pub(super) fn label(scheme: &str) -> &str {
    LISTED.iter().find(|(name, ..)| *name == scheme).map_or(scheme, |(_, label, _)| label)
}

pub(super) fn colour(scheme: &str) -> RGBColor {
    LISTED.iter().find(|(name, ..)| *name == scheme).map_or(palette::GREY, |(.., colour)| *colour)
}
