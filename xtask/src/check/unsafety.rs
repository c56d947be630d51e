//! Where unsafe code may stand.

use super::mask::mask;
use super::workspace::Workspace;

/// The packages that may have unsafe code, and why each needs it.
const ALLOWED: &[(&str, &str)] = &[
    ("freshwire-ring", "memory that another process writes"),
    ("freshwire-io", "system calls"),
    ("freshwire-netns", "system calls for namespaces, signals and packet rings"),
    ("freshwire-push", "system calls that fill many buffers, and a lock with priority inheritance"),
    ("freshwire-lab", "system calls that share memory with the kernel, in sendpath"),
    ("freshwire-preload", "stands in front of the C library's calls"),
    ("freshwire-python", "Python's buffers and file descriptors"),
    ("freshwire-c", "pointers of C callers"),
    ("freshwire", "hands the arena's memory to the kernel"),
];

pub(super) fn allowed() -> impl Iterator<Item = &'static str> {
    ALLOWED.iter().map(|(name, _)| *name)
}

/// Unsafe code outside the list, roots that do not forbid it, and entries of the list that nothing needs.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let sources = workspace
            .files
            .iter()
            .filter(|file| file.path.starts_with(&package.folder) && file.path.ends_with(".rs"));
        let unsafe_files: Vec<&str> =
            sources.filter(|file| is_unsafe(&file.text)).map(|file| file.path.as_str()).collect();
        if allowed().any(|name| name == package.name) {
            if unsafe_files.is_empty() {
                findings
                    .push(format!("{} has no unsafe code: forbid it and take it off the list", package.name));
            }
            continue;
        }
        for path in unsafe_files {
            findings.push(format!("{path} has unsafe code, which {} may not have", package.name));
        }
        for root in &package.crate_roots {
            if !workspace.file(root).is_some_and(|text| text.contains("#![forbid(unsafe_code)]")) {
                findings.push(format!("{root} lacks #![forbid(unsafe_code)]"));
            }
        }
    }
    findings
}

fn is_unsafe(source: &str) -> bool {
    let code = mask(source);
    code.split(|character: char| !character.is_alphanumeric() && character != '_')
        .any(|word| word == "unsafe")
}

#[cfg(test)]
mod tests {
    use super::super::workspace::{File, Package};
    use super::*;

    fn found(package: &str, text: &str) -> Vec<String> {
        let path = format!("crates/{package}/src/lib.rs");
        let package = Package {
            name: package.to_owned(),
            folder: format!("crates/{package}/"),
            crate_roots: vec![path.clone()],
            ..Package::default()
        };
        let files = vec![File { path, text: text.to_owned() }];
        findings(&Workspace { packages: vec![package], files, ..Workspace::default() })
    }

    #[test]
    fn a_pure_package_forbids_and_has_none() {
        assert!(found("freshwire-choice", "#![forbid(unsafe_code)]\n// unsafe\nfn f() {}").is_empty());
    }

    #[test]
    fn a_missing_forbid_is_found() {
        let found = found("freshwire-choice", "fn f() {}");
        assert_eq!(found, ["crates/freshwire-choice/src/lib.rs lacks #![forbid(unsafe_code)]"]);
    }

    #[test]
    fn unsafe_code_outside_the_list_is_found() {
        let found = found("freshwire-choice", "#![forbid(unsafe_code)]\nfn f() { unsafe { g() } }");
        assert_eq!(
            found,
            ["crates/freshwire-choice/src/lib.rs has unsafe code, which freshwire-choice may not have"]
        );
    }

    #[test]
    fn the_list_is_as_short_as_it_can_be() {
        assert!(found("freshwire-ring", "fn f() { unsafe { g() } }").is_empty());
        let found = found("freshwire-ring", "fn f() {}");
        assert_eq!(found, ["freshwire-ring has no unsafe code: forbid it and take it off the list"]);
    }
}
