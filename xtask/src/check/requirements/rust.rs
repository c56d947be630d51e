//! What Rust source calls: names given to `Command::new`, also through functions that pass a parameter on to it, scripts behind
//! `-c`, and the elements of GStreamer's pipelines.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::Calls;
use super::tokens::{Kind, Source, Token};
use super::{pipeline, shell};

/// What tells of the programs where the source computes their name.
const COMMENT: &str = "// Programs: ";
/// What the workspace builds, or a person names.
const OWN: &str = "own";
/// How many tokens a script or an element may stand behind the program that takes it.
const REACH: usize = 12;

/// A function, or a closure with a name, and what it takes.
struct Function {
    name: String,
    /// Other files can call it.
    is_public: bool,
    parameters: Vec<String>,
    /// Tokens of its body.
    body: std::ops::Range<usize>,
}

/// Parameters that become the name of a program: function and place.
type Helpers = BTreeSet<(String, usize)>;

/// Reads the files of one crate.
pub(super) fn read(files: &[(&str, &str)], calls: &mut Calls) {
    let sources: Vec<(&str, Source)> =
        files.iter().map(|&(path, text)| (path, Source::of_rust(text))).collect();
    let functions: Vec<Vec<Function>> = sources.iter().map(|(_, source)| functions(&source.tokens)).collect();
    let helpers: Vec<Helpers> =
        sources.iter().zip(&functions).map(|((_, source), of)| helpers(source, of)).collect();
    // What other files can call.
    let shared = |(functions, helpers): (&Vec<Function>, &Helpers)| -> Vec<(String, usize)> {
        let is_public =
            |name: &str| functions.iter().any(|function| function.is_public && function.name == name);
        helpers.iter().filter(|(name, _)| is_public(name)).cloned().collect()
    };
    let shared: Helpers = functions.iter().zip(&helpers).flat_map(shared).collect();
    let constants: BTreeMap<&str, &str> =
        sources.iter().flat_map(|(_, source)| constants(&source.tokens)).collect();
    for ((path, source), (functions, own)) in sources.iter().zip(functions.iter().zip(&helpers)) {
        let is_own = |name: &str| functions.iter().any(|function| function.name == name);
        let is_helper = |name: &str, place: usize| {
            let all = if is_own(name) { own } else { &shared };
            all.contains(&(name.to_owned(), place))
        };
        let reader = Reader { path, source, functions, constants: &constants };
        reader.read(&is_helper, calls);
    }
}

struct Reader<'a> {
    path: &'a str,
    source: &'a Source,
    functions: &'a [Function],
    constants: &'a BTreeMap<&'a str, &'a str>,
}

impl Reader<'_> {
    fn read(&self, is_helper: &dyn Fn(&str, usize) -> bool, calls: &mut Calls) {
        let tokens = &self.source.tokens;
        for (line, names) in self.source.all_comments(COMMENT) {
            let names = names.split_whitespace().filter(|name| *name != OWN);
            names.for_each(|name| calls.program(self.path, line, name));
        }
        for call in all_calls(tokens) {
            for (place, argument) in call.arguments.iter().enumerate() {
                let is_direct = call.is_command && place == 0;
                if is_direct || is_helper(&call.name, place) {
                    self.program(&tokens[argument.clone()], argument.start, is_direct, calls);
                }
            }
            if call.is_factory
                && let Some(Kind::Text(name)) =
                    call.arguments.first().and_then(|first| tokens.get(first.start)).map(|token| &token.kind)
            {
                calls.element(self.path, tokens[call.arguments[0].start].line, name);
            }
        }
        for (at, token) in tokens.iter().enumerate() {
            let Kind::Text(text) = &token.kind else { continue };
            let before = &tokens[at.saturating_sub(REACH)..at];
            let is_before = |words: &[&str]| {
                before
                    .iter()
                    .any(|token| matches!(&token.kind, Kind::Text(text) if words.contains(&text.as_str())))
            };
            if is_before(&["sh", "bash", "dash", "/bin/sh"]) && is_before(&["-c"]) {
                shell::read(self.path, token.line, text, &BTreeSet::new(), calls);
            } else if is_before(&["gst-inspect-1.0"]) && pipeline::is_element(text) {
                calls.element(self.path, token.line, text);
            } else {
                pipeline::read(self.path, token.line, text, calls);
            }
        }
    }

    /// The program that an argument names.
    fn program(&self, argument: &[Token], at: usize, is_direct: bool, calls: &mut Calls) {
        let line = argument.first().map_or(0, |token| token.line);
        let words: Vec<&Token> = argument.iter().filter(|token| token.kind != Kind::Sign('&')).collect();
        match words.as_slice() {
            [Token { kind: Kind::Text(name), .. }] => calls.program(self.path, line, name),
            [Token { kind: Kind::Word(name), .. }] if self.constants.contains_key(name.as_str()) => {
                calls.program(self.path, line, self.constants[name.as_str()]);
            }
            [Token { kind: Kind::Word(name), .. }] if self.is_parameter(name, at) => {}
            [Token { kind: Kind::Word(name), .. }] if !self.loops(name, at).is_empty() => {
                for name in self.loops(name, at) {
                    calls.program(self.path, line, &name);
                }
            }
            words if is_path(words.iter().copied()) => {}
            [Token { kind: Kind::Word(name), .. }] if is_path(self.bound(name, at).iter()) => {}
            _ if is_direct => match self.source.comment(line, COMMENT) {
                Some(_) => {}
                None => calls.unknown(self.path, line, &format!("names its program by an expression: say which with `{COMMENT}NAME...` above (`own`: what the workspace builds)")),
            },
            _ => {}
        }
    }

    fn is_parameter(&self, name: &str, at: usize) -> bool {
        self.functions
            .iter()
            .any(|function| function.body.contains(&at) && function.parameters.iter().any(|one| one == name))
    }

    /// The tokens after the last binding of a name before a place: `for (name, ..) in ... {` or `let name =
    /// ...;`.
    fn bound(&self, name: &str, at: usize) -> &[Token] {
        let tokens = &self.source.tokens[..at];
        let word = |at: Option<usize>| at.and_then(|at| tokens.get(at)).and_then(Token::word);
        let binds = |at: usize| {
            let before = [word(at.checked_sub(1)), word(at.checked_sub(2))];
            word(Some(at)) == Some(name) && before.iter().any(|before| matches!(before, Some("for" | "let")))
        };
        let Some(begin) = (0..tokens.len()).rev().find(|&at| binds(at)) else { return &[] };
        let end = |token: &Token| matches!(token.kind, Kind::Sign('{' | ';'));
        let len = tokens[begin..].iter().position(end).unwrap_or(tokens.len() - begin);
        &tokens[begin..begin + len]
    }

    /// The texts that a binding gives a name: the first of each part of a list, or the only one.
    fn loops(&self, name: &str, at: usize) -> Vec<String> {
        let bound = self.bound(name, at);
        if let [.., Token { kind: Kind::Sign('='), .. }, Token { kind: Kind::Text(text), .. }] = bound {
            return vec![text.clone()];
        }
        let Some(list) = bound.iter().position(|token| token.kind == Kind::Sign('[')) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for part in split(bound, list) {
            let mut part = bound[part].iter().filter(|token| !matches!(token.kind, Kind::Sign('(' | '&')));
            if let Some(Token { kind: Kind::Text(text), .. }) = part.next() {
                found.push(text.clone());
            }
        }
        found
    }
}

/// Whether an expression makes a path: of what cargo has built, of this program itself, or within a folder. Only a bare name is
/// looked up among the installed programs.
fn is_path<'a>(mut tokens: impl Iterator<Item = &'a Token>) -> bool {
    tokens.any(|token| {
        matches!(token.word(), Some("env" | "join" | "current_exe" | "with_file_name" | "CARGO"))
    })
}

/// A call, with its arguments as ranges of tokens.
struct Call {
    name: String,
    is_command: bool,
    is_factory: bool,
    at: usize,
    arguments: Vec<std::ops::Range<usize>>,
}

fn all_calls(tokens: &[Token]) -> Vec<Call> {
    let word = |at: Option<usize>| at.and_then(|at| tokens.get(at)).and_then(Token::word);
    let mut calls = Vec::new();
    for at in 1..tokens.len() {
        if tokens[at].kind != Kind::Sign('(') {
            continue;
        }
        let Some(name) = word(Some(at - 1)) else { continue };
        let before = word(at.checked_sub(4));
        if word(at.checked_sub(2)) == Some("fn") {
            continue;
        }
        calls.push(Call {
            name: name.to_owned(),
            is_command: name == "new" && before == Some("Command"),
            is_factory: matches!(name, "make" | "find") && before == Some("ElementFactory"),
            at,
            arguments: split(tokens, at),
        });
    }
    calls
}

/// The parts between commas of the brackets that open at a token.
fn split(tokens: &[Token], open: usize) -> Vec<std::ops::Range<usize>> {
    let (mut depth, mut begin, mut parts) = (0, open + 1, Vec::new());
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Sign('(' | '[' | '{') => depth += 1,
            Kind::Sign(')' | ']' | '}') => {
                depth -= 1;
                if depth == 0 {
                    if begin < at {
                        parts.push(begin..at);
                    }
                    return parts;
                }
            }
            Kind::Sign(',') if depth == 1 => {
                parts.push(begin..at);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts
}

/// Where the brackets that open at a token close.
fn close(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Sign('(' | '[' | '{') => depth += 1,
            Kind::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

fn functions(tokens: &[Token]) -> Vec<Function> {
    let mut functions = Vec::new();
    for at in 0..tokens.len() {
        if tokens[at].word() == Some("fn")
            && let Some(name) = tokens.get(at + 1).and_then(Token::word)
            && let Some(open) = (at..tokens.len()).find(|&at| tokens[at].kind == Kind::Sign('('))
        {
            let end = close(tokens, open);
            let Some(body) = (end..tokens.len()).find(|&at| matches!(tokens[at].kind, Kind::Sign('{' | ';')))
            else {
                continue;
            };
            let parameters = parameters(tokens, &split(tokens, open));
            let is_public = at > 0
                && matches!(&tokens[at - 1].kind, Kind::Sign(')') | Kind::Word(_))
                && tokens[at.saturating_sub(4)..at].iter().any(|token| token.word() == Some("pub"));
            functions.push(Function {
                name: name.to_owned(),
                is_public,
                parameters,
                body: body..close(tokens, body),
            });
        }
        // `let name = |one: T, two: U| ...;`
        if tokens[at].word() == Some("let")
            && let Some(name) = tokens.get(at + 1).and_then(Token::word)
            && tokens.get(at + 2).is_some_and(|token| token.kind == Kind::Sign('='))
            && tokens.get(at + 3).is_some_and(|token| token.kind == Kind::Sign('|'))
            && let Some(end) = (at + 4..tokens.len()).find(|&at| tokens[at].kind == Kind::Sign('|'))
        {
            let parts: Vec<_> = tokens[at + 4..end].split(|token| token.kind == Kind::Sign(',')).collect();
            let parameters = parts
                .iter()
                .filter_map(|part| part.iter().find_map(Token::word))
                .map(str::to_owned)
                .collect();
            let mut depth = 0;
            let body_end = (end + 1..tokens.len()).find(|&at| {
                match tokens[at].kind {
                    Kind::Sign('(' | '[' | '{') => depth += 1,
                    Kind::Sign(')' | ']' | '}') => depth -= 1,
                    _ => {}
                }
                depth < 0 || (depth == 0 && tokens[at].kind == Kind::Sign(';'))
            });
            functions.push(Function {
                name: name.to_owned(),
                is_public: false,
                parameters,
                body: end..body_end.unwrap_or(tokens.len()),
            });
        }
    }
    functions
}

/// The names of parameters; `self` is none, as a call does not pass it in its brackets.
fn parameters(tokens: &[Token], parts: &[std::ops::Range<usize>]) -> Vec<String> {
    let name = |part: &std::ops::Range<usize>| {
        let words = tokens[part.clone()].iter().take_while(|token| token.kind != Kind::Sign(':'));
        words.filter_map(Token::word).last().unwrap_or_default().to_owned()
    };
    parts.iter().map(name).filter(|name| name != "self").collect()
}

/// The functions of a file that pass a parameter on as a program, directly or through each other.
fn helpers(source: &Source, functions: &[Function]) -> Helpers {
    let tokens = &source.tokens;
    let calls = all_calls(tokens);
    let mut helpers = Helpers::new();
    loop {
        let before = helpers.len();
        for function in functions {
            for call in calls.iter().filter(|call| function.body.contains(&call.at)) {
                for (place, argument) in call.arguments.iter().enumerate() {
                    let passes =
                        (call.is_command && place == 0) || helpers.contains(&(call.name.clone(), place));
                    let name = match &tokens[argument.clone()] {
                        [one] => one.word(),
                        [first, one] if first.kind == Kind::Sign('&') => one.word(),
                        _ => None,
                    };
                    let parameter =
                        name.and_then(|name| function.parameters.iter().position(|one| one == name));
                    if let (true, Some(parameter)) = (passes, parameter) {
                        helpers.insert((function.name.clone(), parameter));
                    }
                }
            }
        }
        if helpers.len() == before {
            return helpers;
        }
    }
}

/// `const NAME: &str = "text";`
fn constants(tokens: &[Token]) -> Vec<(&str, &str)> {
    let mut constants = Vec::new();
    for at in 0..tokens.len() {
        if tokens[at].word() == Some("const")
            && let Some(name) = tokens.get(at + 1).and_then(Token::word)
            && let Some(equals) =
                (at..tokens.len().min(at + 8)).find(|&at| tokens[at].kind == Kind::Sign('='))
            && let (Some(Token { kind: Kind::Text(text), .. }), Some(end)) =
                (tokens.get(equals + 1), tokens.get(equals + 2))
            && end.kind == Kind::Sign(';')
        {
            constants.push((name, text.as_str()));
        }
    }
    constants
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Calls {
        let mut calls = Calls::default();
        read(&[("crates/a/tests/b.rs", text)], &mut calls);
        calls
    }

    fn programs(text: &str) -> Vec<String> {
        found(text).programs.into_keys().collect()
    }

    #[test]
    fn a_literal_and_a_constant_name_a_program() {
        let text = "const PLAYER: &str = \"mpv\";\nfn f() { Command::new(\"ffmpeg\").arg(\"-x\"); std::process::Command::new(PLAYER); }";
        assert_eq!(programs(text), ["ffmpeg", "mpv"]);
    }

    #[test]
    fn a_name_is_followed_through_helpers() {
        let text = "fn has(program: &str, a: &str) { Command::new(program).arg(a); }\n\
             fn played(what: &str, player: &str) { if has(player, \"-v\") {} }\n\
             fn test() { played(\"clip\", \"mpv\"); let tool = |one: &str| Command::new(one); tool(\"gst-inspect-1.0\"); }\n\
             fn more() { for (program, version) in [(\"nc\", \"-h\"), (\"socat\", \"-V\")] { has(program, version); } }";
        assert_eq!(programs(text), ["gst-inspect-1.0", "mpv", "nc", "socat"]);
    }

    #[test]
    fn an_expression_needs_a_comment() {
        let bare = "fn f() { Command::new(pick(7)); }";
        assert_eq!(found(bare).unknown.len(), 1);
        let said = "fn f() {\n    // Programs: iperf own\n    Command::new(pick(7));\n}";
        assert_eq!(programs(said), ["iperf"]);
        assert!(found(said).unknown.is_empty());
        assert!(found("fn f() { Command::new(env!(\"CARGO_BIN_EXE_x\")); }").unknown.is_empty());
    }

    #[test]
    fn scripts_and_pipelines_are_read() {
        let text = "fn f() { c(\"sh\").args([\"-c\", \"seq 3 | md5sum\"]); g(\"videotestsrc num-buffers=3 ! x264enc ! fakesink\"); }";
        let calls = found(text);
        assert_eq!(calls.programs.into_keys().collect::<Vec<_>>(), ["md5sum", "seq"]);
        assert_eq!(calls.elements.into_keys().collect::<Vec<_>>(), ["fakesink", "videotestsrc", "x264enc"]);
    }
}
