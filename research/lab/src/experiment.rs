//! The harness of all experiments: runs what is missing of the plans, keeps each run, and shows all of them.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::cells::Measurement;
use crate::output;
use crate::scenario::Output;
use crate::scenario::pool::{self, Task};
use crate::store::Writer;
use crate::table::Table;

type PlanOf<T> = <<T as Task>::Run as Measurement>::Plan;

/// Results for a person: tables for the terminal, and a page with its file's name.
pub(crate) struct Report {
    pub(crate) tables: Vec<Table>,
    pub(crate) page: Option<(&'static str, String)>,
}

impl Report {
    /// Prints the tables and writes the page to the folder `out`.
    pub(crate) fn show(&self, out: &Path) -> anyhow::Result<()> {
        for table in &self.tables {
            output::print(&table.to_terminal())?;
        }
        if let Some((name, page)) = &self.page {
            let path = out.join(name);
            std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
            output::say(&format!("report: {}", path.display()));
        }
        Ok(())
    }
}

/// Runs what is missing of `plans` in the result file, as the tasks that `tasks` makes of them, then shows all of them. Exit code 1:
/// a run failed.
pub(crate) fn run<T: Task>(
    output: &Output,
    plans: &[PlanOf<T>],
    tasks: impl FnOnce(Vec<PlanOf<T>>) -> anyhow::Result<Vec<T>>,
    report: impl FnOnce(&[T::Run]) -> anyhow::Result<Report>,
) -> anyhow::Result<ExitCode> {
    let out = &output.out;
    make_folder(out)?;
    let results = out.join(T::RESULTS);
    let (mut writer, mut runs) = Writer::<T::Run>::resume(&results)?;
    let is_missing = |plan: &&PlanOf<T>| runs.iter().all(|run| run.plan() != *plan);
    let missing: Vec<_> = plans.iter().filter(is_missing).cloned().collect();
    if missing.len() < plans.len() {
        let known = plans.len() - missing.len();
        output::say(&format!("{known} of {} runs are in {} already", plans.len(), results.display()));
    }
    let failures = pool::run(tasks(missing)?, output.jobs, |mut run| {
        writer.append(&mut run)?;
        if let Some(line) = T::in_short(&run) {
            output::say(&line);
        }
        runs.push(run);
        Ok(())
    })?;
    let place = |run: &T::Run| plans.iter().position(|plan| run.plan() == plan);
    runs.retain(|run| place(run).is_some());
    // They end in another order than they were planned in.
    runs.sort_by_key(place);
    anyhow::ensure!(!runs.is_empty(), "no run succeeded: {}", failures.join("; "));
    report(&runs)?.show(out)?;
    output::say(&format!("results: {}", results.display()));
    for failure in &failures {
        output::say(&format!("a run failed: {failure}"));
    }
    Ok(u8::from(!failures.is_empty()).into())
}

/// Makes a folder for results.
pub(crate) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the output folder {}", folder.display()))
}
