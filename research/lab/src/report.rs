//! Self-contained HTML reports: one file, no script, nothing loaded from anywhere, light or dark as the reader likes.

pub(crate) mod chart;
mod frames;
pub(crate) mod html;
mod layers;
pub(crate) mod palette;

pub(crate) use frames::frames_html;
pub(crate) use layers::{axis_end, layers_html};

#[cfg(test)]
pub(crate) use layers::assert_self_contained;
