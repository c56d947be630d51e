//! The style of text: `docs/style.md`. Sentences of documents, specifications, comments, error messages and
//! configuration are short and free of listed words. Names in code are free of these words too. Names of
//! tests and some documents have a size. Links lead somewhere.

mod extract;
mod sentence;

use std::collections::BTreeSet;

use super::workspace::{File, Workspace};
use extract::Text;

/// Words of the longest sentence.
const MOST_WORDS: usize = 30;

/// Words and phrases that the style sheet rejects, in lower case.
const REJECTED: &[&str] = &[
    "begun",
    "told",
    "of late",
    "in vain",
    "so many",
    "stands",
    "grown old",
    "grows old",
    "make up for",
    "makes up for",
    "the documents",
    "the document's",
    "seed 000",
    "seed 001",
    "seed 002",
    "seed 003",
    "seed 004",
];

/// How no sentence begins, in lower case.
const BEGINNINGS: &[&str] = &["who", "what is", "what was", "what has", "of", "those", "whoever", "so many"];

/// Characters of a test's name.
const MOST_OF_TEST_NAME: usize = 60;
/// First words that no test's name has: a noun tells what is tested.
const TEST_BEGINNINGS: &[&str] = &["who", "whom", "whoever", "what", "whatever"];

/// Documents with a limit of words.
const MOST_OF_DOCUMENT: &[(&str, usize)] =
    &[("README.md", 750), ("ARCHITECTURE.md", 2000), ("docs/benchmarks.md", 1500)];
/// Lines of the changelog.
const MOST_OF_CHANGELOG: usize = 60;

/// Folders whose text keeps its date: what was written then is not rewritten.
const DATED: &[&str] = &["docs/lab-notebook/", "docs/adr/"];

/// Text that breaks a rule of the style sheet.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let mut findings = sizes(workspace);
    let paths = paths(&workspace.files);
    for file in &workspace.files {
        let found = texts(file).into_iter().flat_map(|text| faults(&text));
        let found = found.chain(faults_of_names(file));
        let found = found.map(|(line, fault)| format!("{}:{line} {fault}", file.path));
        findings.extend(found);
        if file.path.ends_with(".md") {
            findings.extend(broken_links(file, &paths));
        }
    }
    findings
}

pub(super) fn is_dated(path: &str) -> bool {
    DATED.iter().any(|folder| path.starts_with(folder))
}

fn texts(file: &File) -> Vec<Text> {
    let path = file.path.as_str();
    if is_dated(path) {
        Vec::new()
    } else if path.ends_with(".md") {
        extract::markdown(&file.text)
    } else if path.starts_with("packaging/") && path.ends_with(".toml") {
        extract::comments_of_configuration(&file.text)
    } else if path.ends_with(".rs") {
        let mut texts = extract::errors(&file.text);
        texts.extend(extract::comments(&file.text));
        texts
    } else {
        Vec::new()
    }
}

/// Faults of the sentences of a text.
fn faults(text: &Text) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    for sentence in sentence::split(&text.words) {
        let words = sentence::words(&sentence);
        let begin: String = sentence.chars().take(60).collect();
        if words.len() > MOST_WORDS {
            faults.push(format!("has a sentence of {} words: \"{begin}...\"", words.len()));
        }
        // The name of the idea is no date.
        let plain = format!(" {} ", words.join(" ")).replace(" of late data choice ", " of data choice ");
        let rejected = REJECTED.iter().filter(|phrase| plain.contains(&format!(" {phrase} ")));
        faults.extend(rejected.map(|phrase| format!("says \"{phrase}\": \"{begin}...\"")));
        let starts = BEGINNINGS.iter().filter(|start| plain.starts_with(&format!(" {start} ")));
        faults.extend(starts.map(|start| format!("begins a sentence with \"{start}\": \"{begin}...\"")));
    }
    faults.into_iter().map(|fault| (text.line, fault)).collect()
}

/// Faults of the names in a Rust file.
fn faults_of_names(file: &File) -> Vec<(usize, String)> {
    if !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for Text { line, words } in extract::identifiers(&file.text) {
        let spaced = format!(" {words} ");
        let rejected = REJECTED.iter().filter(|phrase| spaced.contains(&format!(" {phrase} ")));
        faults.extend(rejected.map(|phrase| (line, format!("has a name with \"{phrase}\": {words}"))));
    }
    for (line, name) in extract::tests(&file.text) {
        let len = name.len();
        if len > MOST_OF_TEST_NAME {
            let fault = format!(
                "names a test with {len} characters, at most {MOST_OF_TEST_NAME} are allowed: {name}"
            );
            faults.push((line, fault));
        }
        if TEST_BEGINNINGS.contains(&name.split('_').next().unwrap_or_default()) {
            faults.push((line, format!("names a test by a question: {name}")));
        }
    }
    faults
}

fn sizes(workspace: &Workspace) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, most) in MOST_OF_DOCUMENT {
        match workspace.file(path).map(words_of) {
            None => findings.push(format!("{path} is missing")),
            Some(words) if words > *most => {
                findings.push(format!("{path} has {words} words, at most {most} are allowed"))
            }
            Some(_) => {}
        }
    }
    let lines = workspace.file("CHANGELOG.md").unwrap_or_default().lines().count();
    if lines > MOST_OF_CHANGELOG {
        findings.push(format!("CHANGELOG.md has {lines} lines, at most {MOST_OF_CHANGELOG} are allowed"));
    }
    findings
}

/// Words and numbers of a document; markup is none.
fn words_of(text: &str) -> usize {
    text.split_whitespace().filter(|token| token.contains(char::is_alphanumeric)).count()
}

/// All files and folders.
fn paths(files: &[File]) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for file in files {
        let mut path = file.path.as_str();
        paths.insert(path.to_owned());
        while let Some((folder, _)) = path.rsplit_once('/') {
            paths.insert(folder.to_owned());
            path = folder;
        }
    }
    paths
}

/// Links to files of the workspace that are not there. Pictures are no text files, so what a picture shows is not looked for.
fn broken_links(file: &File, paths: &BTreeSet<String>) -> Vec<String> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    extract::links(&file.text)
        .into_iter()
        .filter(|link| !link.contains("://") && !link.starts_with('#') && !link.ends_with(".jpg"))
        .filter_map(|link| {
            let target = link.split('#').next().unwrap_or_default();
            let path = resolve(folder, target)?;
            (!paths.contains(&path)).then(|| format!("{} links to {link}, which is not there", file.path))
        })
        .collect()
}

/// The path that a relative link means; `None` if it is the workspace's root.
pub(super) fn resolve(folder: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let mut files: Vec<File> = MOST_OF_DOCUMENT.iter().map(|(path, _)| file(path, "Short.")).collect();
        files.retain(|file| file.path != path);
        files.push(file(path, text));
        findings(&Workspace { files, ..Workspace::default() })
    }

    #[test]
    fn a_sentence_has_thirty_words_at_most() {
        let thirty = format!("{}end.", "word ".repeat(29));
        assert!(found("docs/a.md", &thirty).is_empty());
        let more = format!("Short.\n\nword {thirty}");
        let found = found("docs/a.md", &more);
        assert!(
            matches!(&found[..], [one] if one.starts_with("docs/a.md:3 has a sentence of 31 words")),
            "{found:?}"
        );
    }

    #[test]
    fn listed_words_are_found_outside_code() {
        assert!(found("docs/a.md", "It was `begun`, untold.\n\n```\nso many\n```\n").is_empty());
        assert_eq!(
            found("docs/a.md", "A record is begun."),
            ["docs/a.md:1 says \"begun\": \"A record is begun....\""]
        );
        assert_eq!(found("docs/a.md", "| a | b |\n|---|---|\n| x | lost of\n| y | in vain |").len(), 1);
        assert_eq!(found("spec/a.md", "Fine. Who sends, waits. What is sent, is gone.").len(), 2);
    }

    #[test]
    fn errors_and_configuration_are_text_as_well() {
        let error = "#[error(\n    \"in \\\n     vain\"\n)]\nstruct A;\n#[error(\"fine: {0}\")]\n";
        assert_eq!(
            found("crates/a/src/lib.rs", error),
            ["crates/a/src/lib.rs:1 says \"in vain\": \"in vain...\""]
        );
        assert_eq!(found("packaging/a.toml", "# Is told.\na = 1 # fine\n# b = \"told\"\n").len(), 1);
        assert!(found("docs/adr/1.md", "It was begun.").is_empty());
    }

    #[test]
    fn comments_of_any_rust_file_are_text() {
        let code = "/// Was told.\nfn f() {\n    // It stands.\n}\n";
        for path in ["crates/freshwire/src/a.rs", "bindings/c/tests/a.rs", "xtask/src/a.rs"] {
            let expected = ["1 says \"told\": \"Was told....\"", "3 says \"stands\": \"It stands....\""];
            assert_eq!(found(path, code), expected.map(|found| format!("{path}:{found}")));
        }
    }

    #[test]
    fn no_sentence_begins_like_a_riddle() {
        for begin in ["Of", "Those", "Whoever", "So many", "Who", "What is"] {
            let code = format!("// Fine. {begin} that. Sum of those, so far.\n");
            assert_eq!(
                found("crates/a/src/a.rs", &code).len(),
                1 + usize::from(begin == "So many"),
                "{begin}"
            );
        }
    }

    #[test]
    fn names_have_no_listed_words_and_those_of_tests_a_size() {
        let code = "let untold = bytes_begun + IsTold; // `begun`\n";
        let expected = ["begun\": bytes begun", "told\": is told"];
        assert_eq!(
            found("crates/a/src/a.rs", code),
            expected.map(|found| format!("crates/a/src/a.rs:1 has a name with \"{found}"))
        );
        let name = "a".repeat(61);
        let code =
            format!("fn {name}() {{}}\n#[test]\nfn {}() {{}}\n#[test]\nfn {name}() {{}}\n", &name[1..]);
        let found = found("crates/a/tests/a.rs", &code);
        assert!(
            matches!(&found[..], [one] if one.starts_with("crates/a/tests/a.rs:5 names a test with 61 characters")),
            "{found:?}"
        );
        let code = "#[test]\nfn what_is_sent_arrives() {}\n#[test]\nfn it_is_what_it_is() {}\n";
        assert_eq!(
            self::found("crates/a/src/a.rs", code),
            ["crates/a/src/a.rs:2 names a test by a question: what_is_sent_arrives"]
        );
    }

    #[test]
    fn links_and_sizes_are_checked() {
        assert_eq!(found("docs/a.md", "[b](b.md) [c](../docs/a.md#x) [d](https://example.org)").len(), 1);
        assert!(found("docs/a.md", "[root](../README.md), [folder](../docs)").is_empty());
        assert_eq!(
            found("README.md", &"Word. | ".repeat(751)),
            ["README.md has 751 words, at most 750 are allowed"]
        );
        assert_eq!(found("CHANGELOG.md", &"\n".repeat(61)).len(), 1);
    }
}
