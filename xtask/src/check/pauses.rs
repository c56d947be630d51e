//! Pauses in tests: a test waits for a condition, with a deadline. Where a sleep is what the test is about, or the pause
//! between two looks at a condition, a comment says so.

use super::mask::mask;
use super::workspace::{File, Workspace, is_in_wing};

/// How the comment begins, on the sleep's line or the one above.
const COMMENT: &str = "// Pause: ";

/// Sleeps in tests without that comment.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    workspace.files.iter().flat_map(bare).collect()
}

fn bare(file: &File) -> Vec<String> {
    let path = file.path.as_str();
    if !is_in_wing(path) || !path.ends_with(".rs") {
        return Vec::new();
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let code = mask(&file.text);
    let code: Vec<&str> = code.lines().collect();
    let begin = if is_test_file(path) { 0 } else { inline_tests(&code).unwrap_or(code.len()) };
    let has_comment = |line: usize| lines.get(line).is_some_and(|line| line.contains(COMMENT));
    (begin..code.len())
        .filter(|&at| sleeps(code[at]) && !has_comment(at) && !(at > 0 && has_comment(at - 1)))
        .map(|at| {
            format!(
                "{path}:{} sleeps in a test: wait for a condition, or say why with `{COMMENT}...` above",
                at + 1
            )
        })
        .collect()
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The line of `mod tests {` after `#[cfg(test)]`.
fn inline_tests(code: &[&str]) -> Option<usize> {
    code.iter().position(|line| line.trim_start().starts_with("mod tests {"))
}

/// Calls a function named `sleep`; methods and definitions are others.
fn sleeps(line: &str) -> bool {
    line.match_indices("sleep(").any(|(at, _)| {
        let before = &line[..at];
        let is_method = before.ends_with('.');
        let is_longer_name = before.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        !is_method && !is_longer_name && !before.ends_with("fn ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        bare(&File { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn a_sleep_in_a_test_needs_its_reason() {
        let sleep = "fn f() {\n    std::thread::sleep(TIME);\n    tokio::time::sleep(TIME).await;\n}\n";
        assert_eq!(found("crates/a/tests/b.rs", sleep).len(), 2);
        assert_eq!(found("crates/a/src/b/tests.rs", sleep).len(), 2);
        assert!(found("crates/a/src/b.rs", sleep).is_empty());
        let inline = format!("{sleep}#[cfg(test)]\nmod tests {{\n    {sleep}}}\n");
        assert!(found("crates/a/src/b.rs", &inline)[0].starts_with("crates/a/src/b.rs:8 sleeps in a test"));
    }

    #[test]
    fn the_reason_is_on_the_line_or_above() {
        let above = "// Pause: the reader stalls.\nsleep(TIME);\n";
        assert!(found("crates/a/tests/b.rs", above).is_empty());
        assert!(found("crates/a/tests/b.rs", "sleep(TIME); // Pause: the pace of a camera.\n").is_empty());
        assert_eq!(found("crates/a/tests/b.rs", "// Pause: no.\n\nsleep(TIME);\n").len(), 1);
    }

    #[test]
    fn methods_definitions_and_texts_are_no_sleeps() {
        let text = "fn sleep() {}\nsender.sleep();\nfn_that_sleep();\n// sleep(1)\nlet a = \"sleep(1)\";\n";
        assert!(found("crates/a/tests/b.rs", text).is_empty());
    }
}
