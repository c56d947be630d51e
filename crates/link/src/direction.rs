use std::fmt;

/// A direction of a [`Path`](crate::Path).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the near side to the far side.
    Up = 1,
    /// From the far side to the near side.
    Down = 2,
}

impl Direction {
    /// Both, up first.
    pub const BOTH: [Self; 2] = [Self::Up, Self::Down];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}
