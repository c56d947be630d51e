//! What documents say of the code, where the code can be asked: kernel versions, unsafe code, clocks, missing names, indexes.

use std::collections::BTreeSet;

use super::mask::mask;
use super::workspace::{File, Workspace};
use super::{style, unsafety};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const LIMITATIONS: &str = "docs/limitations.md";
/// A binding's package, its manual, and its language. The manual and the limitations list what it lacks.
const BINDINGS: [[&str; 3]; 2] = [["freshwire-c", "c.md", "C"], ["freshwire-python", "python.md", "Python"]];
/// Folders whose `README.md` lists every other document in them.
const INDEXED: [&str; 2] = ["docs/lab-notebook/", "docs/adr/"];

/// Claims that differ from the code.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let mut findings = kernels(workspace);
    findings.extend(list(workspace, "Unsafe code exists in ", unsafety::allowed().collect()));
    findings.extend(list(workspace, "Clocks are read in ", clocks(workspace)));
    findings.extend(BINDINGS.iter().flat_map(|binding| missing(workspace, binding)));
    findings.extend(INDEXED.iter().flat_map(|folder| index(workspace, folder)));
    findings
}

/// Versions of Linux in documents that no code states: the lowest ones, and the ranges of the modules.
fn kernels(workspace: &Workspace) -> Vec<String> {
    let has = |file: &File, endings: &[&str]| endings.iter().any(|ending| file.path.ends_with(ending));
    // A crate's README speaks for the crate alone.
    let folder = |path: &str| {
        let folders = workspace.packages.iter().map(|package| package.folder.as_str());
        folders.filter(|folder| path.starts_with(*folder)).max().unwrap_or_default()
    };
    let mut stated = BTreeSet::new();
    for file in workspace.files.iter().filter(|file| has(file, &[".rs", ".h"])) {
        let phrases = versions(&file.text).into_iter().filter(|phrase| phrase.ends_with(" or newer"));
        stated.extend(phrases.chain(range(&file.text)).map(|phrase| (folder(&file.path), phrase)));
    }
    let mut findings = Vec::new();
    for file in workspace.files.iter().filter(|file| has(file, &[".md"]) && !style::is_dated(&file.path)) {
        let own = folder(&file.path);
        for phrase in versions(&file.text) {
            let is_claim = phrase.ends_with(" or newer") || phrase.contains(" to ");
            if is_claim && !stated.iter().any(|(at, one)| *one == phrase && (own.is_empty() || *at == own)) {
                findings.push(format!("{} says Linux {phrase}, which its code does not say", file.path));
            }
        }
    }
    findings
}

/// The phrases behind `Linux` and `kernels`: `6.6 or newer`, `6.1 to 6.12 and 7.2 to 7.3`.
fn versions(text: &str) -> Vec<String> {
    let words: Vec<&str> =
        text.split_whitespace().map(|word| word.trim_matches(['"', ',', '.', ';', '('])).collect();
    let is_part = |word: &&&str| {
        ["to", "and", "or", "newer"].contains(*word)
            || word
                .split_once('.')
                .is_some_and(|(major, minor)| [major, minor].iter().all(|n| n.parse::<u8>().is_ok()))
    };
    let leads = words.iter().enumerate().filter(|(_, word)| ["Linux", "kernels"].contains(word));
    let phrase = |(at, _)| {
        let parts: Vec<&str> = words[at + 1..].iter().take_while(is_part).copied().collect();
        parts.join(" ").trim_end_matches(" and").to_owned()
    };
    leads.map(phrase).collect()
}

/// The kernels for which a module builds, by its `#error`s.
fn range(source: &str) -> Option<String> {
    let errors: Vec<&str> = source.lines().filter(|line| line.starts_with("#error")).collect();
    versions(&errors.join("\n")).into_iter().find(|phrase| phrase.contains(" to "))
}

/// The packages that a paragraph of ARCHITECTURE.md names, beside those of the code.
fn list(workspace: &Workspace, lead: &str, packages: BTreeSet<&str>) -> Vec<String> {
    let text = paragraph(workspace.file(ARCHITECTURE).unwrap_or_default(), lead);
    let is_package = |name: &&str| workspace.packages.iter().any(|package| package.name == **name);
    let named: BTreeSet<&str> = quoted(text).filter(is_package).collect();
    let differ = named.symmetric_difference(&packages);
    differ
        .map(|name| format!("{ARCHITECTURE}, \"{lead}...\": the paragraph and the code differ on {name}"))
        .collect()
}

/// The packages whose sources read a clock, by the standard library or by a system call.
fn clocks(workspace: &Workspace) -> BTreeSet<&str> {
    let reads = |folder: &str| {
        let sources = workspace
            .files
            .iter()
            .filter(|file| file.path.starts_with(&format!("{folder}src/")) && !file.path.contains("/tests"));
        sources.map(|file| mask(&file.text)).any(|code| {
            ["clippy::disallowed_methods", "clock_gettime("].iter().any(|reading| code.contains(reading))
        })
    };
    let packages = workspace.packages.iter().filter(|package| reads(&package.folder));
    packages.map(|package| package.name.as_str()).collect()
}

/// Names that a binding has although its lists say that it does not, and names in one of its two lists alone.
fn missing(workspace: &Workspace, [package, manual, language]: &[&str; 3]) -> Vec<String> {
    let of = |path: &str, lead: &str| -> BTreeSet<&str> {
        quoted(paragraph(workspace.file(path).unwrap_or_default(), lead)).collect()
    };
    let manuals = of(&format!("docs/{manual}"), &format!("Not in {language}: "));
    let listed = of(LIMITATIONS, &format!("- [{language}]({manual}): "));
    let folder = workspace.packages.iter().find(|one| one.name == **package).map_or("", |one| &one.folder);
    let plain = |text: &str| text.replace(['_', ':'], "").to_lowercase();
    let interface: String = workspace
        .files
        .iter()
        .filter(|file| {
            file.path.starts_with(folder) && (file.path.ends_with(".h") || file.path.ends_with(".pyi"))
        })
        .map(|file| plain(&file.text))
        .collect();
    let mut findings: Vec<String> = manuals
        .symmetric_difference(&listed)
        .map(|name| format!("docs/{manual} and {LIMITATIONS} differ on `{name}` as missing in {language}"))
        .collect();
    let there = manuals.union(&listed).filter(|name| interface.contains(&plain(name)));
    findings
        .extend(there.map(|name| format!("docs/{manual} says that {language} lacks `{name}`, which it has")));
    findings
}

/// Documents of a folder that its `README.md` does not link.
fn index(workspace: &Workspace, folder: &str) -> Vec<String> {
    let readme = format!("{folder}README.md");
    let text = workspace.file(&readme).unwrap_or_default();
    let names = workspace
        .files
        .iter()
        .filter_map(|file| file.path.strip_prefix(folder))
        .filter(|name| *name != "README.md");
    names
        .filter(|name| !text.contains(&format!("({name})")))
        .map(|name| format!("{readme} does not list {name}"))
        .collect()
}

/// What begins with `lead`, up to an empty line or the next item of a list.
fn paragraph<'a>(text: &'a str, lead: &str) -> &'a str {
    let rest = text.find(lead).map_or("", |at| &text[at..]);
    ["\n\n", "\n- "].iter().filter_map(|end| rest.find(end)).min().map_or(rest, |end| &rest[..end])
}

/// What a text has between backticks.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::super::workspace::Package;
    use super::*;

    /// The findings in a workspace of two packages with these files.
    fn found(rule: impl Fn(&Workspace) -> Vec<String>, files: &[(&str, &str)]) -> Vec<String> {
        let package = |name: &str, folder: &str| Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            ..Package::default()
        };
        let packages = vec![package("freshwire-ring", "crates/ring/"), package("freshwire-c", "crates/c/")];
        let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
        rule(&Workspace { packages, files: files.iter().map(file).collect(), ..Workspace::default() })
    }

    const MODULE: (&str, &str) = (
        "kernel/m/m.h",
        "#error \"m builds for Linux 6.1 to 6.12 and 7.2 to 7.3, not for this one\"\n#error \"m needs memory\"\n",
    );

    #[test]
    fn kernel_versions_are_those_of_the_code() {
        let code = ("crates/ring/src/lib.rs", "\"Linux 5.11 or newer is needed\"");
        let right = [
            ("README.md", "Linux\n5.11 or newer, and\nstock kernels 6.1 to 6.12, and 7.2 to 7.3."),
            ("crates/ring/README.md", "Needs Linux 5.11 or newer."),
            ("docs/adr/1.md", "Linux 2.4 or newer"),
        ];
        assert_eq!(found(kernels, &[&right[..], &[MODULE, code]].concat()), Vec::<String>::new());
        for (document, says) in [
            ("README.md", "6.2 or newer"),
            ("README.md", "6.1 to 7.3"),
            ("README.md", "6.1 to 6.13 and 7.2 to 7.3"),
            ("crates/c/README.md", "5.11 or newer"),
        ] {
            let text = format!("On Linux {says}.");
            let wanted = format!("{document} says Linux {says}, which its code does not say");
            assert_eq!(found(kernels, &[MODULE, code, (document, &text)]), [wanted]);
        }
    }

    #[test]
    fn paragraphs_name_the_packages_of_the_code() {
        let differ = |text: &str, code: &str| {
            let files = [(ARCHITECTURE, text), ("crates/ring/src/a.rs", code)];
            found(|workspace| list(workspace, "Clocks are read in ", clocks(workspace)), &files).len()
        };
        let reads = "fn now() { clock_gettime(ClockId::Monotonic); }";
        assert_eq!(differ("Clocks are read in `freshwire-ring` (`now`).\n\n`freshwire-c`", reads), 0);
        assert_eq!(
            differ("Clocks are read in `freshwire-ring`.", "#![allow(clippy::disallowed_methods)]"),
            0
        );
        assert_eq!(differ("Clocks are read in `freshwire-c`.", reads), 2);
        assert_eq!(differ("Clocks are read in `freshwire-ring`.", "// clock_gettime()"), 1);
        assert_eq!(differ("", reads), 1);
    }

    #[test]
    fn missing_names_are_missing_and_in_both_lists() {
        let lists = |manual: &str, limitations: &str, header: &str| {
            let files = [("docs/c.md", manual), (LIMITATIONS, limitations), ("crates/c/include/f.h", header)];
            found(|workspace| missing(workspace, &BINDINGS[0]), &files)
        };
        let (manual, limitations) = ("Not in C: `KeyLog`.\n\n`fw_x`", "- [C](c.md): `KeyLog`.\n- `Other`");
        assert_eq!(lists(manual, limitations, "fw_push();"), Vec::<String>::new());
        assert_eq!(
            lists(manual, limitations, "fw_key_log();"),
            ["docs/c.md says that C lacks `KeyLog`, which it has"]
        );
        let differ = "docs/c.md and docs/limitations.md differ on `KeyLog` as missing in C";
        assert_eq!(lists(manual, "- [C](c.md): nothing", ""), [differ]);
    }

    #[test]
    fn an_index_lists_every_document() {
        let readme = ("docs/adr/README.md", "[A](1-a.md)");
        let all = [readme, ("docs/adr/1-a.md", ""), ("docs/adr/2-b.md", "")];
        assert_eq!(
            found(|workspace| index(workspace, "docs/adr/"), &all),
            ["docs/adr/README.md does not list 2-b.md"]
        );
        assert!(found(|workspace| index(workspace, "docs/adr/"), &all[..2]).is_empty());
    }
}
