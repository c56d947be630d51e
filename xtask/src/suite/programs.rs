//! The workspace's test programs as steps: what cargo has built, and beside what each may run.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::command::CommandLine;
use super::steps::{Gate, Lane, Step};

/// Programs that compute and read no clock: what they find is the same however little of the processors they get.
const COMPUTING: &[&str] = &[
    "-p freshwire-a1 --lib",
    "-p freshwire-choice --lib",
    "-p freshwire-choice --test frames",
    "-p freshwire-choice --test ladder",
    "-p freshwire-choice --test laws",
    "-p freshwire-choice --test renditions",
    "-p freshwire-choice --test screen",
    "-p freshwire-link --lib",
    "-p freshwire-link --test properties",
    "-p freshwire-link --test scenarios",
    "-p freshwire-media --lib",
    "-p freshwire-record --lib",
    "-p freshwire-sim --lib",
    "-p freshwire-sim --test queue",
    "-p freshwire-sim --test scenarios",
    "-p freshwire-sim --test speed",
    "-p freshwire-sim --test texts",
    "-p freshwire-sim --test worlds",
];

/// Programs that measure: delays to the millisecond, rates to the percent, or what a player shows in time.
const MEASURING: &[&str] = &[
    "-p freshwire --test account",
    "-p freshwire --test engine",
    "-p freshwire --test state",
    "-p freshwire-acks --test connections",
    "-p freshwire-cli --test fallback_link",
    "-p freshwire-lab --test lab",
    "-p freshwire-netns --test link",
    "-p freshwire-push --test receiver",
    "-p freshwire-server --test browser",
    "-p freshwire-server --test renditions",
    "-p freshwire-server --test renditions_link",
    "-p freshwire-server --test udp_link",
];

/// Programs that measure too, but in seconds, which another program beside them rarely changes. If it does, they run once more, alone.
#[cfg(test)]
const MEASURING_SECONDS: &[&str] = &["-p freshwire-cli --test serve", "-p freshwire-server --test relay"];

/// Programs that take longest, each with its seconds on two cores (2026-11-28), and those of the research: `make test-rest` runs them.
const REST: &[&str] = &[
    "-p freshwire-choice --test ladder",          // 52
    "-p freshwire-server --test browser",         // 203
    "-p freshwire-server --test renditions",      // 48
    "-p freshwire-server --test renditions_link", // 52
    "-p freshwire-server --test silence",         // 47
    "-p freshwire-server --test udp_link",        // 40
];

/// The longest waiting programs of `make test`, with their seconds on two cores (2026-11-30). They start first; one that starts last leaves the
/// other lane empty.
const LONG: &[&str] = &[
    "-p freshwire-server --test webrtc",  // 164
    "-p freshwire-server --test reload",  // 65
    "-p freshwire-c --test conversation", // 64
    "-p freshwire-cli --test relays",     // 61
];

/// The steps of the programs that cargo's messages tell of, with the environment of the build.
pub(super) fn steps(messages: &[String], build: &Step) -> anyhow::Result<Vec<Step>> {
    let mut steps = Vec::new();
    for message in messages {
        let message = serde_json::from_str(message).context("cargo's message is not JSON")?;
        steps.extend(step(&message, build));
    }
    steps.sort_by_cached_key(|step| (!LONG.contains(&step.name.as_str()), step.name.clone()));
    Ok(steps)
}

/// The step of the test program that a message of cargo's tells of, if it does.
fn step(message: &Value, build: &Step) -> Option<Step> {
    if !message["profile"]["test"].as_bool()? {
        return None;
    }
    let executable = message["executable"].as_str()?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = package_of(message["package_id"].as_str()?)?;
    let target = message["target"]["name"].as_str()?;
    let name = match message["target"]["kind"][0].as_str()? {
        kind @ ("bin" | "test" | "example" | "bench") => format!("-p {package} --{kind} {target}"),
        _ => format!("-p {package} --lib"),
    };
    let lane = match name.as_str() {
        name if COMPUTING.contains(&name) => Lane::Beside,
        name if MEASURING.contains(&name) => Lane::Alone,
        _ => Lane::Waiting,
    };
    let line =
        CommandLine { environment: build.line.environment.clone(), ..CommandLine::new(executable, &[]) };
    let line = line.with("CARGO_MANIFEST_DIR", folder.to_str()?);
    let is_research = folder.parent().is_some_and(|wing| wing.ends_with("research"));
    let gate = if is_research || REST.contains(&name.as_str()) { Gate::Rest } else { Gate::Product };
    Some(Step::new(&name, lane, line, folder).of(gate))
}

/// The package's name in cargo's identifier, which leaves it out where the folder has it: `path+file:///w/crates/a1#freshwire-a1@0.1.0`,
/// `path+file:///w/crates/freshwire#0.1.0`.
fn package_of(id: &str) -> Option<&str> {
    let (folder, rest) = id.rsplit_once('#')?;
    rest.split_once('@').map(|(name, _)| name).or_else(|| folder.rsplit('/').next())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const LIBRARY: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/a1#freshwire-a1@0.1.0","manifest_path":"/w/crates/a1/Cargo.toml",
        "target":{"kind":["lib"],"name":"freshwire_a1"},"profile":{"test":true},"executable":"/t/freshwire_a1-1"}"#;
    const TEST: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/freshwire#0.1.0","manifest_path":"/w/crates/freshwire/Cargo.toml",
        "target":{"kind":["test"],"name":"account"},"profile":{"test":true},"executable":"/t/account-2"}"#;
    const COMMAND: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/cli#freshwire-cli@0.1.0","manifest_path":"/w/crates/cli/Cargo.toml",
        "target":{"kind":["bin"],"name":"freshwire"},"profile":{"test":false},"executable":"/t/freshwire"}"#;

    fn steps_of(messages: &[&str]) -> anyhow::Result<Vec<Step>> {
        let messages: Vec<String> = messages.iter().map(|&message| message.to_owned()).collect();
        let line = CommandLine::new("cargo", &["test"]).with("SEED", "7");
        steps(&messages, &Step::new("tests", Lane::Build, line, Path::new("/w")))
    }

    #[test]
    fn test_programs_differ_from_the_rest() {
        let finished = r#"{"reason":"build-finished","success":true}"#;
        let steps = steps_of(&[LIBRARY, TEST, COMMAND, finished]).expect("messages");
        let found: Vec<_> = steps.iter().map(|step| (step.name.as_str(), step.lane)).collect();
        let expected =
            [("-p freshwire --test account", Lane::Alone), ("-p freshwire-a1 --lib", Lane::Beside)];
        assert_eq!(found, expected);
        assert_eq!(
            steps[0].line.describe(),
            "SEED='7' CARGO_MANIFEST_DIR='/w/crates/freshwire' /t/account-2 "
        );
        assert_eq!(steps[0].folder, Path::new("/w/crates/freshwire"));
    }

    const WINGS: [&str; 4] = ["crates", "bindings", "host", "research"];

    /// Names and folders of the workspace's packages.
    fn packages(root: &Path) -> Vec<(String, PathBuf)> {
        let folders = WINGS.iter().flat_map(|wing| std::fs::read_dir(root.join(wing)).expect("a wing"));
        let folders = folders.map(|folder| folder.expect("a folder").path());
        let named = folders.filter_map(|folder| {
            let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).ok()?;
            let name =
                manifest.lines().find_map(|line| line.strip_prefix("name = \""))?.trim_end_matches('"');
            Some((name.to_owned(), folder))
        });
        named.collect()
    }

    /// The source of a program in the lists: a file of tests, or a library.
    fn source(packages: &[(String, PathBuf)], name: &str) -> PathBuf {
        let mut words = name.split(' ').skip(1);
        let package = words.next().unwrap_or_default();
        let folder = packages.iter().find(|(name, _)| name == package).map(|(_, folder)| folder.clone());
        let folder = folder.unwrap_or_default();
        match (words.next(), words.next()) {
            (Some("--test"), Some(test)) => folder.join("tests").join(format!("{test}.rs")),
            _ => folder.join("src/lib.rs"),
        }
    }

    #[test]
    fn the_lists_name_programs_that_exist_and_all_that_measure() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        let packages = packages(root);
        for name in COMPUTING.iter().chain(MEASURING).chain(MEASURING_SECONDS).chain(REST).chain(LONG) {
            assert!(source(&packages, name).is_file(), "{name} is no test program");
        }
        let mut measuring = 0;
        for (_, folder) in &packages {
            let Ok(tests) = std::fs::read_dir(folder.join("tests")) else { continue };
            for path in tests.map(|test| test.expect("a test").path()).filter(|path| path.is_file()) {
                let uses = std::fs::read_to_string(&path).is_ok_and(|text| text.contains("trust::{"));
                let mut listed = MEASURING.iter().chain(MEASURING_SECONDS);
                let is_listed = listed.any(|name| source(&packages, name) == path);
                assert!(!uses || is_listed, "{} measures: add it to MEASURING", path.display());
                measuring += usize::from(uses);
            }
        }
        assert!(measuring >= 4);
    }

    #[test]
    fn a_message_that_is_none_is_an_error() {
        assert!(steps_of(&["{"]).is_err());
    }
}
