//! The table of what tests, the demo and the packages need: `xtask/requirements.txt`. `xtask/install.sh` installs from it,
//! `cargo xtask test` asks it, and `cargo xtask check` compares it with the sources.

pub(crate) const TABLE: &str = "xtask/requirements.txt";

/// What things are needed for; after `bench` the steps of `packaging/build.sh` that need more than others.
const JOBS: [&str; 10] = [
    "test",
    "demo",
    "packages",
    "packages-test",
    "bench",
    "binaries",
    "wheel",
    "library",
    "gstreamer",
    "python",
];

/// What a requirement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A program in the path.
    Program,
    /// An element of GStreamer.
    Element,
    /// A module of Debian's Python.
    Python,
    /// A library described for Python's `gi`.
    Typelib,
    /// A header of C.
    Header,
    /// A shared library.
    Library,
    /// A library with its least version for `pkg-config`, or with none.
    PkgConfig,
    /// A program without shared libraries.
    Static,
    /// A script of this repository that says with `--check` whether it can run.
    Script,
}

const KINDS: [(&str, Kind); 9] = [
    ("program", Kind::Program),
    ("element", Kind::Element),
    ("python", Kind::Python),
    ("typelib", Kind::Typelib),
    ("header", Kind::Header),
    ("library", Kind::Library),
    ("pkg-config", Kind::PkgConfig),
    ("static", Kind::Static),
    ("script", Kind::Script),
];

impl Kind {
    /// Its word in the table.
    pub(crate) fn word(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }
}

/// One name of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// Debian packages, separated by commas.
    pub(crate) packages: String,
    /// In the table, from 1.
    pub(crate) line: usize,
}

/// Reads the table.
pub(crate) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut rows: Vec<Requirement> = Vec::new();
    for (number, row) in text.lines().enumerate() {
        let line = number + 1;
        let words: Vec<&str> = row.split_whitespace().collect();
        if row.trim_start().starts_with('#') || words.is_empty() {
            continue;
        }
        let [kind, names, packages, jobs @ ..] = words.as_slice() else {
            return Err(format!("{TABLE}:{line} is not `kind names packages jobs`"));
        };
        let Some((_, kind)) = KINDS.iter().find(|(word, _)| word == kind) else {
            return Err(format!("{TABLE}:{line} has the unknown kind {kind}"));
        };
        if jobs.is_empty() || !jobs.iter().all(|job| JOBS.contains(&job.trim_end_matches('!'))) {
            return Err(format!(
                "{TABLE}:{line} needs jobs of {}, with `!` where nothing runs without it",
                JOBS.join(", ")
            ));
        }
        for name in names.split(',') {
            if rows.iter().any(|row| row.kind == *kind && row.name == name) {
                return Err(format!("{TABLE}:{line} names the {} {name} twice", kind.word()));
            }
            rows.push(Requirement {
                kind: *kind,
                name: name.to_owned(),
                packages: (*packages).to_owned(),
                line,
            });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_a_kind_names_packages_and_jobs() {
        let rows = parse("# comment\n\nprogram cat,cp coreutils test packages!\n").expect("a table");
        assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["cat", "cp"]);
        assert_eq!(rows[0].line, 3);
        for wrong in [
            "program cat",
            "programme cat coreutils test",
            "program cat coreutils",
            "program cat coreutils tests",
            "program cat,cat coreutils test",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
