//! Where an experiment's results go.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub(crate) struct Output {
    /// Folder for the results and the report; an interrupted experiment is taken up from there.
    #[arg(long, default_value = "freshwire-lab")]
    pub(crate) out: PathBuf,
    /// Runs side by side; as many as the machine carries without spoiling their timing if not given.
    #[arg(long)]
    pub(crate) jobs: Option<usize>,
}
