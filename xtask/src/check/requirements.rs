//! The table of requirements (`xtask/requirements.txt`) against the sources: what a test may call is in it, and each of its entries is
//! called by something.

mod calls;
mod pipeline;
mod python;
mod rust;
mod shell;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use super::style::resolve;
use super::workspace::{File, Workspace};
use crate::documents;
use crate::requirements::{Kind, Requirement, TABLE, parse};
use calls::Calls;

/// What the Python package's tests install from the registry, with hashes.
const PIP: &str = "bindings/python/tests/requirements.txt";

/// Scripts that run where the table's packages are not: in guests, and where a module is installed.
const ELSEWHERE: &[&str] = &[
    "host/kernel/experiment/",
    "host/kernel/guest/init",
    "host/kernel/guest/suite.sh",
    "packaging/debian/",
    "host/kernel/guest/debug",
    ".ci/",
    // Its tests have names of programs that are nowhere.
    "xtask/src/check/",
    "xtask/src/suite/needs.rs",
];

/// Differences between the table and the sources.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let table = match parse(workspace.file(TABLE).unwrap_or_default()) {
        Ok(table) => table,
        Err(error) => return vec![error],
    };
    let calls = calls(workspace);
    let pip = workspace.file(PIP).unwrap_or_default();
    let others: Vec<&File> = workspace.files.iter().filter(|file| file.path != TABLE).collect();
    compare(&table, &calls, &own_programs(workspace), pip, &|name| {
        others.iter().any(|file| file.text.contains(name))
    })
}

fn calls(workspace: &Workspace) -> Calls {
    let mut calls = Calls::default();
    let files = || {
        workspace.files.iter().filter(|file| !ELSEWHERE.iter().any(|folder| file.path.starts_with(folder)))
    };
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for file in files().filter(|file| file.path.ends_with(".rs")) {
        let krate = file.path.split('/').take(2).last().unwrap_or_default();
        let (folder, _) = file.path.rsplit_once('/').unwrap_or_default();
        let shared = file
            .text
            .split("#[path = \"")
            .skip(1)
            .filter_map(|rest| resolve(folder, rest.split('"').next()?));
        let shared = shared.filter_map(|path| workspace.files.iter().find(|file| file.path == path));
        let all = shared.chain([file]).map(|file| (file.path.as_str(), file.text.as_str()));
        crates.entry(krate).or_default().extend(all);
    }
    for files in crates.values() {
        rust::read(files, &mut calls);
    }
    let scripts = || files().filter(|file| file.path.ends_with(".sh"));
    // They source each other.
    let harness = workspace.file("xtask/documents.py").unwrap_or_default();
    let functions =
        scripts().map(|file| file.text.as_str()).chain([harness]).flat_map(shell::functions).collect();
    for file in scripts() {
        shell::read(&file.path, 1, &file.text, &functions, &mut calls);
    }
    let own = own_modules(workspace);
    for file in files().filter(|file| file.path.ends_with(".py")) {
        python::read(&file.path, &file.text, &own, &mut calls);
    }
    for (document, line, script) in documents::scripts(&|path| workspace.file(path).map(str::to_owned)) {
        shell::read(&document, line, &script, &functions, &mut calls);
    }
    calls
}

/// Modules and packages that lie in the repository.
fn own_modules(workspace: &Workspace) -> Vec<String> {
    let mut own = BTreeSet::from(["freshwire".to_owned(), "conftest".to_owned()]);
    for file in workspace.files.iter().filter(|file| file.path.ends_with(".py")) {
        let mut parts: Vec<&str> = file.path.trim_end_matches(".py").rsplit('/').collect();
        parts.truncate(2);
        own.extend(parts.into_iter().map(str::to_owned));
    }
    own.into_iter().collect()
}

/// Programs that the workspace builds, that come with Rust, and that the examples of documents read lines
/// from.
fn own_programs(workspace: &Workspace) -> Vec<String> {
    let mut own: Vec<String> = ["cargo", "rustc", "rustup", "cargo-deb"].map(str::to_owned).to_vec();
    own.extend(["freshwire", "freshwire-lab", "sensors"].map(str::to_owned));
    own.extend(workspace.files.iter().filter_map(|file| file.path.rsplit('/').next()).map(str::to_owned));
    own
}

fn compare(
    table: &[Requirement],
    calls: &Calls,
    own: &[String],
    pip: &str,
    mentions: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let has = |kind: Kind, name: &str| table.iter().any(|one| one.kind == kind && one.name == name);
    let mut findings = calls.unknown.clone();
    let kinds = [
        (Kind::Program, &calls.programs),
        (Kind::Element, &calls.elements),
        (Kind::Python, &calls.modules),
        (Kind::Typelib, &calls.typelibs),
    ];
    for (kind, found) in kinds {
        for (name, place) in found {
            let is_own = own.iter().any(|one| one == name) || name.starts_with("freshwire");
            let is_pip = kind == Kind::Python
                && pip
                    .lines()
                    .any(|line| line.split("==").next().is_some_and(|one| one.replace('-', "_") == *name));
            if !is_own && !is_pip && !has(kind, name) {
                findings
                    .push(format!("{place} uses the {} {name}, which {TABLE} does not name", kind.word()));
            }
        }
        for row in table.iter().filter(|row| row.kind == kind && !found.contains_key(&row.name)) {
            findings.push(format!(
                "{TABLE}:{} names the {} {}, which nothing uses",
                row.line,
                kind.word(),
                row.name
            ));
        }
    }
    let rest = table.iter().filter(|row| !kinds.iter().any(|(kind, _)| *kind == row.kind));
    for row in rest.filter(|row| !mentions(row.name.split(".so").next().unwrap_or_default())) {
        findings.push(format!(
            "{TABLE}:{} names the {} {}, which nothing mentions",
            row.line,
            row.kind.word(),
            row.name
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<Requirement> {
        parse("program ffmpeg,ffprobe ffmpeg test demo!\nheader usrsctp.h libusrsctp-dev test\n")
            .expect("a table")
    }

    fn compared(programs: &[&str], modules: &[&str], mentions: bool) -> Vec<String> {
        let mut calls = Calls::default();
        programs.iter().for_each(|name| calls.program("crates/a/tests/b.rs", 7, name));
        modules.iter().for_each(|name| calls.module("a.py", 1, name));
        compare(&table(), &calls, &["run.sh".to_owned()], "pytest==9 \\\ntyping-extensions==4\n", &|_| {
            mentions
        })
    }

    #[test]
    fn a_call_of_an_unknown_program_is_found() {
        let found = compared(
            &["ffmpeg", "ffprobe", "mpv", "host/kernel/guest/run.sh", "freshwire"],
            &["pytest", "typing_extensions", "av"],
            true,
        );
        assert_eq!(
            found,
            [
                "crates/a/tests/b.rs:7 uses the program mpv, which xtask/requirements.txt does not name",
                "a.py:1 uses the python av, which xtask/requirements.txt does not name",
            ]
        );
    }

    #[test]
    fn an_entry_that_nobody_uses_is_found() {
        let found = compared(&["ffmpeg"], &[], false);
        assert_eq!(
            found,
            [
                "xtask/requirements.txt:1 names the program ffprobe, which nothing uses",
                "xtask/requirements.txt:2 names the header usrsctp.h, which nothing mentions",
            ]
        );
    }
}
