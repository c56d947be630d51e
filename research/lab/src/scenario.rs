//! Parts of every experiment: an emulated link, connections across it, and runs in processes of their own.

use std::ops::Range;
use std::path::PathBuf;

use clap::Args;
use freshwire_record::Timestamp;

mod a1;
mod link;
pub(crate) mod pool;

pub(crate) use a1::{A1Path, transport};
pub(crate) use link::{LEAD, TestLink, directions};

// Both without documentation: clap would show it in place of the experiment's.
#[derive(Args)]
pub(crate) struct Output {
    /// Folder for the results and the report; an interrupted experiment is taken up from there.
    #[arg(long, default_value = "freshwire-lab")]
    pub(crate) out: PathBuf,
    /// Runs side by side; as many as the machine carries without spoiling their timing if not given.
    #[arg(long)]
    pub(crate) jobs: Option<usize>,
}

#[derive(Args)]
pub(crate) struct Repetitions {
    /// The first seed; a repetition takes the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Repetitions of everything.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: u64,
}

impl Repetitions {
    /// The seed of each repetition, at least `least` of them.
    pub(crate) fn seeds(&self, least: u64) -> Range<u64> {
        self.seed..self.seed + self.repeat.max(least)
    }
}

/// Sleeps until `instant`; returns at once if it has passed.
pub(crate) fn wait_until(instant: Timestamp) {
    loop {
        let left = instant.saturating_since(freshwire_io::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left);
    }
}
