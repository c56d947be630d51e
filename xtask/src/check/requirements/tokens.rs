//! Rust source as words, texts and signs, with the comments beside.

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name, a keyword or a number.
    Word(String),
    /// The contents of a string.
    Text(String),
    Sign(char),
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// From 1.
    pub(super) line: usize,
}

impl Token {
    pub(super) fn word(&self) -> Option<&str> {
        if let Kind::Word(word) = &self.kind { Some(word) } else { None }
    }
}

pub(super) struct Source {
    pub(super) tokens: Vec<Token>,
    /// Line and text of each comment that ends with its line.
    comments: Vec<(usize, String)>,
}

impl Source {
    pub(super) fn of_rust(text: &str) -> Self {
        let mut scanner = Scanner {
            chars: text.chars().collect(),
            at: 0,
            line: 1,
            tokens: Vec::new(),
            comments: Vec::new(),
        };
        while scanner.step() {}
        Self { tokens: scanner.tokens, comments: scanner.comments }
    }

    /// Line and rest of each comment with this beginning.
    pub(super) fn all_comments(&self, begin: &str) -> Vec<(usize, &str)> {
        let rest =
            |(line, text): &'_ (usize, String)| Some((*line, text.len() - text.strip_prefix(begin)?.len()));
        let found = self.comments.iter().map(|comment| (comment, rest(comment)));
        found.filter_map(|((_, text), found)| found.map(|(line, at)| (line, &text[at..]))).collect()
    }

    /// What a comment with this beginning says, on the line or the one above.
    pub(super) fn comment(&self, line: usize, begin: &str) -> Option<&str> {
        let near = self.comments.iter().filter(|(at, _)| *at == line || *at + 1 == line);
        near.filter_map(|(_, text)| text.strip_prefix(begin)).next()
    }
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<(usize, String)>,
}

impl Scanner {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(next == '\n');
        Some(next)
    }

    fn push(&mut self, kind: Kind, line: usize) {
        self.tokens.push(Token { kind, line });
    }

    /// Takes one token, comment or space; `false` at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.peek(0) else { return false };
        let line = self.line;
        match (first, self.peek(1)) {
            ('/', Some('/')) => {
                let text = self.take_while(|next| next != '\n');
                self.comments.push((line, text));
            }
            ('/', Some('*')) => {
                while !(self.peek(0) == Some('*') && self.peek(1) == Some('/')) && self.next().is_some() {}
                self.at = (self.at + 2).min(self.chars.len());
            }
            ('"', _) => {
                self.next();
                self.quoted(line);
            }
            ('\'', Some(second)) => {
                let is_char = second == '\\' || self.peek(2) == Some('\'');
                self.next();
                if is_char {
                    self.next();
                    if second == '\\' {
                        self.next();
                    }
                    while self.next().is_some_and(|next| next != '\'') {}
                }
            }
            (first, _) if first.is_alphanumeric() || first == '_' => {
                let word = self.take_while(|next| next.is_alphanumeric() || next == '_');
                let is_raw =
                    matches!(word.as_str(), "r" | "br" | "cr") && matches!(self.peek(0), Some('"' | '#'));
                if is_raw && self.raw(line) {
                    return true;
                }
                self.push(Kind::Word(word), line);
            }
            (first, _) => {
                self.next();
                if !first.is_whitespace() {
                    self.push(Kind::Sign(first), line);
                }
            }
        }
        true
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while self.peek(0).is_some_and(&is_part) {
            taken.extend(self.next());
        }
        taken
    }

    /// The rest of a string whose first quote is taken.
    fn quoted(&mut self, line: usize) {
        let mut text = String::new();
        while let Some(next) = self.next() {
            match next {
                '"' => break,
                '\\' => match self.next() {
                    // The line goes on behind its indent.
                    Some('\n') => drop(self.take_while(char::is_whitespace)),
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some(other) => text.push(other),
                    None => break,
                },
                other => text.push(other),
            }
        }
        self.push(Kind::Text(text), line);
    }

    /// A raw string behind its `r`; `false` if there is none.
    fn raw(&mut self, line: usize) -> bool {
        let hashes = self.chars[self.at..].iter().take_while(|next| **next == '#').count();
        if self.peek(hashes) != Some('"') {
            return false;
        }
        self.at += hashes + 1;
        let mut text = String::new();
        while let Some(next) = self.next() {
            if next == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                self.at += hashes;
                break;
            }
            text.push(next);
        }
        self.push(Kind::Text(text), line);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_texts_and_comments_differ() {
        let source = Source::of_rust(
            "let a: &'a str = \"x \\\"y\\\" \\\n   z\"; // Programs: b\n'\"' r#\"raw \"q\"\"# /* \"no\" */ 'c'",
        );
        let texts: Vec<_> = source
            .tokens
            .iter()
            .filter_map(|token| if let Kind::Text(text) = &token.kind { Some(text.as_str()) } else { None })
            .collect();
        assert_eq!(texts, ["x \"y\" z", "raw \"q\""]);
        assert_eq!(source.comment(2, "// Programs: "), Some("b"));
        assert_eq!(source.comment(3, "// Programs: "), Some("b"));
        assert_eq!(source.comment(4, "// Programs: "), None);
    }
}
