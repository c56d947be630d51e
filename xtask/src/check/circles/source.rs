//! What the files of a crate name, by a scan of their tokens: no macros are expanded and no types are inferred.

use std::collections::{BTreeMap, BTreeSet};

use super::super::mask::mask;

/// A path of names; of a module from the crate's root, or of an item.
type Path = Vec<String>;

/// The files of one crate.
pub(super) struct Sources {
    files: Vec<String>,
    modules: BTreeMap<Path, Module>,
}

/// A module: a file, or a part of one.
#[derive(Default)]
struct Module {
    file: usize,
    /// Items that it defines, modules among them.
    defines: BTreeSet<String>,
    /// Names that it imports, with where they come from.
    imports: BTreeMap<String, Import>,
    /// Modules of which it imports everything.
    globs: Vec<Path>,
    /// Paths that its code uses, as they are written.
    uses: Vec<Path>,
    /// Names that stand alone in its code.
    words: BTreeSet<String>,
}

struct Import {
    path: Path,
    is_export: bool,
}

/// How many imports lead from a name to its definition at most; more is a circle of imports.
const MOST_HOPS: usize = 16;

impl Sources {
    /// Reads files by their path below `src`, without the ending.
    pub(super) fn read<'a>(files: impl Iterator<Item = (String, &'a str)>) -> Self {
        let mut files: Vec<(String, String)> =
            files.map(|(path, text)| (path, without_tests(&mask(text)))).collect();
        files.sort();
        let mut sources = Self { files: Vec::new(), modules: BTreeMap::new() };
        for (file, (path, code)) in files.iter().enumerate() {
            sources.files.push(path.clone());
            Reader::new(code, file, module_of(path)).read(&mut sources.modules);
        }
        sources.forget_undeclared();
        sources
    }

    pub(super) fn file_name(&self, file: usize) -> &str {
        &self.files[file]
    }

    /// Files whose `mod` declaration is one of the tests' are part of the tests.
    fn forget_undeclared(&mut self) {
        let declared = |modules: &BTreeMap<Path, Module>, path: &Path| {
            (1..=path.len()).all(|len| {
                modules.get(&path[..len - 1]).is_some_and(|parent| parent.defines.contains(&path[len - 1]))
            })
        };
        let tests: Vec<Path> =
            self.modules.keys().filter(|path| !declared(&self.modules, path)).cloned().collect();
        self.modules.retain(|path, _| !tests.contains(path));
    }

    /// For each file the files that it needs.
    pub(super) fn needs(&self) -> Vec<BTreeSet<usize>> {
        let mut needs = vec![BTreeSet::new(); self.files.len()];
        for (at, module) in &self.modules {
            let mut need = |path: &Path| {
                needs[module.file].extend(self.definer(at, path).filter(|&file| file != module.file));
            };
            module.uses.iter().for_each(&mut need);
            for (glob, word) in
                module.globs.iter().flat_map(|glob| module.words.iter().map(move |word| (glob, word)))
            {
                if self.has(at, glob, word)
                    && !module.defines.contains(word)
                    && !module.imports.contains_key(word)
                {
                    need(&[&glob[..], std::slice::from_ref(word)].concat());
                }
            }
            for (name, import) in &module.imports {
                if !import.is_export || module.words.contains(name) {
                    need(&import.path);
                }
            }
        }
        needs
    }

    /// The file that defines what a path names; none for a module as such, and for what is not of this crate.
    fn definer(&self, at: &Path, path: &Path) -> Option<usize> {
        let (mut at, mut path) = (at.clone(), path.clone());
        for _ in 0..MOST_HOPS {
            let (module, rest) = self.enter(&at, &path, MOST_HOPS)?;
            let Some(name) = rest.first() else {
                // A module, and perhaps a function of the same name that its parent exports.
                let (name, parent) = module.split_last()?;
                path.clone_from(&self.modules[parent].imports.get(name)?.path);
                at = parent.to_vec();
                continue;
            };
            let here = &self.modules[&module];
            // First the imports: a method of the same name counts as defined here.
            if let Some(import) = here.imports.get(name) {
                path = import.path.iter().chain(&rest[1..]).cloned().collect();
                at = module;
                continue;
            }
            if here.defines.contains(name) {
                return Some(here.file);
            }
            match here.globs.iter().find(|glob| self.has(&module, glob, name)) {
                Some(glob) => (at, path) = (module, [&glob[..], &rest].concat()),
                // A glob over an enum, a macro or a name that a macro makes.
                None => return Some(here.file),
            }
        }
        None
    }

    /// Whether a glob import brings a name.
    fn has(&self, at: &Path, glob: &Path, name: &str) -> bool {
        self.enter(at, glob, MOST_HOPS).is_some_and(|(module, rest)| {
            let found = &self.modules[&module];
            rest.is_empty() && (found.defines.contains(name) || found.imports.contains_key(name))
        })
    }

    /// The module that a path leads to, and what is left of the path; none for paths into other crates.
    fn enter(&self, at: &Path, path: &Path, hops: usize) -> Option<(Path, Path)> {
        let mut module = at.clone();
        let mut left = path.clone();
        match path.first()?.as_str() {
            "crate" => {
                module.clear();
                left.remove(0);
            }
            "self" => drop(left.remove(0)),
            "super" => {}
            _ if self.modules.contains_key(&[&at[..], &path[..1]].concat()) => {}
            first => {
                let import = self.modules.get(at)?.imports.get(first)?;
                if hops == 0 || import.path.first().is_some_and(|begin| begin == first) {
                    return None;
                }
                let (module, before) = self.enter(at, &import.path, hops - 1)?;
                return Some(self.descend(module, [&before[..], &path[1..]].concat()));
            }
        }
        while left.first().is_some_and(|name| name == "super") {
            left.remove(0);
            module.pop();
        }
        self.modules.contains_key(&module).then(|| self.descend(module, left))
    }

    /// Goes down as long as the path's names are modules.
    fn descend(&self, mut module: Path, mut rest: Path) -> (Path, Path) {
        while let Some(name) = rest.first() {
            let below = [&module[..], std::slice::from_ref(name)].concat();
            if !self.modules.contains_key(&below) {
                break;
            }
            module = below;
            rest.remove(0);
        }
        (module, rest)
    }
}

/// The module that a file is: `a/mod` and `a` are `a`, the root's file is the root.
fn module_of(path: &str) -> Path {
    let mut module: Path = path.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// The code without the items that are for tests alone.
fn without_tests(code: &str) -> String {
    let mut left = code;
    let mut out = String::with_capacity(code.len());
    while let Some(at) = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|start| left.find(start)).min()
    {
        out.push_str(&left[..at]);
        left = &left[at + item_len(&left[at..])..];
    }
    out + left
}

/// The length of an item with its attributes: to a semicolon, or to the end of its braces.
fn item_len(item: &str) -> usize {
    let mut depth = 0_usize;
    let mut is_list = false;
    let mut words = String::new();
    for (at, character) in item.char_indices() {
        match character {
            '{' | '[' | '(' => depth += 1,
            // The end of the enclosing item.
            '}' | ']' | ')' if depth == 0 => return at,
            '}' | ']' | ')' => {
                depth -= 1;
                if depth == 0 && character == '}' && !is_list {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ if depth == 0 => {
                words.push(character);
                // The braces of an import are not its end.
                is_list |= words.ends_with("use ");
            }
            _ => {}
        }
    }
    item.len()
}

/// A token: a name, `::` or another character.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Into,
    Other(char),
}

fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(next) = rest.chars().next() {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        if is_name(next) {
            let len = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..len].to_owned()));
            rest = &rest[len..];
        } else if let Some(after) = rest.strip_prefix("::") {
            tokens.push(Token::Into);
            rest = after;
        } else {
            if !next.is_whitespace() {
                tokens.push(Token::Other(next));
            }
            rest = &rest[next.len_utf8()..];
        }
    }
    tokens
}

/// Reads one file into its modules.
struct Reader {
    tokens: Vec<Token>,
    at: usize,
    file: usize,
    module: Path,
    /// How deep the braces are, and at which depth each module inside the file ends.
    depth: usize,
    ends: Vec<usize>,
}

impl Reader {
    fn new(code: &str, file: usize, module: Path) -> Self {
        Self { tokens: tokens(code), at: 0, file, module, depth: 0, ends: Vec::new() }
    }

    fn read(mut self, modules: &mut BTreeMap<Path, Module>) {
        modules.entry(self.module.clone()).or_default().file = self.file;
        while let Some(token) = self.tokens.get(self.at).cloned() {
            match token {
                Token::Other('{') => self.depth += 1,
                Token::Other('}') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.ends.last() == Some(&self.depth) {
                        self.ends.pop();
                        self.module.pop();
                    }
                }
                Token::Name(name) => {
                    self.name(&name, modules);
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    fn name(&mut self, name: &str, modules: &mut BTreeMap<Path, Module>) {
        let file = self.file;
        let here = modules.entry(self.module.clone()).or_default();
        here.file = file;
        match name {
            "pub" => {
                self.at += 1;
                let is_export = self.visibility();
                if is_export && self.is_name(0, "use") {
                    self.import(here, true);
                }
            }
            "use" => self.import(here, false),
            "mod" => self.module_begins(modules),
            "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" | "macro_rules" => {
                self.at += 1;
                if self.is_other(0, '!') || self.is_name(0, "mut") {
                    self.at += 1;
                }
                // Names of a module's items; those of its functions' inside do no harm.
                if let Some(Token::Name(defined)) = self.tokens.get(self.at) {
                    here.defines.insert(defined.clone());
                    self.at += 1;
                }
            }
            _ => {
                let is_member = self.at > 0 && self.tokens[self.at - 1] == Token::Other('.');
                let path = self.path();
                if is_member {
                    return;
                }
                if path.len() > 1 {
                    here.uses.push(path.clone());
                }
                here.words.extend(path.into_iter().next());
            }
        }
    }

    /// Skips what may stand after `pub`; always an export, to somebody.
    fn visibility(&mut self) -> bool {
        if self.is_other(0, '(')
            && (["crate", "super", "self", "in"].iter().any(|word| self.is_name(1, word)))
        {
            while !self.is_other(0, ')') && self.at < self.tokens.len() {
                self.at += 1;
            }
            self.at += 1;
        }
        true
    }

    fn module_begins(&mut self, modules: &mut BTreeMap<Path, Module>) {
        self.at += 1;
        let Some(Token::Name(name)) = self.tokens.get(self.at).cloned() else { return };
        self.at += 1;
        modules.entry(self.module.clone()).or_default().defines.insert(name.clone());
        if self.is_other(0, '{') {
            self.module.push(name);
            self.ends.push(self.depth);
            modules.entry(self.module.clone()).or_default().file = self.file;
        }
    }

    /// A path of names, which ends with a name.
    fn path(&mut self) -> Path {
        let mut path = Vec::new();
        while let Some(Token::Name(name)) = self.tokens.get(self.at) {
            path.push(name.clone());
            self.at += 1;
            if !(self.is_into(0) && matches!(self.tokens.get(self.at + 1), Some(Token::Name(_)))) {
                break;
            }
            self.at += 1;
        }
        path
    }

    fn import(&mut self, here: &mut Module, is_export: bool) {
        self.at += 1;
        if self.is_into(0) {
            self.at += 1;
        }
        self.tree(here, is_export, Vec::new());
    }

    /// One tree of an import: `a::b`, `a::b as c`, `a::*`, `a::{b, c}`.
    fn tree(&mut self, here: &mut Module, is_export: bool, before: Path) {
        let mut path = before;
        loop {
            match self.tokens.get(self.at).cloned() {
                Some(Token::Name(name)) if name == "self" && !path.is_empty() => {}
                Some(Token::Name(name)) => path.push(name),
                Some(Token::Other('*')) => {
                    self.at += 1;
                    here.globs.push(path);
                    return;
                }
                Some(Token::Other('{')) => {
                    self.at += 1;
                    while self.at < self.tokens.len() && !self.is_other(0, '}') {
                        self.tree(here, is_export, path.clone());
                        if self.is_other(0, ',') {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                _ => return,
            }
            self.at += 1;
            if !self.is_into(0) {
                break;
            }
            self.at += 1;
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.is_name(0, "as") {
            self.at += 1;
            if let Some(Token::Name(alias)) = self.tokens.get(self.at) {
                name.clone_from(alias);
                self.at += 1;
            }
        }
        here.imports.insert(name, Import { path, is_export });
    }

    fn is_name(&self, ahead: usize, word: &str) -> bool {
        matches!(self.tokens.get(self.at + ahead), Some(Token::Name(name)) if name == word)
    }

    fn is_other(&self, ahead: usize, character: char) -> bool {
        self.tokens.get(self.at + ahead) == Some(&Token::Other(character))
    }

    fn is_into(&self, ahead: usize) -> bool {
        self.tokens.get(self.at + ahead) == Some(&Token::Into)
    }
}
