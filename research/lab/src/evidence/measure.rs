//! Runs the commands of the catalogue, each result with its origin beside it.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::catalogue::{Item, Need, Run};
use crate::child::ChildGuard;
use crate::experiment::make_folder;
use crate::output::say;
use crate::schema::Environment;

/// The variable with the run's folder, in a command line.
const OUT: &str = "$OUT";

/// Where, when and by what a result was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Origin {
    pub(super) run: String,
    pub(super) commands: Vec<String>,
    /// The commit that the program was built from.
    pub(super) commit: String,
    /// Whether the working tree had changes that are not committed.
    pub(super) dirty: bool,
    /// Whether the program was built with optimization (`--release`).
    pub(super) release: bool,
    pub(super) kernel: String,
    pub(super) cpu: String,
    pub(super) cores: u32,
    /// Load of the last minute before and after: above the number of cores, others disturb the numbers.
    pub(super) load: [f64; 2],
    pub(super) seconds: f64,
    /// 1: the command missed a goal of its own.
    pub(super) exit_code: i32,
}

/// What became of a run.
pub(super) enum State {
    Measured(Box<Origin>),
    /// A requirement is missing, and the remedy.
    Skipped(String),
    Failed(String),
    /// Not part of this form, or not run yet, and the reason.
    Absent(String),
}

pub(super) struct Runner {
    root: PathBuf,
    out: PathBuf,
    is_short: bool,
    failures: Vec<(String, String)>,
}

impl Runner {
    pub(super) fn new(root: &Path, out: &Path, is_short: bool) -> anyhow::Result<Self> {
        let out = out.canonicalize().with_context(|| format!("cannot find {}", out.display()))?;
        Ok(Self { root: root.to_owned(), out, is_short, failures: Vec::new() })
    }

    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Runs what is missing of these items, each run once, and says about how long the rest takes.
    pub(super) fn run_missing(&mut self, items: &[&Item]) -> anyhow::Result<()> {
        let mut names = BTreeSet::new();
        let mut runs: Vec<&Run> = Vec::new();
        for run in items.iter().flat_map(|item| &item.run) {
            if names.insert(&run.name)
                && matches!(self.state(run)?, State::Absent(_))
                && !self.commands(run).is_empty()
            {
                runs.push(run);
            }
        }
        let (mut planned, mut took) = (0.0, 0.0);
        for (place, run) in runs.iter().enumerate() {
            let left: f64 = runs[place..].iter().map(|run| self.seconds(run)).sum();
            // The runs so far say how much slower than planned this machine is.
            let pace: f64 = if planned > 0.0 { took / planned } else { 1.0 };
            let left = time_left(left * pace);
            say(&format!("evidence: run {} of {}, {}; {left} left", place + 1, runs.len(), run.name));
            planned += self.seconds(run);
            let begin = freshwire_io::now();
            if let Err(error) = self.measure(run) {
                say(&format!("evidence: {} failed: {error:#}", run.name));
                self.failures.push((run.name.clone(), format!("{error:#}")));
            }
            took += freshwire_io::now().saturating_since(begin).as_secs_f64();
        }
        Ok(())
    }

    /// What there is of a run.
    pub(super) fn state(&self, run: &Run) -> anyhow::Result<State> {
        if let Some((_, why)) = self.failures.iter().find(|(name, _)| *name == run.name) {
            return Ok(State::Failed(why.clone()));
        }
        if let Some(origin) = self.origin(run)?
            && origin.commands == *self.commands(run)
        {
            return Ok(State::Measured(Box::new(origin)));
        }
        if self.is_short
            && let Some(why) = &run.no_short
        {
            return Ok(State::Absent(format!("not in the short form: {why}")));
        }
        let remedies = run.needs.iter().filter_map(|need| need.missing(&self.root));
        Ok(match remedies.map(str::to_owned).reduce(|all, one| format!("{all}; {one}")) {
            Some(remedies) => State::Skipped(remedies),
            None => State::Absent("not run yet".to_owned()),
        })
    }

    /// The lines of a run's result file.
    pub(super) fn lines(&self, run: &Run) -> anyhow::Result<Vec<Value>> {
        let path = self.folder(run).join(&run.file);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let parse = |line: &str| {
            serde_json::from_str(line).with_context(|| format!("{}: no JSON lines", path.display()))
        };
        text.lines().filter(|line| !line.trim().is_empty()).map(parse).collect()
    }

    fn commands<'a>(&self, run: &'a Run) -> &'a Vec<String> {
        if self.is_short { &run.short } else { &run.commands }
    }

    fn seconds(&self, run: &Run) -> f64 {
        if self.is_short { run.short_seconds } else { 60.0 * run.minutes }
    }

    fn folder(&self, run: &Run) -> PathBuf {
        self.out.join(&run.name)
    }

    fn origin(&self, run: &Run) -> anyhow::Result<Option<Origin>> {
        let path = self.folder(run).join("origin.json");
        match std::fs::read(&path) {
            Err(_) => Ok(None),
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("cannot read {}", path.display()))
                .map(Some),
        }
    }

    fn measure(&self, run: &Run) -> anyhow::Result<()> {
        let folder = self.folder(run);
        let commands = self.commands(run);
        if self.origin(run)?.is_some_and(|origin| origin.commands != *commands) {
            // Results of other parameters would be read with the new ones.
            std::fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot delete {}", folder.display()))?;
        }
        make_folder(&folder)?;
        let before = load();
        let begin = freshwire_io::now();
        let saved = folder.join(&run.file);
        let printed = folder.join("output.txt");
        let file = File::create(&printed).with_context(|| format!("cannot write {}", printed.display()))?;
        let mut exit_code = 0;
        for command in commands {
            let mut child = self.command(command, &folder)?;
            let output = file.try_clone()?;
            let child = child.stdin(Stdio::null()).stdout(output).current_dir(&self.root).spawn();
            let status = ChildGuard(child.with_context(|| format!("cannot run {command}"))?).wait()?;
            let code = status.code().unwrap_or(2);
            ensure!(code <= 1, "{command} ended with {status}");
            exit_code = exit_code.max(code);
        }
        if commands.iter().all(|command| !command.contains(OUT)) {
            std::fs::rename(&printed, &saved)?;
        }
        ensure!(!self.lines(run)?.is_empty(), "{} is empty", saved.display());
        let seconds = freshwire_io::now().saturating_since(begin).as_secs_f64();
        let Environment { commit, kernel, cpu, cores, .. } = Environment::here();
        let origin = Origin {
            run: run.name.clone(),
            commands: commands.clone(),
            dirty: commit.ends_with("-dirty") || self.is_dirty(),
            commit,
            release: !cfg!(debug_assertions),
            kernel,
            cpu,
            cores,
            load: [before, load()],
            seconds,
            exit_code,
        };
        std::fs::write(folder.join("origin.json"), serde_json::to_string_pretty(&origin)? + "\n")?;
        Ok(())
    }

    /// A shell that becomes the command. The laboratory that it finds is this program.
    fn command(&self, line: &str, folder: &Path) -> anyhow::Result<Command> {
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let others = std::env::var_os("PATH").unwrap_or_default();
        let folders = own.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&others));
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("exec {line}")])
            .env("PATH", std::env::join_paths(folders)?)
            .env("OUT", folder);
        Ok(command)
    }

    /// Without git nothing is known to be committed.
    fn is_dirty(&self) -> bool {
        let status = Command::new("git").args(["status", "--porcelain"]).current_dir(&self.root).output();
        status.map_or(true, |status| !status.status.success() || !status.stdout.is_empty())
    }
}

impl Need {
    /// The remedy, if it is missing.
    fn missing(self, root: &Path) -> Option<&'static str> {
        let succeeds = |program: &Path, arguments: &[&str]| {
            let status =
                Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let (is_there, remedy) = match self {
            Self::Namespaces => (
                succeeds(Path::new("unshare"), &["--user", "--map-root-user", "--net", "true"]),
                "user namespaces are not permitted: sysctl kernel.unprivileged_userns_clone=1",
            ),
            Self::Root => (rustix::process::geteuid().is_root(), "this needs root: run it with sudo"),
            Self::Guests => (
                succeeds(&root.join("host/kernel/guest/run.sh"), &["--check"]),
                "a guest cannot be booted: host/kernel/guest/run.sh --check says what is missing",
            ),
            Self::Perf => {
                (succeeds(Path::new("perf"), &["--version"]), "perf is missing: apt-get install linux-perf")
            }
        };
        (!is_there).then_some(remedy)
    }
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

fn time_left(seconds: f64) -> String {
    let time = Duration::from_secs_f64(seconds.max(0.0));
    match time.as_secs() {
        seconds @ ..120 => format!("about {seconds} s"),
        seconds @ ..7200 => format!("about {} min", seconds.div_ceil(60)),
        seconds => format!("about {:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(commands: &str) -> Run {
        let text = format!("name = 'r'\nminutes = 1\ncommands = [{commands}]\nno_short = 'a reason'\n");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_result_is_kept_until_the_command_changes() {
        let folder = tempfile::tempdir().unwrap();
        let runner = Runner::new(Path::new("/"), folder.path(), false).unwrap();
        let first = run("'echo 1', 'echo 2'");
        assert!(matches!(runner.state(&first).unwrap(), State::Absent(_)));
        runner.measure(&first).unwrap();
        let State::Measured(origin) = runner.state(&first).unwrap() else { panic!("it was run") };
        assert_eq!((origin.exit_code, origin.commands.len()), (0, 2));
        assert_eq!(runner.lines(&first).unwrap(), [Value::from(1), Value::from(2)]);
        let other = run("'echo 3'");
        assert!(matches!(runner.state(&other).unwrap(), State::Absent(_)));
        runner.measure(&other).unwrap();
        assert_eq!(runner.lines(&other).unwrap(), [Value::from(3)]);
    }

    #[test]
    fn a_failed_command_leaves_no_result() {
        let folder = tempfile::tempdir().unwrap();
        let runner = Runner::new(Path::new("/"), folder.path(), false).unwrap();
        for commands in ["'sh -c \"exit 2\"'", "'true'", "'/nowhere/program'"] {
            assert!(runner.measure(&run(commands)).is_err(), "{commands}");
            assert!(matches!(runner.state(&run(commands)).unwrap(), State::Absent(_)), "{commands}");
        }
    }

    #[test]
    fn the_short_form_names_the_reason_for_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let runner = Runner::new(Path::new("/"), folder.path(), true).unwrap();
        let State::Absent(why) = runner.state(&run("'true'")).unwrap() else { panic!("it was not run") };
        assert_eq!(why, "not in the short form: a reason");
    }

    #[test]
    fn the_time_left_has_a_unit() {
        assert_eq!([30.0, 600.0, 9000.0].map(time_left), ["about 30 s", "about 10 min", "about 2.5 h"]);
    }
}
