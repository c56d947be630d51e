//! Each name of Rust in an error's text of the crates below has one of C, which `common/names.rs` puts in its place.

use std::collections::BTreeSet;
use std::path::Path;

/// Crates whose errors reach C.
const BELOW: [&str; 10] = [
    "bindings/c",
    "crates/a1",
    "crates/choice",
    "crates/freshwire",
    "crates/io",
    "crates/link",
    "crates/media",
    "crates/netns",
    "crates/record",
    "crates/ring",
];

/// Code before the text of an error.
const BEGINNINGS: [&str; 5] =
    ["#[error(", "Failure::new(", "Failure::invalid(", "Failure::invalid(format!(", "format!("];

fn files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(std::fs::read_to_string(&path).expect("text"));
        }
    }
}

/// The texts of errors in a source.
fn texts(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for beginning in BEGINNINGS {
        for (at, _) in source.match_indices(beginning) {
            let rest = source[at + beginning.len()..].trim_start();
            let Some(rest) = rest.strip_prefix('"') else { continue };
            let mut is_escaped = false;
            let end = rest.find(|letter| {
                let is_end = letter == '"' && !is_escaped;
                is_escaped = letter == '\\' && !is_escaped;
                is_end
            });
            found.extend(end.map(|end| &rest[..end]));
        }
    }
    found
}

/// Paths of Rust in a text, outside its placeholders.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let plain = text.split('{').enumerate().filter_map(|(at, part)| {
        if at == 0 { Some(part) } else { part.split_once('}').map(|(_, rest)| rest) }
    });
    let words = plain.flat_map(move |part| part.split(move |letter| !is_name(letter)));
    words.map(|word| word.trim_matches(':')).filter(|word| word.contains("::"))
}

#[test]
fn messages_have_names_of_c() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let names = std::fs::read_to_string(root.join("bindings/c/src/common/names.rs")).expect("text");
    let (_, table) = names.split_once("const NAMES").expect("the list");
    let (table, _) = table.split_once("];").expect("its end");
    let named: BTreeSet<&str> =
        table.split("(\"").skip(1).filter_map(|entry| entry.split_once('"')).map(|(name, _)| name).collect();
    let mut sources = Vec::new();
    for name in BELOW {
        files(&root.join(name).join("src"), &mut sources);
    }
    let found: BTreeSet<&str> = sources.iter().flat_map(|source| texts(source)).flat_map(paths).collect();
    assert!(named.len() >= 7, "the list was found: {named:?}");
    assert_eq!(found, named);
}
