//! Commands that documents name, between backticks or in a block of shell: their targets, tests and subcommands are there.

use super::claims::quoted;
use super::style;
use super::workspace::{File, Package, Workspace};

/// The programs with subcommands, and the files that list those.
const PROGRAMS: [(&str, &str); 3] = [
    ("freshwire", "crates/cli/src/main.rs"),
    ("freshwire-host", "host/command/src/main.rs"),
    ("freshwire-lab", "research/lab/src/main.rs"),
];

/// Texts of earlier days, labels of a protocol, and a list of words.
const LEFT_OUT: [&str; 3] = ["CHANGELOG.md", "spec/", "docs/style.md"];

/// Commands that name something that is not there.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let is_document = |path: &str| {
        path.ends_with(".md") && !style::is_dated(path) && !LEFT_OUT.iter().any(|one| path.starts_with(one))
    };
    let mut findings = Vec::new();
    for file in workspace.files.iter().filter(|file| is_document(&file.path)) {
        for command in commands(&file.text) {
            let why = match *command.as_slice() {
                ["make", ref words @ ..] => make(workspace, &file.path, words),
                ["cargo", "test", ref words @ ..] => cargo_test(workspace, words),
                [program, word, ..] => subcommand(workspace, program, word),
                _ => None,
            };
            findings.extend(why.map(|why| format!("{}: `{}`: {why}", file.path, command.join(" "))));
        }
    }
    findings
}

/// The commands of a document as words.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let mut lines = Vec::new();
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 0 {
            lines.extend(part.split("\n\n").flat_map(quoted));
        } else if let Some(block) = part.strip_prefix("sh\n") {
            lines.extend(block.lines());
        }
    }
    let lines = lines.into_iter().map(|line| line.split(" #").next().unwrap_or(line));
    lines.flat_map(|line| line.split(['|', '&', ';', '('])).map(words).collect()
}

/// The words of a command, without what is in front of the program: assignments, `sudo` and a path.
fn words(command: &str) -> Vec<&str> {
    let words = command.split_whitespace();
    let mut words: Vec<_> = words.skip_while(|word| word.contains('=') || *word == "sudo").collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or(program);
    }
    words
}

/// Whether a word names one thing, and is no option, setting, pattern or placeholder.
fn is_name(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | ':');
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(is_part)
}

/// Why `make` with these words fails: its file is that of `-C`, or one beside the document or in the root.
fn make(workspace: &Workspace, document: &str, words: &[&str]) -> Option<String> {
    let beside = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (folders, words) = match words {
        ["-C", folder, words @ ..] => (vec![*folder], words),
        words => (vec![beside, ""], words),
    };
    let of = |folder: &&str| workspace.file(format!("{folder}/Makefile").trim_start_matches('/'));
    let rules: Vec<&str> = folders.iter().filter_map(of).flat_map(str::lines).collect();
    let rules = rules.into_iter().filter(|line| !line.starts_with(['\t', '#']));
    let targets =
        rules.filter_map(|line| line.split_once(':')).flat_map(|(names, _)| names.split_whitespace());
    let targets: Vec<&str> = targets.collect();
    // A placeholder's folder has no file.
    let missing =
        words.iter().find(|word| is_name(word) && !targets.contains(word) && !targets.is_empty())?;
    Some(format!("there is no target {missing}"))
}

/// Why `cargo test` with these words runs nothing.
fn cargo_test(workspace: &Workspace, words: &[&str]) -> Option<String> {
    let (mut package, mut test, mut filter) = (None, None, None);
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "-p" | "--package" => package = words.next(),
            "--test" => test = words.next(),
            "--features" | "--exclude" | "--example" | "--bin" => drop(words.next()),
            word if is_name(word) => filter = filter.or(Some(word)),
            _ => {}
        }
    }
    if [package, test].into_iter().flatten().any(|word| !is_name(word)) {
        return None;
    }
    let fits = |one: &&Package| package.is_none_or(|name| one.name == name);
    let packages: Vec<&Package> = workspace.packages.iter().filter(fits).collect();
    if packages.is_empty() {
        return Some(format!("there is no package {}", package.unwrap_or_default()));
    }
    if let Some(test) =
        test.filter(|test| !packages.iter().any(|one| one.tests.iter().any(|own| own == test)))
    {
        return Some(format!("there is no test {test}"));
    }
    let part = filter?.rsplit("::").next()?;
    let folders =
        packages.iter().map(|one| format!("{}{}", one.folder, if test.is_some() { "tests/" } else { "" }));
    let folders: Vec<String> = folders.collect();
    let is_there = workspace.files.iter().any(|file| {
        folders
            .iter()
            .any(|folder| file.path.strip_prefix(folder.as_str()).is_some_and(|path| path.contains(part)))
            || folders.iter().any(|folder| file.path.starts_with(folder)) && has_test(file, part)
    });
    (!is_there).then(|| format!("no test there has {part} in its name"))
}

/// Whether a source has a function with this in its name.
fn has_test(file: &File, part: &str) -> bool {
    let name = |rest: &str| rest.split('(').next().is_some_and(|name| name.contains(part));
    file.path.ends_with(".rs") && file.text.split("fn ").skip(1).any(name)
}

/// Why a program of ours does not take this word.
fn subcommand(workspace: &Workspace, program: &str, word: &str) -> Option<String> {
    let (_, path) = PROGRAMS.iter().find(|(name, _)| *name == program)?;
    let list = workspace.file(path)?.split("enum Command {").nth(1)?.split("\n}").next()?;
    // Variants are indented once, their fields and attributes are not or more.
    let variants = list.lines().filter_map(|line| line.strip_prefix("    "));
    let variants = variants.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    let is_it = |line: &str| {
        line.split(|c: char| !c.is_ascii_alphanumeric()).next().map(kebab).as_deref() == Some(word)
    };
    let is_known = !is_name(word) || word == "help" || variants.into_iter().any(is_it);
    (!is_known).then(|| format!("{path} has no subcommand {word}"))
}

/// The name that clap gives to a variant.
fn kebab(variant: &str) -> String {
    let dashed = |(at, c): (usize, char)| {
        let dash = (at > 0 && c.is_ascii_uppercase()).then_some('-');
        dash.into_iter().chain(std::iter::once(c.to_ascii_lowercase()))
    };
    variant.char_indices().flat_map(dashed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let package = |name: &str, folder: &str, tests: &[&str]| Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
            ..Package::default()
        };
        let file = |(path, text): (&str, &str)| File { path: path.to_owned(), text: text.to_owned() };
        let main = "enum Command {\n    /// Serve.\n    Serve(Args),\n    AckFilter {\n        Size: u8,\n    },\n}\nOther";
        let files = [
            (path, text),
            ("Makefile", ".PHONY: gone\nall test-all: build ## gone:\n\techo gone: x\nbuild:\n"),
            ("lib/Makefile", "install: all\n"),
            ("crates/cli/src/main.rs", main),
            ("crates/cli/tests/cli.rs", "fn it_serves_many() {}"),
            ("crates/cli/src/lib.rs", "fn one() {}"),
        ];
        findings(&Workspace {
            packages: vec![
                package("freshwire-cli", "crates/cli/", &["cli"]),
                package("other", "other/", &["its"]),
            ],
            files: files.into_iter().map(file).collect(),
            ..Workspace::default()
        })
    }

    #[test]
    fn commands_name_what_is_there() {
        for right in [
            "`make test-all`, `make all STEPS=\"gone x\"`, `make -C lib install`, `make -C FOLDER gone`",
            "`cargo test -p freshwire-cli --test\ncli serves`, `cargo test -p CRATE`, `cargo test`",
            "`cargo test --test its`, `cargo test -p freshwire-cli one`, `cargo test -p freshwire-cli cli::it_serves`",
            "`freshwire serve gone` `freshwire --gone` `freshwire ack-filter` `freshwire NAME` `freshwire`",
            "make gone\n```text\nmake gone\n```\n`other gone`",
            "```sh\nA=b sudo make all  # gone; make gone\nx/freshwire serve && make build\n```",
        ] {
            assert_eq!(found("docs/a.md", right), Vec::<String>::new(), "{right}");
        }
        for (wrong, why) in [
            ("`make gone`", "there is no target gone"),
            ("`make all gone`", "there is no target gone"),
            ("`make install`", "there is no target install"),
            ("`make -C lib build`", "there is no target build"),
            ("`cargo test -p gone`", "there is no package gone"),
            ("`cargo test -p freshwire-cli --test its`", "there is no test its"),
            ("`cargo test --test gone`", "there is no test gone"),
            ("`cargo test -p freshwire-cli --test cli one`", "no test there has one in its name"),
            ("`cargo test -p freshwire-cli gone`", "no test there has gone in its name"),
            ("`freshwire gone`", "crates/cli/src/main.rs has no subcommand gone"),
            ("`freshwire size`", "crates/cli/src/main.rs has no subcommand size"),
            (
                "```sh\nfreshwire serve | x/freshwire gone\n```",
                "crates/cli/src/main.rs has no subcommand gone",
            ),
        ] {
            let found = found("docs/a.md", wrong);
            assert!(found.len() == 1 && found[0].ends_with(why), "{wrong}: {found:?}");
        }
        assert_eq!(found("lib/README.md", "`make install`, `make build`"), Vec::<String>::new());
        for path in ["docs/style.md", "CHANGELOG.md", "spec/a.md", "docs/adr/1.md", "a.txt"] {
            assert_eq!(found(path, "`make gone`"), Vec::<String>::new(), "{path}");
        }
    }
}
