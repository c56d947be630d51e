//! The steps of the test command.

use std::time::Duration;

use super::needs::Need;

/// One step.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) action: Action,
    /// When it counts as hanging.
    pub(super) limit: Duration,
    /// Without these it is skipped.
    pub(super) needs: &'static [Need],
    /// Without these it runs, but some of its tests do nothing.
    pub(super) wants: &'static [Need],
}

pub(super) enum Action {
    /// The rules of the workspace, in this process.
    Check,
    Command(CommandLine<'static>),
}

/// A program with its arguments and what its environment has beside ours.
pub(super) struct CommandLine<'a> {
    pub(super) program: &'a str,
    pub(super) arguments: &'a [&'a str],
    pub(super) environment: &'a [(&'a str, &'a str)],
}

impl Action {
    /// The line that a person would type.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Check => "cargo xtask check".to_owned(),
            Self::Command(CommandLine { program, arguments, environment }) => {
                let environment = environment.iter().map(|(name, value)| format!("{name}='{value}' "));
                environment.collect::<String>() + program + " " + &arguments.join(" ")
            }
        }
    }
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

const fn cargo(
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
) -> Action {
    Action::Command(CommandLine { program: "cargo", arguments, environment })
}

const fn script(name: &'static str, program: &'static str, limit: Duration, needs: &'static [Need]) -> Step {
    let command = CommandLine { program, arguments: &[], environment: &[] };
    Step { name, action: Action::Command(command), limit, needs, wants: &[] }
}

/// A step in Python: Debian's own, which has Debian's packages.
const fn python(
    name: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
) -> Step {
    let command = CommandLine { program: "/usr/bin/python3", arguments, environment };
    Step { name, action: Action::Command(command), limit: minutes(5), needs: &[Need::Lab], wants: &[] }
}

/// A step that needs nothing but Rust.
const fn plain(name: &'static str, action: Action, limit: Duration) -> Step {
    Step { name, action, limit, needs: &[], wants: &[] }
}

/// All steps: first what is quick to fail, then what is slow.
pub(super) fn all() -> Vec<Step> {
    vec![
        plain("format", cargo(&["fmt", "--all", "--", "--check"], &[]), minutes(2)),
        plain("check", Action::Check, minutes(1)),
        plain(
            "clippy",
            cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
            minutes(10),
        ),
        // Apart from the others, which have a library of its name among their pages.
        plain(
            "docs-cli",
            cargo(
                &["rustdoc", "-p", "freshwire-cli", "--bin", "freshwire"],
                &[("RUSTDOCFLAGS", "-D warnings")],
            ),
            minutes(10),
        ),
        plain(
            "docs",
            cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")]),
            minutes(10),
        ),
        Step {
            name: "tests",
            // The same commit gives the same verdict; other seeds are what `make fuzz` is for.
            action: cargo(&["test", "--workspace", "--no-fail-fast"], &[("BOLERO_RANDOM_SEED", "20260101")]),
            limit: minutes(35),
            needs: &[],
            wants: &[
                Need::Namespaces,
                Need::Ffmpeg,
                Need::Gstreamer,
                Need::Chromium,
                Need::Firefox,
                Need::Tshark,
            ],
        },
        plain(
            "loom",
            // A folder of its own: the flag would otherwise make cargo build everything anew, twice.
            cargo(
                &["test", "-p", "freshwire-ring", "--release", "--test", "loom"],
                &[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")],
            ),
            minutes(10),
        ),
        Step {
            name: "miri",
            action: Action::Command(CommandLine {
                program: "rustup",
                arguments: &["run", "nightly", "cargo", "miri", "test", "-p", "freshwire-ring"],
                environment: &[("CARGO_TARGET_DIR", "target/miri")],
            }),
            limit: minutes(10),
            needs: &[Need::Miri],
            wants: &[],
        },
        Step {
            wants: &[Need::Simpy],
            ..python("lab", &["-m", "unittest", "discover", "-s", "lab/tests", "-t", "lab"], &[])
        },
        // Documents say what the published results say.
        python("published", &["-m", "freshwire_lab.published", "check"], &[("PYTHONPATH", "lab")]),
        // The packages that need no compiler; `make packages-test` has the others.
        script("packages", "packaging/check.sh", minutes(2), &[Need::Dpkg]),
        // It builds the wheel, and the first time an environment.
        script("python", "xtask/python.sh", minutes(15), &[Need::Python]),
        // Of the workspace's build it changes a few crates beside the elements.
        script(
            "gstreamer",
            "xtask/gstreamer.sh",
            minutes(15),
            &[Need::GstreamerHeaders, Need::Gstreamer, Need::Ffmpeg],
        ),
        // It may have to build the command first.
        script("interop", "xtask/interop-a1.sh", minutes(10), &[Need::Lab, Need::Cryptography]),
        script("kernel", "kernel/guest/test.sh", minutes(25), &[Need::Guests]),
        script(
            "end-to-end",
            "xtask/end-to-end.sh",
            minutes(10),
            &[Need::Namespaces, Need::Ffmpeg, Need::Lab],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_fit_the_summary() {
        let steps = all();
        for (index, step) in steps.iter().enumerate() {
            assert!(step.name.len() <= 10);
            assert!(steps[..index].iter().all(|other| other.name != step.name));
        }
    }

    #[test]
    fn the_printed_line_can_be_typed() {
        let loom = all().into_iter().find(|step| step.name == "loom").expect("there is a loom step");
        assert_eq!(
            loom.action.describe(),
            "RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR='target/loom' \
             cargo test -p freshwire-ring --release --test loom"
        );
    }
}
