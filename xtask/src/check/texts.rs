//! What the texts promise: versions, commands, dependencies; and what no file may name.

use super::workspace::{File, Package, Workspace};

/// How many lines of the README count as its first screen.
const FIRST_SCREEN: usize = 50;
const FIRST_COMMANDS: [&str; 2] = ["make demo", "make test"];
/// The document that explains every third-party crate.
const DEPENDENCIES: &str = "docs/dependencies.md";

/// Folders of one machine and hosts of package registries. Each is cut in two here so that this file does not name it.
const FORBIDDEN: &[(&str, &str)] = &[
    ("/wo", "rk/"),
    ("/fa", "rm/"),
    ("/ro", "ot/"),
    ("index.cra", "tes.io"),
    ("static.cra", "tes.io"),
    ("deb.deb", "ian"),
    ("py", "pi.org"),
    ("registry.npm", "js"),
    ("proxy.gol", "ang"),
];

/// Texts that disagree with the workspace.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let mut findings = Vec::new();
    let rust_version = workspace.packages.first().map_or("", |package| &package.rust_version);
    for name in ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"] {
        let text = workspace.file(name).unwrap_or_default();
        findings.extend(versions(name, text, rust_version));
    }
    findings.extend(first_screen(workspace.file("README.md").unwrap_or_default()));
    findings.extend(dependencies(workspace.file(DEPENDENCIES).unwrap_or_default(), &workspace.packages));
    findings.extend(names_of_places(&workspace.files));
    findings
}

/// A mentioned Rust version has to be the one of the manifests.
fn versions(name: &str, text: &str, rust_version: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for lead in ["Rust 1.", "rustc 1.", "MSRV 1."] {
        for (at, _) in text.match_indices(lead) {
            let start = at + lead.len() - 2;
            let version: String =
                text[start..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            let version = version.trim_end_matches('.');
            if version != rust_version {
                findings.push(format!("{name} says Rust {version}, Cargo.toml says {rust_version}"));
            }
        }
    }
    findings
}

fn first_screen(readme: &str) -> Vec<String> {
    let first: Vec<&str> = readme.lines().take(FIRST_SCREEN).collect();
    FIRST_COMMANDS
        .iter()
        .filter(|command| !first.iter().any(|line| line.contains(*command)))
        .map(|command| format!("README.md does not show `{command}` in its first {FIRST_SCREEN} lines"))
        .collect()
}

fn dependencies(reasons: &str, packages: &[Package]) -> Vec<String> {
    let all = packages.iter().flat_map(|package| &package.dependencies);
    let mut names: Vec<&str> =
        all.filter(|dependency| !dependency.local).map(|dependency| dependency.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .filter(|name| !reasons.contains(&format!("`{name}`")))
        .map(|name| format!("{DEPENDENCIES} does not say why `{name}` is a dependency"))
        .collect()
}

fn names_of_places(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    // Lock files name their registry: that is their job.
    for file in files.iter().filter(|file| !file.path.ends_with(".lock")) {
        for (number, line) in file.text.lines().enumerate() {
            for (left, right) in FORBIDDEN {
                let place = format!("{left}{right}");
                if line.contains(&place) {
                    findings.push(format!("{}:{} names {place}", file.path, number + 1));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::workspace::Dependency;
    use super::*;

    #[test]
    fn a_mentioned_version_has_to_agree() {
        assert!(versions("README.md", "Needs Rust 1.88. Rust is fine.", "1.88").is_empty());
        assert_eq!(
            versions("README.md", "MSRV 1.80, see below", "1.88"),
            ["README.md says Rust 1.80, Cargo.toml says 1.88"]
        );
    }

    #[test]
    fn both_commands_stand_on_the_first_screen() {
        assert!(first_screen("# x\n\n    make demo\n    make test\n").is_empty());
        let late = format!("make demo\n{}make test\n", "\n".repeat(FIRST_SCREEN));
        assert_eq!(first_screen(&late), ["README.md does not show `make test` in its first 50 lines"]);
    }

    #[test]
    fn each_third_party_crate_has_its_reason() {
        let dependency =
            |name: &str, local| Dependency { name: name.to_owned(), local, ..Dependency::default() };
        let package = Package {
            dependencies: vec![dependency("libc", false), dependency("freshwire", true)],
            ..Package::default()
        };
        let packages = [package.clone(), package];
        assert!(dependencies("- `libc`: system calls", &packages).is_empty());
        assert_eq!(
            dependencies("libc", &packages),
            ["docs/dependencies.md does not say why `libc` is a dependency"]
        );
    }

    #[test]
    fn a_machines_folder_is_found_outside_lock_files() {
        let text = format!("fine\nsee {}{}main\n", FORBIDDEN[0].0, FORBIDDEN[0].1);
        let file = |path: &str| File { path: path.to_owned(), text: text.clone() };
        assert_eq!(names_of_places(&[file("a.md"), file("Cargo.lock")]).len(), 1);
    }
}
