//! What the coded bytes say about times.

/// What the coded bytes say about a picture's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coding {
    /// How many pictures may come before one that is shown before them.
    pub reorder: u8,
    /// Duration of a picture in nanoseconds, if the stream says.
    pub frame_ns: Option<u32>,
    /// Sorts pictures in the order in which they are shown.
    pub display: i64,
    /// Distance of [`display`](Self::display) between neighbours, where that is not known yet.
    pub display_step: u8,
    /// All pictures from here on are shown after all before.
    pub restart: bool,
}

/// A picture's duration where neither the stream nor the configuration says: 25 pictures a second.
pub const DEFAULT_FRAME_NS: u32 = 40_000_000;

/// In nanoseconds.
pub(super) const SECOND: i64 = 1_000_000_000;
