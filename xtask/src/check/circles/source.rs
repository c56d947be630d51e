//! What the files of a crate name: no macros are expanded and no types are inferred.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, UseTree, Visibility};

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
        let mut files: Vec<(String, &str)> = files.collect();
        files.sort();
        let mut sources = Self { files: Vec::new(), modules: BTreeMap::new() };
        for (file, (path, code)) in files.into_iter().enumerate() {
            let module = module_of(&path);
            sources.files.push(path);
            let mut reader = Reader { modules: &mut sources.modules, file, module };
            reader.here();
            // The compiler reports a file that is not Rust.
            if let Some(code) = code.parse().ok().and_then(|code| syn::parse2(without_tests(code)).ok()) {
                reader.visit_file(&code);
            }
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

    /// For each module the modules beside it, below the same parent, that it needs with all that lies below it.
    pub(super) fn module_needs(&self) -> Modules {
        let mut modules = Modules::default();
        for (from, needs) in self.needs().into_iter().enumerate() {
            for to in needs {
                let (from, to) = (module_of(&self.files[from]), module_of(&self.files[to]));
                let shared = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
                // A parent that needs its child, or the reverse, is an affair of files.
                if shared < from.len().min(to.len()) {
                    let [from, to] = [&from, &to].map(|path| modules.index(path[..=shared].join("/")));
                    modules.needs[from].insert(to);
                }
            }
        }
        modules
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

/// Modules by their path, and for each the others that it needs.
#[derive(Default)]
pub(super) struct Modules {
    pub(super) names: Vec<String>,
    pub(super) needs: Vec<BTreeSet<usize>>,
}

impl Modules {
    fn index(&mut self, name: String) -> usize {
        self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.needs.push(BTreeSet::new());
            self.names.len() - 1
        })
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

/// The code without attributes, and without the items that are for tests alone.
fn without_tests(code: TokenStream) -> TokenStream {
    let mut rest = code.into_iter().peekable();
    let mut kept = Vec::new();
    while let Some(token) = rest.next() {
        match (&token, rest.peek()) {
            (TokenTree::Punct(hash), Some(TokenTree::Group(_))) if hash.as_char() == '#' => {
                let attribute = rest.next().map(|attribute| attribute.to_string().replace(' ', ""));
                if attribute.is_some_and(|text| text == "[cfg(test)]" || text.starts_with("[cfg(all(test")) {
                    skip_item(&mut rest);
                }
            }
            (TokenTree::Group(group), _) => {
                kept.push(Group::new(group.delimiter(), without_tests(group.stream())).into());
            }
            _ => kept.push(token),
        }
    }
    kept.into_iter().collect()
}

/// Skips an item: to its braces, or to the end of what has none.
fn skip_item(rest: &mut impl Iterator<Item = TokenTree>) {
    let mut is_import = false;
    for token in rest {
        match token {
            // The braces of an import are not its end.
            TokenTree::Ident(word) => is_import |= word == "use",
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is_import => return,
            TokenTree::Punct(end) if matches!(end.as_char(), ';' | ',') => return,
            _ => {}
        }
    }
}

/// Reads one file into its modules.
struct Reader<'a> {
    modules: &'a mut BTreeMap<Path, Module>,
    file: usize,
    module: Path,
}

impl Reader<'_> {
    fn here(&mut self) -> &mut Module {
        let module = self.modules.entry(self.module.clone()).or_default();
        module.file = self.file;
        module
    }

    fn define(&mut self, name: &Ident) {
        self.here().defines.insert(name.to_string());
    }

    fn name(&mut self, path: Path) {
        let here = self.here();
        here.words.extend(path.first().cloned());
        if path.len() > 1 {
            here.uses.push(path);
        }
    }

    /// One tree of an import: `a::b`, `a::b as c`, `a::*`, `a::{b, c}`.
    fn import(&mut self, tree: &UseTree, mut path: Path, is_export: bool) {
        let name = match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                return self.import(&tree.tree, path, is_export);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, path.clone(), is_export));
            }
            UseTree::Glob(_) => return self.here().globs.push(path),
            UseTree::Name(tree) => {
                path.extend((tree.ident != "self").then(|| tree.ident.to_string()));
                path.last().cloned()
            }
            UseTree::Rename(tree) => {
                path.extend((tree.ident != "self").then(|| tree.ident.to_string()));
                Some(tree.rename.to_string())
            }
        };
        self.here().imports.insert(name.unwrap_or_default(), Import { path, is_export });
    }

    /// The paths in what a macro is given.
    fn macro_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut before) = (Path::new(), String::new());
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if before != "::" {
                        self.name(std::mem::take(&mut path));
                    }
                    // A field or a method is no name of a module.
                    if before != "." {
                        path.push(name.to_string());
                    }
                    before.clear();
                }
                TokenTree::Punct(punct) => before.push(punct.as_char()),
                TokenTree::Group(group) => {
                    before.clear();
                    self.macro_tokens(group.stream());
                }
                TokenTree::Literal(_) => before.clear(),
            }
        }
        self.name(path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.define(&item.ident);
        if let Some((_, items)) = &item.content {
            self.module.push(item.ident.to_string());
            self.here();
            items.iter().for_each(|item| self.visit_item(item));
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, Path::new(), !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_item(&mut self, item: &'ast Item) {
        let name = match item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        if let Some(name) = name {
            self.define(name);
        }
        visit::visit_item(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.name(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.macro_tokens(call.tokens.clone());
    }

    /// The modules in `pub(in …)` are not needed.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}
