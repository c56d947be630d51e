//! Runs side by side, each in its own process, with progress shown.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::process::{ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cells::Measurement;
use crate::child::own_program;
use crate::output::say;
use crate::schema::Environment;

/// A run in a process of its own: it needs its own namespaces, and its timing must not depend on other runs.
pub(crate) trait Task: Clone + Send + Sync + Serialize + DeserializeOwned {
    /// The result.
    type Run: Measurement + Send;

    /// Its name on the worker's command line.
    const KIND: &str;

    /// The file of all results.
    const RESULTS: &str;

    /// How many of them a processor carries without spoiling the emulator's timing.
    const PER_CORE: usize;

    /// Does it, in the worker.
    fn measure(self, environment: Environment) -> anyhow::Result<Self::Run>;

    /// Its distinguishing name for a person.
    fn name(&self) -> String;

    /// How long it takes.
    fn seconds(&self) -> f64;

    /// A run in a line, where a person is to read each.
    fn in_short(_run: &Self::Run) -> Option<String> {
        None
    }
}

/// A run whose timing the machine spoiled is repeated this often before it is kept as it is, and marked.
const ATTEMPTS: usize = 3;

/// Runs `tasks`; `each` gets every run as soon as it is there. Returns what went wrong with those that failed.
pub(crate) fn run<T: Task>(
    tasks: Vec<T>,
    jobs: Option<usize>,
    mut each: impl FnMut(T::Run) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let environment = Environment::here();
    let jobs = jobs.unwrap_or(environment.cores as usize * T::PER_CORE).clamp(1, tasks.len());
    let progress = progress(&tasks, jobs);
    let queue = Mutex::new(VecDeque::from(tasks));
    let (sender, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (sender, queue, environment) = (sender.clone(), &queue, &environment);
            scope.spawn(move || {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(task) = next() {
                    // Fails only when the collector has stopped on an error of its own.
                    if sender.send((task.name(), attempt(&task, environment))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut failures = Vec::new();
        for (name, result) in results {
            match result {
                Ok(run) => {
                    if let Some(reason) = &run.trust().reason {
                        progress.println(format!("{name}: {reason}"));
                    }
                    if let Err(error) = each(run) {
                        queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
                        return Err(error);
                    }
                }
                Err(error) => failures.push(format!("{name}: {error:#}")),
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(failures)
    })
}

fn progress<T: Task>(tasks: &[T], jobs: usize) -> ProgressBar {
    let seconds = tasks.iter().map(T::seconds).sum::<f64>() / jobs as f64;
    say(&format!("{} runs, {jobs} side by side, about {:.0} min", tasks.len(), (seconds / 60.0).ceil()));
    let progress = ProgressBar::new(tasks.len() as u64);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {elapsed} elapsed, {eta} to go")
    {
        progress.set_style(style);
    }
    if std::io::stderr().is_terminal() {
        progress.enable_steady_tick(std::time::Duration::from_secs(1));
    }
    progress
}

/// The worker: reads a task and the environment as JSON from standard input, writes the run as JSON to standard output.
pub(crate) fn work<T: Task>() -> anyhow::Result<ExitCode> {
    freshwire_io::end_with_parent().context("cannot end with the lab")?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the plan")?;
    let (task, environment): (T, Environment) =
        serde_json::from_str(&text).context("cannot read the plan")?;
    let run = task.measure(environment)?;
    serde_json::to_writer(std::io::stdout().lock(), &run).context("cannot write the run")?;
    Ok(ExitCode::SUCCESS)
}

fn attempt<T: Task>(task: &T, environment: &Environment) -> anyhow::Result<T::Run> {
    let mut last = once(task, environment)?;
    for _ in 1..ATTEMPTS {
        if last.trust().trustworthy {
            break;
        }
        last = once(task, environment)?;
    }
    Ok(last)
}

fn once<T: Task>(task: &T, environment: &Environment) -> anyhow::Result<T::Run> {
    let mut child = own_program()?
        .args(["worker", T::KIND])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a run")?;
    let input = serde_json::to_vec(&(task, environment)).context("cannot write the plan")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&input).context("cannot hand over the plan")?;
    }
    let output = child.wait_with_output().context("cannot wait for a run")?;
    if !output.status.success() {
        anyhow::bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("a run answered with something that is not a run")
}
