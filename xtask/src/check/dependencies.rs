//! Which crate may depend on which: the table of ARCHITECTURE.md.

use super::mask::mask;
use super::workspace::{Package, Workspace};

/// Each crate with those that it may depend on. Every crate may use `freshwire-record`, which depends on none.
const CRATES: &[(&str, &[&str])] = &[
    ("freshwire-record", &[]),
    ("freshwire-ring", &[]),
    ("freshwire-choice", &[]),
    ("freshwire-media", &[]),
    ("freshwire-link", &[]),
    ("freshwire-moq", &["freshwire-media"]),
    ("freshwire-a1", &["freshwire-choice"]),
    ("freshwire-io", &[]),
    ("freshwire-netns", &["freshwire-io", "freshwire-link"]),
    ("freshwire", &["freshwire-ring", "freshwire-choice", "freshwire-a1", "freshwire-io", "freshwire-media"]),
    ("freshwire-server", &["freshwire", "freshwire-media", "freshwire-moq", "freshwire-io"]),
    (
        "freshwire-cli",
        &[
            "freshwire",
            "freshwire-server",
            "freshwire-link",
            "freshwire-io",
            "freshwire-media",
            "freshwire-moq",
            "freshwire-netns",
        ],
    ),
    ("freshwire-python", &["freshwire", "freshwire-link", "freshwire-netns"]),
    ("freshwire-c", &["freshwire", "freshwire-link", "freshwire-netns"]),
    ("freshwire-gst", &["freshwire", "freshwire-server", "freshwire-media"]),
    ("freshwire-acks", &[]),
    ("freshwire-push", &[]),
    ("freshwire-preload", &["freshwire-push"]),
    ("freshwire-host", &["freshwire-acks", "freshwire-push", "freshwire-cli", "freshwire-io"]),
    ("freshwire-sim", &["freshwire-a1", "freshwire-choice", "freshwire-link", "freshwire-push"]),
    (
        "freshwire-lab",
        &[
            "freshwire",
            "freshwire-server",
            "freshwire-acks",
            "freshwire-cli",
            "freshwire-sim",
            "freshwire-link",
            "freshwire-io",
            "freshwire-media",
            "freshwire-netns",
            "freshwire-push",
        ],
    ),
    ("xtask", &[]),
];

/// What only the tests of a crate may use besides: the emulated link, for paths that are not loopback.
const TESTS: &[(&str, &[&str])] = &[
    ("freshwire-acks", &["freshwire-netns"]),
    ("freshwire-a1", &["freshwire-link"]),
    // The model of TCP in its tests fills the `TcpInfo` that the engine reads.
    ("freshwire-choice", &["freshwire-io", "freshwire-link"]),
    ("freshwire", &["freshwire-netns"]),
    // Whether a machine can be trusted with a measurement.
    ("freshwire-push", &["freshwire-netns"]),
    ("freshwire-server", &["freshwire-link", "freshwire-netns"]),
];

/// The wings that a wing may use, itself included: the product needs nothing of what improves a host, and nothing of the research.
const WINGS: &[(&str, &[&str])] = &[
    ("crates", &["crates"]),
    ("bindings", &["bindings", "crates"]),
    ("host", &["host", "crates"]),
    ("research", &["research", "host", "crates"]),
    ("xtask", &[]),
];

const EVERYBODYS: &str = "freshwire-record";

/// Dependencies that are not allowed, and packages that are not in the list.
pub(super) fn findings(packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages {
        let name = &package.name;
        let Some((_, allowed)) = CRATES.iter().find(|(listed, _)| listed == name) else {
            findings
                .push(format!("{name} has no rule: list its dependencies in xtask and in ARCHITECTURE.md"));
            continue;
        };
        let in_tests =
            TESTS.iter().find(|(listed, _)| listed == name).map_or(&[][..], |(_, allowed)| allowed);
        for dependency in package.dependencies.iter().filter(|dependency| dependency.local) {
            let used = &dependency.name;
            // A crate's tests may name the crate itself, to turn on its features.
            let is_allowed = allowed.contains(&used.as_str())
                || dependency.for_tests && (used == name || in_tests.contains(&used.as_str()));
            let target = packages.iter().find(|other| &other.name == used);
            if let Some(target) = target.filter(|target| !may_use(wing_of(package), wing_of(target))) {
                findings.push(format!(
                    "{name} of {} must not use {used} of {}",
                    wing_of(package),
                    wing_of(target)
                ));
            }
            if used != EVERYBODYS && !is_allowed {
                let list = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
                findings.push(format!("{name} must not use {used}: beside {EVERYBODYS} it may use {list}"));
            }
        }
    }
    findings
}

/// The folder of the root that a package is in.
fn wing_of(package: &Package) -> &str {
    package.folder.split('/').next().unwrap_or_default()
}

fn may_use(wing: &str, other: &str) -> bool {
    WINGS.iter().any(|(listed, allowed)| *listed == wing && allowed.contains(&other))
}

/// Dependencies that a manifest declares and no source names.
pub(super) fn unused(workspace: &Workspace) -> Vec<String> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let own = workspace
            .files
            .iter()
            .filter(|file| file.path.starts_with(&package.folder) && file.path.ends_with(".rs"));
        let code: String = own.map(|file| mask(&file.text)).collect();
        for dependency in &package.dependencies {
            let in_code = dependency.alias.as_ref().unwrap_or(&dependency.name).replace('-', "_");
            if !has_word(&code, &in_code) {
                findings.push(format!("{} declares {} and never names it", package.name, dependency.name));
            }
        }
    }
    findings
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|character: char| !character.is_alphanumeric() && character != '_').any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::super::workspace::{Dependency, File};
    use super::*;

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, local)| Dependency {
                name: (*name).to_owned(),
                local: *local,
                ..Dependency::default()
            })
            .collect();
        Package {
            name: name.to_owned(),
            folder: format!("crates/{name}/"),
            dependencies,
            ..Package::default()
        }
    }

    #[test]
    fn dependencies_of_the_list_pass() {
        let packages = [
            package("freshwire-ring", &[("freshwire-record", true), ("thiserror", false)]),
            package("freshwire", &[("freshwire-ring", true), ("freshwire-io", true)]),
            package("freshwire-cli", &[("freshwire", true), ("freshwire-link", true)]),
        ];
        assert!(findings(&packages).is_empty());
    }

    #[test]
    fn a_dependency_against_the_list_fails() {
        let found = findings(&[package("freshwire-ring", &[("freshwire-choice", true)])]);
        assert_eq!(
            found,
            ["freshwire-ring must not use freshwire-choice: beside freshwire-record it may use nothing"]
        );
        assert_eq!(findings(&[package("freshwire-io", &[("freshwire", true)])]).len(), 1);
        assert_eq!(findings(&[package("freshwire-record", &[("freshwire", true)])]).len(), 1);
    }

    #[test]
    fn a_wing_uses_no_wing_above_it() {
        let mut cli = package("freshwire-cli", &[("freshwire-server", true)]);
        let mut server = package("freshwire-server", &[]);
        assert!(findings(&[cli.clone(), server.clone()]).is_empty());
        server.folder = "research/server/".to_owned();
        assert_eq!(
            findings(&[cli.clone(), server.clone()]),
            ["freshwire-cli of crates must not use freshwire-server of research"]
        );
        cli.folder = "research/cli/".to_owned();
        assert!(findings(&[cli, server]).is_empty());
    }

    #[test]
    fn a_dependency_of_the_tests_is_none_of_the_crate() {
        let mut server = package("freshwire-server", &[("freshwire-link", true)]);
        assert_eq!(findings(std::slice::from_ref(&server)).len(), 1);
        server.dependencies[0].for_tests = true;
        assert!(findings(&[server]).is_empty());
    }

    #[test]
    fn an_unknown_package_fails() {
        let found = findings(&[package("freshwire-extra", &[])]);
        assert_eq!(
            found,
            ["freshwire-extra has no rule: list its dependencies in xtask and in ARCHITECTURE.md"]
        );
    }

    #[test]
    fn the_list_itself_has_no_circle() {
        fn reaches(from: &str, to: &str) -> bool {
            let allowed =
                CRATES.iter().find(|(listed, _)| *listed == from).map_or(&[][..], |(_, allowed)| allowed);
            allowed.iter().any(|used| *used == to || reaches(used, to))
        }
        for (name, _) in CRATES {
            assert!(!reaches(name, name), "{name} reaches itself");
        }
    }

    #[test]
    fn a_dependency_that_is_only_mentioned_in_a_comment_is_unused() {
        let file = |text: &str| File { path: "crates/a/src/lib.rs".to_owned(), text: text.to_owned() };
        let found = |text: &str| {
            unused(&Workspace {
                packages: vec![package("a", &[("serde-json", false)])],
                files: vec![file(text)],
                ..Workspace::default()
            })
        };
        assert!(found("use serde_json::Value;").is_empty());
        let mut renamed = package("a", &[("md-5", false)]);
        renamed.dependencies[0].alias = Some("md5".to_owned());
        let files = vec![file("use md5::Md5;")];
        assert!(unused(&Workspace { packages: vec![renamed], files, ..Workspace::default() }).is_empty());
        assert_eq!(found("// serde_json\nuse my_serde_json;"), ["a declares serde-json and never names it"]);
    }
}
