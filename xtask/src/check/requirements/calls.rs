//! Calls of programs, as found in the sources.

use std::collections::BTreeMap;

/// Each name with the first place that uses it.
pub(super) type Found = BTreeMap<String, String>;

/// What sources call.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) programs: Found,
    pub(super) elements: Found,
    pub(super) modules: Found,
    pub(super) typelibs: Found,
    /// Places that do not say what they call.
    pub(super) unknown: Vec<String>,
}

impl Calls {
    fn add(found: &mut Found, path: &str, line: usize, name: &str) {
        found.entry(name.to_owned()).or_insert_with(|| format!("{path}:{line}"));
    }

    pub(super) fn program(&mut self, path: &str, line: usize, name: &str) {
        // A path within the repository, or a system's own place for a program.
        let name = name.rsplit('/').next().unwrap_or(name);
        let is_name = |next: char| next.is_ascii_alphanumeric() || "._+-".contains(next);
        if name.starts_with(|first: char| first.is_ascii_alphabetic()) && name.chars().all(is_name) {
            Self::add(&mut self.programs, path, line, name);
        }
    }

    pub(super) fn element(&mut self, path: &str, line: usize, name: &str) {
        Self::add(&mut self.elements, path, line, name);
    }

    pub(super) fn module(&mut self, path: &str, line: usize, name: &str) {
        Self::add(&mut self.modules, path, line, name);
    }

    pub(super) fn typelib(&mut self, path: &str, line: usize, name: &str) {
        Self::add(&mut self.typelibs, path, line, name);
    }

    pub(super) fn unknown(&mut self, path: &str, line: usize, what: &str) {
        self.unknown.push(format!("{path}:{line} {what}"));
    }
}
