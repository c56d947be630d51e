//! The numbered rules of `spec/`, and the code that cites them. A citation is a comment above the code that
//! enforces a rule, or above the test that proves it. It is `//=`, the path of the specification, and names
//! of rules such as R-ORDER-1, R-ATTACH-1..4. C cites a rule by its name alone.

use std::collections::BTreeSet;

use super::mask::mask;
use super::workspace::{File, Workspace};

/// Rules that nothing cites, and citations of rules that are not there.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let specs: Vec<Spec> = workspace.files.iter().filter_map(Spec::read).collect();
    let mut findings = Vec::new();
    let mut cited = BTreeSet::new();
    for file in &workspace.files {
        for citation in citations(file, &specs) {
            let place = format!("{}:{}", file.path, citation.line);
            match specs.iter().find(|spec| spec.path == citation.spec) {
                None => findings.push(format!("{place} cites {}, which is not there", citation.spec)),
                Some(spec) if !spec.rules.contains(&citation.rule) => {
                    findings
                        .push(format!("{place} cites {}, which {} does not have", citation.rule, spec.path));
                }
                Some(_) if citation.counts => {
                    cited.insert((citation.spec, citation.rule));
                }
                Some(_) => {}
            }
        }
    }
    for spec in &specs {
        findings.extend(spec.twice.iter().map(|rule| format!("{} has {rule} twice", spec.path)));
        let uncited = spec.rules.iter().filter(|rule| !cited.contains(&(spec.path.clone(), (*rule).clone())));
        findings.extend(uncited.map(|rule| {
            format!(
                "{0} {rule} is cited nowhere: put `//= {0} {rule}` above what enforces or proves it",
                spec.path
            )
        }));
    }
    findings
}

/// A text of `spec/` with its rules.
struct Spec {
    path: String,
    /// What its rules' names begin with, such as `R-`; none if they are bare numbers.
    prefixes: BTreeSet<String>,
    rules: BTreeSet<String>,
    twice: Vec<String>,
}

impl Spec {
    fn read(file: &File) -> Option<Self> {
        let path = file.path.clone();
        let is_spec = path.starts_with("spec/") && path.ends_with(".md");
        let mut spec = Self { path, prefixes: BTreeSet::new(), rules: BTreeSet::new(), twice: Vec::new() };
        for rule in file.text.lines().filter(|_| is_spec).filter_map(rule_of) {
            if let Some((first, _)) = rule.split_once('-') {
                spec.prefixes.insert(format!("{first}-"));
            }
            if !spec.rules.insert(rule.to_owned()) {
                spec.twice.push(rule.to_owned());
            }
        }
        is_spec.then_some(spec)
    }
}

/// The rule that begins in this line: `- **R-ORDER-1 publish.** ...`, or `12. ...`.
fn rule_of(line: &str) -> Option<&str> {
    match line.strip_prefix("- **") {
        Some(rest) => name_at(rest),
        None => line.split_once(". ").map(|(number, _)| number).filter(|number| is_number(number)),
    }
}

/// The name that a text begins with: `R-ORDER-1`.
fn name_at(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(text.len());
    let name = &text[..end];
    let (head, number) = name.rsplit_once('-')?;
    let is_name = head.contains('-') && head.chars().all(|c| !c.is_ascii_lowercase());
    (is_name && is_number(number)).then_some(name)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[derive(Debug, PartialEq)]
struct Citation {
    line: usize,
    spec: String,
    rule: String,
    /// Whether the rule is cited by it, rather than spoken of.
    counts: bool,
}

fn citations(file: &File, specs: &[Spec]) -> Vec<Citation> {
    let is_rust = file.path.ends_with(".rs");
    let is_c = file.path.ends_with(".c") || file.path.ends_with(".h");
    let masked = if is_rust { mask(&file.text) } else { String::new() };
    let mut masked = masked.lines();
    let mut citations = Vec::new();
    for (line, text) in (1..).zip(file.text.lines()) {
        let code = masked.next().unwrap_or_default();
        let formal = is_rust.then(|| formal(text, code)).flatten();
        if let Some((spec, rules)) = formal {
            let rules = rules.split(", ").flat_map(expand);
            citations.extend(rules.map(|rule| Citation { line, spec: spec.to_owned(), rule, counts: true }));
            continue;
        }
        for spec in specs {
            for name in spec.prefixes.iter().flat_map(|prefix| names(text, prefix)) {
                let (spec, rule) = (spec.path.clone(), name.to_owned());
                citations.push(Citation { line, spec, rule, counts: is_c });
            }
        }
    }
    citations
}

/// The specification and the list of rules that a comment cites. Where `code` is blank, `text` is a comment.
fn formal<'a>(text: &'a str, code: &str) -> Option<(&'a str, &'a str)> {
    let (before, after) = text.split_once(MARK)?;
    let is_comment = code.chars().nth(before.chars().count()) == Some(' ');
    after.trim_end().split_once(' ').filter(|_| is_comment)
}

/// The rules of one entry of a list: `R-ATTACH-1..4` is four.
fn expand(entry: &str) -> Vec<String> {
    let range = entry.split_once("..").and_then(|(first, last)| {
        let (head, first) = first.rsplit_once('-').map_or(("", first), |(head, first)| (head, first));
        Some((head, first.parse::<u32>().ok()?, last.parse::<u32>().ok()?))
    });
    match range {
        Some((head, first, last)) => {
            let head = if head.is_empty() { String::new() } else { format!("{head}-") };
            (first..=last.min(first + MOST)).map(|number| format!("{head}{number}")).collect()
        }
        None => vec![entry.to_owned()],
    }
}

/// Names that begin with `prefix` where no other word ends.
fn names<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(prefix).filter_map(move |(at, _)| {
        let ends_word = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_');
        if ends_word { None } else { name_at(&text[at..]) }
    })
}

const MARK: &str = "//= ";
/// Rules that a range may name.
const MOST: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(spec: &str, code: &[(&str, &str)]) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let mut files = vec![file("spec/x.md", spec)];
        files.extend(code.iter().map(|(path, text)| file(path, text)));
        findings(&Workspace { files, ..Workspace::default() })
    }

    const SPEC: &str = "# X\n- **T-ONE-1 name.** It MUST.\n- **T-ONE-2** See T-ONE-1.\n- **T-TWO-1** Also.\n- **Bold** is no rule.\n";

    #[test]
    fn every_rule_is_cited_somewhere() {
        let all = "/// It does. //= spec/x.md T-ONE-1..2\nfn f() {}\n//= spec/x.md T-TWO-1\nfn g() {}\n";
        assert!(found(SPEC, &[("a.rs", all)]).is_empty());
        let one = "//= spec/x.md T-ONE-1, T-TWO-1\nfn f() {}\n";
        let missing = "spec/x.md T-ONE-2 is cited nowhere: put `//= spec/x.md T-ONE-2` above what enforces or proves it";
        assert_eq!(found(SPEC, &[("a.rs", one)]), [missing]);
        assert!(found(SPEC, &[("a.rs", one), ("b.c", "/* T-ONE-2: why */")]).is_empty(), "C names it");
        for elsewhere in [("b.rs", "// T-ONE-2"), ("b.md", "T-ONE-2")] {
            assert_eq!(found(SPEC, &[("a.rs", one), elsewhere]), [missing], "it is spoken of, not cited");
        }
        assert_eq!(
            found(SPEC, &[("a.rs", one), ("b.rs", "let x = \"//= spec/x.md T-ONE-2\";")]),
            [missing],
            "a text in code is no citation"
        );
    }

    #[test]
    fn a_cited_rule_must_exist() {
        let all = ("a.rs", "//= spec/x.md T-ONE-1, T-ONE-2, T-TWO-1");
        let wrong = |path: &str, text: &str| found(SPEC, &[all, (path, text)]);
        let sentence =
            |path: &str, rule: &str| vec![format!("{path}:1 cites {rule}, which spec/x.md does not have")];
        assert_eq!(wrong("b.rs", "//= spec/x.md T-ONE-1, T-ONE-3"), sentence("b.rs", "T-ONE-3"));
        assert_eq!(wrong("b.rs", "//= spec/x.md T-TWO-1..2"), sentence("b.rs", "T-TWO-2"));
        assert_eq!(wrong("b.rs", "// as T-ONE-9 says"), sentence("b.rs", "T-ONE-9"));
        assert_eq!(wrong("b.h", "/* T-ONE-9 */"), sentence("b.h", "T-ONE-9"));
        assert_eq!(wrong("b.md", "T-TEN-1, and NOT-ONE-9"), sentence("b.md", "T-TEN-1"));
        assert_eq!(wrong("b.rs", "//= spec/y.md T-ONE-1"), ["b.rs:1 cites spec/y.md, which is not there"]);
    }

    #[test]
    fn bare_numbers_are_rules_too_and_a_rule_exists_once() {
        let spec = "1. It MUST.\n2. It SHOULD.\n12. And.\n\n3 of these, 1.5 times.\n";
        assert!(found(spec, &[("a.rs", "//= spec/x.md 1..2, 12")]).is_empty());
        assert_eq!(
            found(spec, &[("a.rs", "//= spec/x.md 1..3, 12")]),
            ["a.rs:1 cites 3, which spec/x.md does not have"]
        );
        assert_eq!(found("1. A.\n1. B.\n", &[("a.rs", "//= spec/x.md 1")]), ["spec/x.md has 1 twice"]);
    }
}
