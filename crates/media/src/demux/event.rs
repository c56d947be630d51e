//! What goes into a demuxer and what comes out.

use std::sync::Arc;

use crate::annex_b::DEFAULT_MAX_UNIT_BYTES;
use crate::unit::{Tracks, Unit};

/// How a source is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Largest unit that is accepted.
    pub max_unit_bytes: usize,
    /// Duration of a picture in nanoseconds where a source says no times, in place of what the coded stream says.
    pub frame_ns: Option<u32>,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_unit_bytes: DEFAULT_MAX_UNIT_BYTES, frame_ns: None }
    }
}

/// What a source gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The tracks of the units that follow; before the first unit, and when something has changed.
    Tracks(Arc<Tracks>),
    /// The next unit.
    Unit(Unit),
}
