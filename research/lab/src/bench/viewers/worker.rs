//! The processes of the measurement.

use clap::ValueEnum;

/// An end of the measurement that is a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::bench) enum Worker {
    /// The viewers.
    Load,
    /// The baseline.
    Bare,
}
