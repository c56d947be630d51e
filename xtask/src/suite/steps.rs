//! The steps of the test command.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::CommandLine;
use super::needs::{CRYPTOGRAPHY, DPKG, FFMPEG, GSTREAMER_HEADERS, Need, PYTHON, SIMPY, SSH};

/// One step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) line: CommandLine,
    /// Where it runs.
    pub(super) folder: PathBuf,
    pub(super) lane: Lane,
    pub(super) gate: Gate,
    /// When it counts as hanging.
    pub(super) limit: Duration,
    /// Without these it is skipped.
    pub(super) needs: &'static [Need],
    /// Without these it runs, but some of its tests do nothing.
    pub(super) wants: &'static [Need],
}

/// When a step runs, and beside what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Before all others: it takes seconds.
    First,
    /// Builds the test programs, which are then steps of the lanes below.
    Build,
    /// It waits for clocks, links and other processes more than it computes. Two run at a time.
    Waiting,
    /// It keeps time, or takes both processors: none of these and of the waiting ones runs at the same time.
    Alone,
    /// It computes, and what it finds does not depend on time. It runs beside those above, with what they leave of the processors: one at a
    /// time until the test programs are built, then two.
    Beside,
}

/// The command that runs a step. Each step is of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// `make test`: what a change of the product needs to know soon.
    Product,
    /// `make test-rest`: the laboratory, guests with other kernels, browsers, long runs, other compilers and lints.
    Rest,
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

impl Step {
    pub(super) fn new(name: &str, lane: Lane, line: CommandLine, folder: &Path) -> Self {
        let limit = match lane {
            Lane::First => minutes(2),
            // On a new machine, everything is compiled.
            Lane::Build => minutes(30),
            Lane::Waiting | Lane::Alone => minutes(15),
            // The others may leave it nothing for minutes.
            Lane::Beside => minutes(30),
        };
        let (name, folder) = (name.to_owned(), folder.to_owned());
        Self { name, line, folder, lane, gate: Gate::Product, limit, needs: &[], wants: &[] }
    }

    /// Whether it is a test program, which has no name for the command line.
    pub(super) fn is_program(&self) -> bool {
        self.name.starts_with("-p ")
    }

    /// Gives a script the commands and the guests' program of the test build. Calling cargo for them would compile them anew, or wait for
    /// cargo's lock.
    pub(super) fn use_build(&mut self, root: &Path, programs: &[Self]) {
        let environment = &mut self.line.environment;
        if !environment.iter().any(|(name, _)| *name == FEATURES) {
            return;
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        let built = root.join(target).join("debug");
        environment.push(("FRESHWIRE_TARGET", built.display().to_string()));
        let ring = programs.iter().find(|step| step.name == "-p freshwire --test kernel_ring");
        environment.extend(ring.map(|step| ("FRESHWIRE_KERNEL_RING_TEST", step.line.program.clone())));
    }

    pub(super) fn of(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    fn wants(self, wants: &'static [Need]) -> Self {
        Self { wants, ..self }
    }
}

/// All steps but the test programs: those of a gate, or of both.
pub(super) fn all(root: &Path, gate: Option<Gate>) -> Vec<Step> {
    let elements = GSTREAMER_HEADERS.missing(root).is_none().then_some("freshwire-gst/plugin");
    let relays = Need::Relays.missing(root).is_none().then_some(RELAYS.0);
    let features = elements.into_iter().chain(relays).collect::<Vec<_>>().join(",");
    let without = if relays.is_some() { "" } else { RELAYS.1 };
    let workspace = Workspace { root, features: &features, without, gate };
    let mut steps = [workspace.first(), workspace.timed(), workspace.beside()].concat();
    steps.retain(|step| step.lane == Lane::Build || gate.is_none_or(|gate| step.gate == gate));
    steps
}

/// Packages that the product's gate does not build. `xtask/Cargo.toml` has the features that they turn on in others.
const RESEARCH: [&str; 4] = ["--exclude", "freshwire-lab", "--exclude", "freshwire-sim"];

/// The variable that tells a script the features of the test programs.
const FEATURES: &str = "FRESHWIRE_FEATURES";

/// The feature with relays of Media over QUIC, and the package that a Rust cannot compile which is too old for it.
const RELAYS: (&str, &str) = ("freshwire-cli/moq", "freshwire-moq");

/// Cargo gets the whole workspace, whatever a step is about: with fewer packages a dependency has fewer features, and cargo
/// compiles it and all above it once more.
struct Workspace<'a> {
    root: &'a Path,
    /// Features of the test programs.
    features: &'a str,
    /// A package that is left out.
    without: &'a str,
    gate: Option<Gate>,
}

impl Workspace<'_> {
    fn step(&self, name: &str, lane: Lane, line: CommandLine) -> Step {
        Step::new(name, lane, line, self.root)
    }

    /// A script that lets cargo build as the test programs are built.
    fn script(&self, name: &str, lane: Lane, path: &str) -> Step {
        let line = CommandLine::new(path, &[]).with(FEATURES, self.features);
        self.step(name, lane, line.with("FRESHWIRE_WITHOUT", self.without))
    }

    fn cargo(&self, command: &str, rest: &[&str]) -> CommandLine {
        let features: &[&str] = if self.features.is_empty() { &[] } else { &["--features", self.features] };
        let without: &[&str] = if self.gate == Some(Gate::Product) { &RESEARCH } else { &[] };
        let too_new: &[&str] = if self.without.is_empty() { &[] } else { &["--exclude", self.without] };
        CommandLine::new("cargo", &[&[command, "--workspace"], without, too_new, features, rest].concat())
    }

    fn first(&self) -> Vec<Step> {
        let build = self.cargo("test", &["--no-run", "--message-format", "json-render-diagnostics"]);
        vec![
            self.step("format", Lane::First, CommandLine::new("cargo", &["fmt", "--all", "--", "--check"])),
            self.step("check", Lane::First, CommandLine::new("cargo", &["xtask", "check"])),
            // The same commit gives the same verdict; other seeds are what `make fuzz` is for.
            self.step("tests", Lane::Build, build.with("BOLERO_RANDOM_SEED", "20260101")).wants(&[
                Need::Namespaces,
                Need::All,
                Need::Relays,
            ]),
        ]
    }

    fn timed(&self) -> Vec<Step> {
        let rest = vec![
            self.script("end-to-end", Lane::Waiting, "xtask/end-to-end.sh").needs(&[
                Need::Namespaces,
                FFMPEG,
                Need::Lab,
            ]),
            self.script("interop", Lane::Waiting, "xtask/interop-a1.sh").needs(&[Need::Lab, CRYPTOGRAPHY]),
            self.script("hosts", Lane::Waiting, "xtask/hosts.sh").needs(&[Need::Namespaces, Need::Lab, SSH]),
            // The examples of documents, in short form.
            self.script("documents", Lane::Waiting, "xtask/documents.py").needs(&[
                Need::Namespaces,
                FFMPEG,
                PYTHON,
            ]),
            // Some of it keeps time on emulated links.
            self.script("evidence", Lane::Alone, "xtask/evidence.sh").needs(&[Need::Namespaces]),
            Step {
                limit: minutes(25),
                ..self.script("kernel", Lane::Alone, "host/kernel/guest/test.sh").needs(&[Need::Guests])
            },
        ];
        let mut steps: Vec<Step> = rest.into_iter().map(|step| step.of(Gate::Rest)).collect();
        steps.push(self.script("python", Lane::Alone, "xtask/python.sh").needs(&[PYTHON]));
        steps
    }

    fn beside(&self) -> Vec<Step> {
        let beside = |name, line| self.step(name, Lane::Beside, line);
        // Debian's own, which has Debian's packages.
        let python = |arguments| CommandLine::new("/usr/bin/python3", arguments);
        let miri = ["run", "nightly", "cargo", "miri", "test", "-p", "freshwire-ring"];
        let loom = ["test", "-p", "freshwire-ring", "--release", "--test", "loom"];
        let documents = |rest: &[&str]| {
            let rest = [&["--no-deps"], rest].concat();
            self.cargo("doc", &rest).with("RUSTDOCFLAGS", "-D warnings")
        };
        let rest = vec![
            // On a new machine it has the kernels fetched, for the other step with guests too.
            beside("experiment", CommandLine::new("host/kernel/guest/test.sh", &["--experiment"]))
                .needs(&[Need::Guests]),
            // Against the headers that Debian's releases have; the first time it fetches some hundred megabytes.
            beside("modules", CommandLine::new("host/kernel/guest/compile.sh", &["--short"]))
                .needs(&[Need::Guests, Need::Namespaces]),
            beside(
                "lab",
                python(&[
                    "-m",
                    "unittest",
                    "discover",
                    "-s",
                    "research/python/tests",
                    "-t",
                    "research/python",
                ]),
            )
            .needs(&[Need::Lab])
            .wants(&[SIMPY]),
            beside("miri", CommandLine::new("rustup", &miri).with("CARGO_TARGET_DIR", "target/miri"))
                .needs(&[Need::Miri]),
            // A folder of its own: the flag would otherwise make cargo build everything anew, twice.
            beside(
                "loom",
                CommandLine::new("cargo", &loom)
                    .with("RUSTFLAGS", "--cfg loom")
                    .with("CARGO_TARGET_DIR", "target/loom"),
            ),
            beside("clippy", self.cargo("clippy", &["--all-targets", "--", "-D", "warnings"])),
            // Apart from the others, which have a library of its name among their pages.
            beside("docs-cli", documents(&["--bin", "freshwire"])),
            beside("docs", documents(&[])),
        ];
        let product = vec![
            // Documents say what the published results say.
            beside(
                "published",
                python(&["-m", "freshwire_lab.published", "check"]).with("PYTHONPATH", "research/python"),
            )
            .needs(&[Need::Lab]),
            // The packages that need no compiler; `make packages-test` has the others.
            beside("packages", CommandLine::new("packaging/check.sh", &[])).needs(&[DPKG]),
            // The first time an environment for the step `python`, and what that tests. Cargo lets it wait until the test programs are built.
            Step {
                limit: minutes(60),
                ..beside("wheel", CommandLine::new("xtask/python.sh", &["--build"])).needs(&[PYTHON])
            },
            beside("doc-tests", self.cargo("test", &["--doc"])),
        ];
        let rest = rest.into_iter().map(|step| step.of(Gate::Rest));
        product.into_iter().chain(rest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_fit_the_summary() {
        let steps = all(Path::new("/nowhere"), None);
        for (index, step) in steps.iter().enumerate() {
            assert!(step.name.len() <= 10);
            assert!(steps[..index].iter().all(|other| other.name != step.name));
        }
    }

    #[test]
    fn the_printed_line_can_be_typed() {
        let steps = all(Path::new("/nowhere"), None);
        let loom = steps.iter().find(|step| step.name == "loom").expect("there is a loom step");
        assert_eq!(
            loom.line.describe(),
            "RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR='target/loom' \
             cargo test -p freshwire-ring --release --test loom"
        );
    }

    #[test]
    fn scripts_use_what_was_built() {
        let root = Path::new("/w");
        let line = CommandLine::new("/t/kernel_ring-1", &[]);
        let program = Step::new("-p freshwire --test kernel_ring", Lane::Waiting, line, root);
        let mut steps = all(root, Some(Gate::Rest));
        steps.iter_mut().for_each(|step| step.use_build(root, std::slice::from_ref(&program)));
        let line_of =
            |name: &str| steps.iter().find(|step| step.name == name).expect("a step").line.describe();
        for script in ["interop", "hosts", "documents", "evidence", "kernel"] {
            let line = line_of(script);
            assert!(line.contains("debug' FRESHWIRE_KERNEL_RING_TEST='/t/kernel_ring-1'"), "{line}");
        }
        assert!(!line_of("clippy").contains("FRESHWIRE_TARGET"));
    }

    #[test]
    fn every_step_is_of_one_gate() {
        let names = |gate| -> Vec<String> {
            let steps = all(Path::new("/nowhere"), gate).into_iter().filter(|step| step.lane != Lane::Build);
            steps.map(|step| step.name).collect()
        };
        let mut both = [names(Some(Gate::Product)), names(Some(Gate::Rest))].concat();
        let mut every = names(None);
        both.sort();
        every.sort();
        assert_eq!(both, every);
        let product = all(Path::new("/nowhere"), Some(Gate::Product));
        let build = product.iter().find(|step| step.lane == Lane::Build).expect("a build");
        assert!(build.line.describe().contains("--exclude freshwire-lab --exclude freshwire-sim"));
    }

    #[test]
    fn cargo_gets_the_features_before_the_rest() {
        let workspace = Workspace { root: Path::new("/"), features: "some/feature", without: "", gate: None };
        let line = workspace.cargo("clippy", &["--", "-D", "warnings"]);
        assert_eq!(line.describe(), "cargo clippy --workspace --features some/feature -- -D warnings");
        let older = Workspace { without: "new", features: "", ..workspace };
        assert_eq!(older.cargo("test", &["--doc"]).describe(), "cargo test --workspace --exclude new --doc");
    }
}
