//! Every block of code in a document is run by a test, or has a reason in `xtask/documents.txt` why it is
//! not.

use super::workspace::Workspace;
use crate::documents::{Block, Entry, TABLE, blocks, parse};

/// Languages whose blocks are run. `text` is for drawings and output.
const RUN: &[&str] = &["sh", "toml", "js", "python", "c", "cmake", "rust", "nginx", "ini", "html", "yaml"];
const SHOWN: &[&str] = &["text"];

/// The fields of an entry.
const FIELDS: &[&str] = &["except", "how", "before", "wrap", "check", "long", "needs"];

/// Blocks without an entry, and entries without a block.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let entries = match parse(workspace.file(TABLE).unwrap_or_default()) {
        Ok(entries) => entries,
        Err(error) => return vec![error],
    };
    let is_document = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        match parts.as_slice() {
            ["README.md" | "SECURITY.md" | "CONTRIBUTING.md"] => true,
            ["docs", name] => name.ends_with(".md"),
            ["crates" | "bindings" | "host" | "research" | "packaging", .., "README.md"] => true,
            _ => false,
        }
    };
    let mut documents = Vec::new();
    for file in workspace.files.iter().filter(|file| is_document(&file.path)) {
        // Rust's own tool compiles the Rust of a document that is part of a crate's documentation; an entry may run it.
        let is_doc_tested = workspace
            .files
            .iter()
            .any(|other| other.path.ends_with(".rs") && includes(&other.path, &other.text, &file.path));
        let is_listed = |block: &Block| {
            entries.iter().any(|entry| entry.document == file.path && block.text.starts_with(&entry.begin))
        };
        let blocks = blocks(&file.text)
            .into_iter()
            .filter(|block| !(block.language == "rust" && is_doc_tested) || is_listed(block));
        documents.push((file.path.as_str(), blocks.collect()));
    }
    compare(&documents, &entries)
}

/// Whether a source includes a document in its documentation.
fn includes(source: &str, text: &str, document: &str) -> bool {
    let folder = source.rsplit_once('/').map_or("", |(folder, _)| folder);
    text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next()).any(|path| {
        let mut parts: Vec<&str> = folder.split('/').collect();
        for part in path.split('/') {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        parts.join("/") == document
    })
}

fn compare(documents: &[(&str, Vec<Block>)], entries: &[Entry]) -> Vec<String> {
    let mut findings = Vec::new();
    for (document, blocks) in documents {
        for block in blocks.iter().filter(|block| !SHOWN.contains(&block.language.as_str())) {
            let first = block.text.lines().next().unwrap_or_default();
            let place = format!("{document}:{}", block.line);
            if !RUN.contains(&block.language.as_str()) {
                findings.push(format!(
                    "{place} is a block of the language \"{}\": use one of {RUN:?}, or `text`",
                    block.language
                ));
                continue;
            }
            let of_block = entries
                .iter()
                .filter(|entry| entry.document == *document && block.text.starts_with(&entry.begin))
                .count();
            if of_block != 1 {
                findings.push(format!("{place} has {of_block} entries in {TABLE}: add one that begins with `{document}: {first}`"));
            }
        }
    }
    for entry in entries {
        let place = format!("{TABLE}:{}", entry.line);
        let blocks = documents
            .iter()
            .filter(|(document, _)| *document == entry.document)
            .flat_map(|(_, blocks)| blocks);
        let count = blocks.filter(|block| block.text.starts_with(&entry.begin)).count();
        if count != 1 {
            findings.push(format!(
                "{place} fits {count} blocks of {}: give the beginning of one",
                entry.document
            ));
        }
        if let Some((name, _, _)) = entry.fields.iter().find(|(name, _, _)| !FIELDS.contains(&name.as_str()))
        {
            findings.push(format!("{place} has an unknown field {name}"));
        }
        let is_except = entry.field("except").is_some_and(|reason| !reason.is_empty());
        // Without a check an exit status of 0 would be all.
        let is_run = entry.field("check").is_some() || entry.field("how") == Some("options");
        if is_except == is_run {
            findings.push(format!(
                "{place} needs either `check`, with what the block brings about, or `except` with a reason"
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(document: &str, table: &str) -> Vec<String> {
        compare(&[("a.md", blocks(document))], &parse(table).expect("a table"))
    }

    #[test]
    fn a_block_needs_an_entry_and_an_entry_a_block() {
        let document = "```sh\nfreshwire one\n```\n```text\ndrawing\n```\n```rust\nfn f() {}\n```\n";
        let rest = "a.md: fn f\n    except: a part of a program\n";
        assert_eq!(
            compared(document, &format!("a.md: freshwire one\n    check: true\n{rest}")),
            Vec::<String>::new()
        );
        assert_eq!(
            compared(document, rest),
            ["a.md:2 has 0 entries in xtask/documents.txt: add one that begins with `a.md: freshwire one`"]
        );
        let gone = format!("a.md: freshwire one\n    check: true\n{rest}a.md: gone\n    check: true\n");
        assert_eq!(
            compared(document, &gone),
            ["xtask/documents.txt:5 fits 0 blocks of a.md: give the beginning of one"]
        );
    }

    #[test]
    fn an_entry_asserts_something_or_says_why_not() {
        for (entry, is_right) in [
            ("    how: lasts\n", false),
            ("    except:\n", false),
            ("    how: options\n", true),
            ("    check: true\n    except: x\n", false),
            ("    check: true\n", true),
        ] {
            let found = compared("```sh\nx\n```\n", &format!("a.md: x\n{entry}"));
            assert_eq!(found.is_empty(), is_right, "{entry}: {found:?}");
        }
        assert_eq!(compared("```\nx\n```\n", "").len(), 1);
    }

    #[test]
    fn an_included_document_is_doc_tested() {
        let source = "#[doc = include_str!(\"../../../docs/guide.md\")]";
        assert!(includes("crates/freshwire/src/lib.rs", source, "docs/guide.md"));
        assert!(!includes("crates/freshwire/src/lib.rs", source, "docs/push.md"));
    }
}
