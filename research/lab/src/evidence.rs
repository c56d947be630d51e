//! `freshwire-lab evidence`: every table and figure of the five publications, measured again beside what was published.
//!
//! ```text
//!  research/evidence/*.toml ─► runs: child processes, a folder each ─► result lines ─► rows and claims ─► table, page, rows.jsonl
//! ```

mod catalogue;
mod evaluate;
mod measure;
mod show;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use serde_json::Value;

use crate::experiment::make_folder;
use crate::output;
use catalogue::{Catalogue, Item};
use measure::{Runner, State};
use show::Shown;

/// Measure the tables and figures of the five publications again, and show ours beside theirs.
///
/// A file of the catalogue has the parameters, the published numbers and the reason for a difference. Results are kept: a run whose
/// command has not changed is not repeated.
#[derive(Args)]
#[command(
    after_help = "Exit code: 0 all is as the catalogue expects, 1 something is not or a run failed, 2 usage."
)]
pub(crate) struct EvidenceArgs {
    /// The short forms of the runs: minutes instead of hours.
    #[arg(long)]
    short: bool,
    /// Items by the name of their file, for instance choi-2007-table-2; all if not given.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Folder for results; an interrupted command is taken up from there [default: results/evidence, or results/evidence-short].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Folder of the catalogue.
    #[arg(long, value_name = "DIR", default_value = "research/evidence")]
    catalogue: PathBuf,
    /// Run nothing: show the results that are there.
    #[arg(long)]
    show: bool,
}

/// Runs `freshwire-lab evidence`.
pub(crate) fn run(args: &EvidenceArgs) -> anyhow::Result<ExitCode> {
    let catalogue = Catalogue::read(&args.catalogue)?;
    let items: Vec<&Item> =
        catalogue.items.iter().filter(|item| args.only.is_empty() || args.only.contains(&item.id)).collect();
    for id in &args.only {
        ensure!(
            items.iter().any(|item| item.id == *id),
            "{} has no file {id}.toml",
            args.catalogue.display()
        );
    }
    let form = if args.short { "results/evidence-short" } else { "results/evidence" };
    let out = args.out.clone().unwrap_or_else(|| form.into());
    make_folder(&out)?;
    let mut runner = Runner::new(&catalogue.root, &out, args.short)?;
    if !args.show {
        runner.run_missing(&items)?;
    }
    let shown = items.into_iter().map(|item| shown(item, &runner)).collect::<anyhow::Result<Vec<_>>>()?;
    let is_whole = args.only.is_empty();
    show::write(&shown, is_whole.then_some(&catalogue), &out)?;
    let strict = args.short && std::env::var("CI").is_ok_and(|value| value == "true");
    let unexpected: Vec<&str> = shown
        .iter()
        .filter(|shown| !shown.is_as_expected(strict))
        .map(|shown| shown.item.id.as_str())
        .collect();
    if !unexpected.is_empty() {
        output::say(&format!("not as the catalogue expects: {}", unexpected.join(", ")));
    }
    Ok(ExitCode::from(u8::from(!unexpected.is_empty())))
}

fn shown<'a>(item: &'a Item, runner: &Runner) -> anyhow::Result<Shown<'a>> {
    let mut lines: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut runs = Vec::new();
    for run in &item.run {
        let state = runner.state(run)?;
        if matches!(state, State::Measured(_)) {
            lines.insert(&run.name, runner.lines(run)?);
        }
        runs.push((run.name.as_str(), state));
    }
    Ok(Shown { item, runs, found: evaluate::evaluate(item, &lines, runner.is_short()) })
}
