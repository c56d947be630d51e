//! Where text is: in Markdown outside code, in comments of configuration and of Rust, in error messages, in names.

use crate::check::mask::mask;

/// A paragraph, an item, a cell or a message without markup, and the line on which it begins.
#[derive(Debug, PartialEq)]
pub(super) struct Text {
    pub(super) line: usize,
    pub(super) words: String,
}

/// Collects lines into texts.
#[derive(Default)]
struct Texts {
    done: Vec<Text>,
    line: usize,
    lines: Vec<String>,
}

impl Texts {
    fn add(&mut self, line: usize, text: &str) {
        if self.lines.is_empty() {
            self.line = line;
        }
        self.lines.push(text.to_owned());
    }

    fn end(&mut self) {
        if !self.lines.is_empty() {
            let words = without_markup(&std::mem::take(&mut self.lines).join(" "));
            self.done.push(Text { line: self.line, words });
        }
    }

    fn finish(mut self) -> Vec<Text> {
        self.end();
        self.done
    }
}

/// Paragraphs, items, headings and cells of a Markdown document.
pub(super) fn markdown(document: &str) -> Vec<Text> {
    let mut texts = Texts::default();
    let mut in_code = false;
    for (line, text) in (1..).zip(document.lines()) {
        let text = text.trim();
        if text.starts_with("```") {
            texts.end();
            in_code = !in_code;
        } else if in_code {
        } else if text.is_empty() || text.starts_with("![") {
            texts.end();
        } else if text.starts_with('|') {
            texts.end();
            for cell in text.trim_matches('|').split('|') {
                texts.add(line, cell);
                texts.end();
            }
        } else if let Some(heading) = text.strip_prefix('#') {
            texts.end();
            texts.add(line, heading.trim_start_matches('#'));
            texts.end();
        } else {
            if begins_item(text) {
                texts.end();
            }
            texts.add(line, text);
        }
    }
    texts.finish()
}

/// Whether a line begins an item of a list: `- `, `* `, `12. `.
fn begins_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ")
        || line.starts_with("* ")
        || (number.len() < line.len() && number.starts_with(". "))
}

/// Comments of a TOML file, without settings that are commented out.
pub(super) fn comments_of_configuration(file: &str) -> Vec<Text> {
    let mut texts = Texts::default();
    for (line, text) in (1..).zip(file.lines()) {
        match text.trim().strip_prefix('#') {
            Some(comment) if !is_setting(comment.trim()) => texts.add(line, comment),
            _ => texts.end(),
        }
    }
    texts.finish()
}

/// `name = value`, or the head of a table.
fn is_setting(comment: &str) -> bool {
    let name = comment.split(' ').next().unwrap_or_default();
    let is_assignment = comment.strip_prefix(name).is_some_and(|rest| rest.starts_with(" = "));
    is_assignment || comment.starts_with('[')
}

/// The messages of `#[error("...")]`.
pub(super) fn errors(code: &str) -> Vec<Text> {
    let mut texts = Texts::default();
    for (at, _) in code.match_indices("#[error(") {
        let rest = code[at + "#[error(".len()..].trim_start();
        if let Some(message) = rest.strip_prefix('"').and_then(string) {
            texts.add(code[..at].matches('\n').count() + 1, &message);
            texts.end();
        }
    }
    texts.finish()
}

/// A string's content up to its closing quotation mark, its continued lines joined.
fn string(rest: &str) -> Option<String> {
    let mut content = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(content),
            '\\' => match chars.next()? {
                '\n' => chars = chars.as_str().trim_start().chars(),
                'n' => content.push(' '),
                other => content.push(other),
            },
            other => content.push(other),
        }
    }
}

/// Comments of Rust code, documentation included: paragraphs, items and comments behind code.
pub(super) fn comments(code: &str) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut block: Vec<&str> = Vec::new();
    let masked = mask(code);
    for (line, (text, masked)) in (1..).zip(code.lines().zip(masked.lines()).chain([("", "")])) {
        let code_len = masked.trim_end().chars().count();
        let behind = text.char_indices().nth(code_len).map_or("", |(at, _)| text[at..].trim_start());
        // Citations of specifications are quotations.
        let comment = behind.strip_prefix("//").filter(|rest| !rest.starts_with(['=', '#']));
        let alone = code_len == 0;
        if (comment.is_none() || !alone) && !block.is_empty() {
            let first = line - block.len();
            let found = markdown(&std::mem::take(&mut block).join("\n"));
            texts.extend(found.into_iter().map(|text| Text { line: first + text.line - 1, ..text }));
        }
        match comment.map(|comment| comment.trim_start_matches(['/', '!'])) {
            Some(comment) if alone => block.push(comment),
            Some(comment) => texts.push(Text { line, words: without_markup(comment) }),
            None => {}
        }
    }
    texts
}

/// Every identifier and its line, in words: `is_new` and `IsNew` are "is new".
pub(super) fn identifiers(code: &str) -> Vec<Text> {
    let mut texts = Vec::new();
    for (line, text) in (1..).zip(mask(code).lines()) {
        let names = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
        texts.extend(names.map(|name| Text { line, words: words_of_name(name) }));
    }
    texts
}

fn words_of_name(name: &str) -> String {
    let mut words = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || was_lower && c.is_uppercase() {
            words.push(' ');
        }
        was_lower = c.is_lowercase();
        words.extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    words
}

/// Names of the functions behind an attribute `#[test]` or `#[...::test(...)]`.
pub(super) fn tests(code: &str) -> Vec<(usize, &str)> {
    let mut is_test = false;
    let mut names = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        let text = text.trim();
        if let Some(attribute) = text.strip_prefix("#[") {
            let path = attribute.split(['(', ']']).next().unwrap_or_default();
            is_test |= path.rsplit("::").next() == Some("test");
        } else if let Some((_, name)) = text.split_once("fn ").filter(|_| is_test) {
            names.push((line, name.split(['(', '<']).next().unwrap_or_default()));
            is_test = false;
        }
    }
    names
}

/// Targets of the links of a Markdown document, outside code.
pub(super) fn links(document: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut in_code = false;
    for line in document.lines() {
        in_code ^= line.trim().starts_with("```");
        let line = if in_code { String::new() } else { without_code(line) };
        for (at, _) in line.match_indices("](") {
            links.extend(line[at + 2..].split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    links
}

/// A text with one word for each piece of code, and without the targets of links and emphasis.
fn without_markup(text: &str) -> String {
    let text = without_code(text);
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain.replace("**", "").replace('[', "")
}

/// A text with one word for each piece of code.
fn without_code(text: &str) -> String {
    let pieces: Vec<&str> = text.split('`').collect();
    let mut plain = String::new();
    for (place, piece) in pieces.iter().enumerate() {
        let is_code = place % 2 == 1 && place + 1 < pieces.len();
        plain.push_str(if is_code { "CODE" } else { piece });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(texts: Vec<Text>) -> Vec<String> {
        texts.into_iter().map(|text| text.words).collect()
    }

    #[test]
    fn comments_are_documentation_and_plain_ones() {
        let code = "//! A module.\n\n/// Private,\n/// on two lines.\n///\n/// ```\n/// code\n/// ```\n#[test]\n\
                    fn a() {\n    // Plain.\n    let a = \"// b\"; // Behind.\n//= spec/a.md A-1\n}\n// Last.";
        let found: Vec<_> = comments(code).into_iter().map(|text| (text.line, text.words)).collect();
        let expected = [
            (1, "A module."),
            (3, "Private, on two lines."),
            (11, "Plain."),
            (12, " Behind."),
            (15, "Last."),
        ];
        assert_eq!(found, expected.map(|(line, words)| (line, words.to_owned())));
    }

    #[test]
    fn names_are_words() {
        assert_eq!(
            words(identifiers("let IsBegun = told_by(X2, \"begun\");")),
            ["let", "is begun", "told by", "x2", "xxxxxxx"]
        );
        let code =
            "#[test]\nfn a() {}\nfn b() {}\n#[tokio::test(flavor = \"x\")]\n#[cfg(unix)]\nasync fn c() {}\n";
        assert_eq!(tests(code), [(2, "a"), (6, "c")]);
    }

    #[test]
    fn markdown_is_cut_into_paragraphs_items_and_cells() {
        let document = "# Head\nOne\ntwo.\n\n- a `b c`\n  [d](e.md)\n- f\n\n```\ncode\n```\n| g | **h** |\n|---|---|\n1. i\n";
        let texts = markdown(document);
        assert_eq!(texts[1], Text { line: 2, words: "One two.".to_owned() });
        let words = words(texts);
        assert_eq!(words[..4], [" Head", "One two.", "- a CODE d", "- f"]);
        assert_eq!(words[4..], [" g ", " h ", "---", "---", "1. i"]);
    }

    #[test]
    fn settings_are_no_comments() {
        assert_eq!(
            words(comments_of_configuration("# A b.\n# a = 1\n# [x]\n# C.\nd = 2\n")),
            [" A b.", " C."]
        );
    }

    #[test]
    fn strings_go_on_behind_a_backslash() {
        assert_eq!(words(errors("#[error(\"a \\\n   b \\\"c\\\"\")]\n#[error(transparent)]")), ["a b \"c\""]);
    }

    #[test]
    fn links_in_code_are_none() {
        assert_eq!(links("[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```"), ["b.md"]);
    }
}
