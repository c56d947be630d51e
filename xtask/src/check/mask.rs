//! Rust source with comments blanked and the insides of literals crossed out, so that a scanner of words and braces
//! sees code alone. Lines keep their numbers.

/// Blanks comments and replaces the contents of strings and characters by `x`.
pub(super) fn mask(source: &str) -> String {
    let mut scanner = Scanner { rest: source, out: String::with_capacity(source.len()) };
    while scanner.step() {}
    scanner.out
}

struct Scanner<'a> {
    rest: &'a str,
    out: String,
}

impl Scanner<'_> {
    /// Takes one comment, one literal or one plain character; `false` at the end.
    fn step(&mut self) -> bool {
        let Some(next) = self.rest.chars().next() else { return false };
        if self.rest.starts_with("//") {
            let len = self.rest.find('\n').unwrap_or(self.rest.len());
            self.take(len, ' ');
        } else if self.rest.starts_with("/*") {
            let len = block_comment_len(self.rest);
            self.take(len, ' ');
        } else if let Some(len) = self.raw_string_len() {
            self.take(len, 'x');
        } else if next == '"' {
            self.take(quoted_len(self.rest, '"'), 'x');
        } else if next == '\'' && is_character(self.rest) {
            self.take(quoted_len(self.rest, '\''), 'x');
        } else {
            self.out.push(next);
            self.rest = &self.rest[next.len_utf8()..];
        }
        true
    }

    fn take(&mut self, len: usize, cover: char) {
        let (taken, rest) = self.rest.split_at(len);
        self.out.extend(taken.chars().map(|taken| if taken == '\n' { '\n' } else { cover }));
        self.rest = rest;
    }

    /// The length of `r"..."` or `r#"..."#` (also with `b` or `c` before) that begins here.
    fn raw_string_len(&self) -> Option<usize> {
        if self.out.ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            return None;
        }
        let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
            self.rest.strip_prefix(prefix).is_some_and(|rest| rest.trim_start_matches('#').starts_with('"'))
        })?;
        let after = &self.rest[prefix.len()..];
        let hashes = after.len() - after.trim_start_matches('#').len();
        let close = format!("\"{}", "#".repeat(hashes));
        let open = prefix.len() + hashes + 1;
        let body = self.rest[open..].find(&close).map_or(self.rest.len() - open, |end| end + close.len());
        Some(open + body)
    }
}

fn block_comment_len(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn quoted_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + character.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Tells a character literal from a lifetime: `'a'` and `'\n'`, not `'a`.
fn is_character(text: &str) -> bool {
    let mut characters = text.chars().skip(1);
    match characters.next() {
        Some('\\') => true,
        Some(_) => characters.next() == Some('\''),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn comments_vanish_and_lines_stay() {
        assert_eq!(mask("a // {\nb /* { /* } */ */ c\n"), format!("a     \nb{}c\n", " ".repeat(17)));
    }

    #[test]
    fn literals_are_crossed_out() {
        assert_eq!(mask(r#"f("}\"", '{', '\'', b"{")"#), "f(xxxxx, xxx, xxxx, bxxx)");
        assert_eq!(mask("r#\"a\"}\"# + r\"{\""), "xxxxxxxx + xxxx");
        assert_eq!(mask("\"one\n}two\""), "xxxx\nxxxxx");
    }

    #[test]
    fn lifetimes_and_names_that_end_in_r_stay() {
        assert_eq!(mask("fn f<'a>(x: &'a str) { for\"{\" }"), "fn f<'a>(x: &'a str) { forxxx }");
    }

    #[test]
    fn an_open_literal_ends_with_the_file() {
        assert_eq!(mask("\"{"), "xx");
        assert_eq!(mask("/* {"), "    ");
        assert_eq!(mask("r#\"{"), "xxxx");
    }
}
