//! The commands of shell scripts: the first word of each simple command, and the one that `timeout`, `exec`, `command -v` and the like run.

use std::collections::BTreeSet;

use super::calls::Calls;
use super::pipeline;

/// Words behind which a command begins.
const BEFORE: &str = "if then else elif while until do ! time { exec nohup setsid";

/// Builtins and reserved words of bash and dash, which are no programs.
const BUILTIN: &str = ". : [ [[ (( alias bg break builtin case caller cd command continue declare dirs done echo esac eval exit export \
    false fg fi for function getopts hash help history in jobs kill let local mapfile popd printf pushd pwd read readarray \
    readonly return select set shift shopt source test times trap true type typeset ulimit umask unalias unset wait } ]] ]";

/// Reads a script that begins at a line. `known` are functions of other scripts.
pub(super) fn read(path: &str, first: usize, text: &str, known: &BTreeSet<String>, calls: &mut Calls) {
    let code = plain(text);
    let own = functions(&code);
    for (number, line) in code.lines().enumerate() {
        let number = first + number;
        for word in commands(line) {
            if is_name(&word)
                && !own.contains(&word)
                && !known.contains(&word)
                && !BUILTIN.split_whitespace().any(|known| known == word)
            {
                calls.program(path, number, &word);
            }
        }
    }
    for (number, line) in text.replace("\\\n", "  ").lines().enumerate() {
        if line.contains("gst-launch-1.0") {
            let pipeline = line.split_once("gst-launch-1.0").map_or("", |(_, rest)| rest);
            pipeline::read(path, first + number, &pipeline.replace(['"', '\''], ""), calls);
        }
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_lowercase())
        && word.chars().all(|next| next.is_ascii_alphanumeric() || "._+-".contains(next))
        && !word.ends_with(".sh")
}

/// The text without comments, quoted parts and here-documents; what a substitution inside quotes runs stays.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut ends: Option<String> = None;
    let mut quotes = Quotes::default();
    for line in text.lines() {
        if let Some(end) = &ends {
            if line.trim_start_matches('\t') == end {
                ends = None;
            }
            out.push('\n');
            continue;
        }
        let before = quotes.open();
        let code = quotes.line(line);
        if !before && !quotes.open() {
            ends = here_document(line);
        }
        out.push_str(code.strip_suffix('\\').map_or(code.as_str(), |continued| continued));
        out.push(if code.ends_with('\\') { '\u{1}' } else { '\n' });
    }
    // Continued lines become one, and blank ones keep the numbers.
    let mut joined = String::new();
    let mut owed = 0;
    for next in out.chars() {
        match next {
            '\u{1}' => {
                joined.push(' ');
                owed += 1;
            }
            '\n' => {
                joined.push('\n');
                (0..std::mem::take(&mut owed)).for_each(|_| joined.push('\n'));
            }
            other => joined.push(other),
        }
    }
    joined
}

/// The word that ends a here-document which begins on this line.
fn here_document(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("<<")?;
    if rest.starts_with('<') {
        return None;
    }
    let end: String = rest
        .trim_start_matches('-')
        .trim_start_matches(['\'', '"', '\\'])
        .chars()
        .take_while(|next| next.is_ascii_alphanumeric() || *next == '_')
        .collect();
    (!end.is_empty()).then_some(end)
}

/// Which quotes are open: a stack, as a substitution within double quotes has quotes of its own.
#[derive(Default)]
struct Quotes {
    stack: Vec<char>,
}

impl Quotes {
    fn open(&self) -> bool {
        self.stack.iter().any(|one| matches!(one, '\'' | '"'))
    }

    fn line(&mut self, line: &str) -> String {
        let mut out = String::new();
        let mut chars = line.chars().peekable();
        let mut before = ' ';
        while let Some(next) = chars.next() {
            match (self.stack.last(), next) {
                (Some('\''), '\'') => {
                    self.stack.pop();
                    out.push('_');
                }
                (Some('\''), _) => {}
                (_, '\\') if chars.peek().is_some() => {
                    chars.next();
                    out.push('_');
                }
                (_, '$') if chars.peek() == Some(&'(') => {
                    chars.next();
                    let is_sum = chars.peek() == Some(&'(');
                    self.stack.push(if is_sum { '#' } else { '(' });
                    out.push_str(if is_sum { "_" } else { "_\u{2}" });
                }
                (_, '$') if chars.peek() == Some(&'{') => {
                    for inner in chars.by_ref() {
                        if inner == '}' {
                            break;
                        }
                    }
                    out.push('_');
                }
                (Some('"'), '"') => {
                    self.stack.pop();
                    out.push('_');
                }
                (Some('"'), _) => {}
                (Some('('), '(') => self.stack.push('p'),
                (Some('p'), ')') | (Some('#'), ')') => drop(self.stack.pop()),
                (Some('#'), '(') => self.stack.push('#'),
                (Some('('), ')') => {
                    self.stack.pop();
                    out.push('\u{3}');
                }
                (_, '\'') => {
                    self.stack.push('\'');
                    out.push('_');
                }
                (_, '"') => {
                    self.stack.push('"');
                    out.push('_');
                }
                (_, '#') if before.is_whitespace() => break,
                (Some('#'), _) => {}
                (_, other) => out.push(other),
            }
            before = next;
        }
        out
    }
}

/// The names of a script's functions.
pub(super) fn functions(code: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let (name, _) = line.trim_start().split_once("()")?;
        Some(name.trim().trim_start_matches("function ").to_owned())
    };
    code.lines().filter_map(name).collect()
}

/// The first words of the commands of a line.
fn commands(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The pattern of a branch of `case`.
    let line = match line.split_once(')') {
        Some((pattern, rest))
            if pattern.split('|').all(|one| one.split_whitespace().count() == 1 && !one.contains('(')) =>
        {
            rest
        }
        _ => line,
    };
    // Substitutions open and close at marks of their own.
    let line = line
        .replace(";;", "\u{4}")
        .replace("&>", ">")
        .replace(">&", ">")
        .replace("<(", "\u{2}")
        .replace(">(", "\u{2}");
    for part in line.split(['|', ';', '&', '\u{2}', '\u{3}', '\u{4}', '`']) {
        let part = part.trim();
        if part.contains("=(") || part.starts_with("for ") || part.starts_with("case ") || part.contains("((")
        {
            continue;
        }
        let mut words = part.trim_start_matches('(').split_whitespace().peekable();
        while let Some(word) = words.next() {
            let is_assignment = word.split_once('=').is_some_and(|(name, _)| {
                name.chars().all(|next| next.is_ascii_alphanumeric() || next == '_' || next == '+')
            });
            if is_assignment
                || BEFORE.split_whitespace().any(|before| before == word)
                || word.starts_with(['<', '>'])
            {
                continue;
            }
            let word = word.trim_start_matches('(');
            // The head of a function.
            if word.ends_with("()") {
                continue;
            }
            found.push(word.to_owned());
            let wraps =
                matches!(word, "timeout" | "nice" | "sudo" | "env" | "chrt" | "xargs" | "command" | "stdbuf");
            if !wraps {
                break;
            }
            // Its options, its numbers and its settings.
            while words.peek().is_some_and(|next| {
                next.starts_with('-')
                    || next.starts_with(|first: char| first.is_ascii_digit())
                    || next.contains('=')
            }) {
                words.next();
            }
        }
    }
    found.iter().map(|word| word.trim_end_matches(')').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(text: &str) -> Vec<String> {
        let mut calls = Calls::default();
        read("a.sh", 1, text, &BTreeSet::new(), &mut calls);
        calls.programs.into_keys().collect()
    }

    #[test]
    fn first_words_are_commands() {
        assert_eq!(
            programs("A=b cat x | grep y && ! sort >z; if test -e x; then tail x; fi # comment\n"),
            ["cat", "grep", "sort", "tail"]
        );
        assert_eq!(
            programs("timeout 30 -k 5 curl x\nexec jq .\nnice -n 10 nc -l\n"),
            ["curl", "jq", "nc", "nice", "timeout"]
        );
    }

    #[test]
    fn quotes_and_here_documents_are_text_and_substitutions_are_not() {
        assert_eq!(programs("echo 'ls; rm' \"mv $(realpath \"$x\")\" `date`\n"), ["date", "realpath"]);
        assert_eq!(programs("python3 - <<'END'\nimport x\nEND\nwc -l\n"), ["python3", "wc"]);
        assert_eq!(
            programs("awk '\n  { print }\n  function() {}\n' file\nsed x \\\n  more words\n"),
            ["awk", "sed"]
        );
    }

    #[test]
    fn functions_patterns_and_arrays_are_no_programs() {
        assert_eq!(
            programs(
                "start() { busybox x; }\nstart now\ncase $1 in\ndemo) cp a b ;;\nesac\nlist=(one two)\n"
            ),
            ["busybox", "cp"]
        );
    }
}
