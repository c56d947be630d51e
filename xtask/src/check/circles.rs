//! No circles between the files of a crate: a reader can start with a file that needs no other, and a file can move to another crate.
//!
//! A file needs another one if its code names something that is defined there, through `crate::`, `self::`, `super::`, a child module or an
//! import. Names are followed through re-exports to the file that defines them. A `mod` declaration, a re-export that the
//! file itself does not use, and code for tests need nothing.

mod graph;
mod source;

use super::workspace::{Package, Workspace};

/// Each circle of each crate.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let circles = |package| circles_of(workspace, package).into_iter().map(move |circle| (package, circle));
    let all = workspace.packages.iter().flat_map(circles);
    all.map(|(package, circle)| sentence(&package.name, &circle)).collect()
}

fn sentence(package: &str, circle: &[String]) -> String {
    let circle = circle.join(" -> ");
    format!("{package} has a circle between files: {circle}; move what both ends need to a file of its own")
}

/// Each circle as its files in order, the first one again at the end.
fn circles_of(workspace: &Workspace, package: &Package) -> Vec<Vec<String>> {
    let folder = format!("{}src/", package.folder);
    let files = workspace.files.iter().filter_map(|file| {
        let path = file.path.strip_prefix(&folder)?.strip_suffix(".rs")?;
        Some((path.to_owned(), file.text.as_str()))
    });
    circles(&source::Sources::read(files))
}

fn circles(sources: &source::Sources) -> Vec<Vec<String>> {
    let name = |file: usize| format!("{}.rs", sources.file_name(file));
    graph::circles(&sources.needs())
        .into_iter()
        .map(|circle| circle.into_iter().map(name).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), *text));
        circles(&source::Sources::read(files)).iter().map(|circle| circle.join(" ")).collect()
    }

    #[test]
    fn files_that_name_each_other_are_a_circle() {
        let files = [
            ("lib", "mod a;\nmod b;"),
            ("a", "use crate::b::B; pub struct A(B);"),
            ("b", "pub struct B; fn f(a: super::a::A) {}"),
        ];
        assert_eq!(found(&files), ["a.rs b.rs a.rs"]);
        assert!(found(&[files[0], files[1], ("b", "pub struct B;")]).is_empty());
    }

    #[test]
    fn a_circle_over_three_files_is_shown_at_its_shortest() {
        let found = found(&[
            ("main", "mod a; mod b; mod c;"),
            ("a", "use crate::b;\nfn f() { b::g() }"),
            ("b", "pub fn g() { crate::c::h() }"),
            ("c", "pub fn h() { crate::a::f(); crate::b::g() }"),
        ]);
        assert_eq!(found, ["b.rs c.rs b.rs"]);
    }

    #[test]
    fn a_parent_that_only_declares_and_exports_is_no_circle() {
        let child = ("a", "use super::Error; pub struct A;");
        assert!(
            found(&[
                ("lib", "mod a; mod error; pub use a::A; pub use error::Error;"),
                child,
                ("error", "pub struct Error;")
            ])
            .is_empty()
        );
        assert_eq!(
            found(&[("lib", "mod a; pub use a::A; pub struct Error(A);"), child]),
            ["a.rs lib.rs a.rs"]
        );
        assert_eq!(
            found(&[("lib", "mod a; pub struct Error; fn f() { a::g() }"), child]),
            ["a.rs lib.rs a.rs"]
        );
    }

    #[test]
    fn names_are_followed_through_exports_and_globs() {
        let files = [
            ("lib", "mod a; mod b; pub use a::*;"),
            ("a", "mod deep; pub use deep::Deep as Named;"),
            ("a/deep", "pub struct Deep; fn f() { crate::b::g() }"),
            ("b", "pub fn g(x: crate::Named) {}"),
        ];
        assert_eq!(found(&files), ["a/deep.rs b.rs a/deep.rs"]);
    }

    #[test]
    fn tests_are_left_out() {
        let a = (
            "a",
            "pub struct A; #[cfg(test)] mod tests { use super::*; use crate::b::B; }\n#[cfg(test)]\nuse crate::b::B;",
        );
        let b = ("b", "pub struct B(crate::a::A);");
        assert!(
            found(&[
                ("lib", "mod a; mod b; #[cfg(test)] mod testing;"),
                a,
                b,
                ("testing", "use crate::b::B;")
            ])
            .is_empty()
        );
        let uses_testing = ("b", "pub struct B; fn f() { crate::testing::t() }");
        assert!(
            found(&[
                ("lib", "mod b; #[cfg(all(test, unix))] mod testing;"),
                uses_testing,
                ("testing", "use crate::b::B;")
            ])
            .is_empty()
        );
    }

    #[test]
    fn folders_modules_inside_files_and_visibility_are_understood() {
        let files = [
            ("lib", "mod a; mod b;"),
            ("a/mod", "pub(in crate::b) struct X; pub mod inner { pub struct A; fn f(x: super::X) {} }"),
            ("b", "use crate::a::inner::A; // use crate::a\nconst TEXT: &str = \"crate::a::X\";"),
        ];
        assert!(found(&files).is_empty());
        assert_eq!(
            found(&[
                files[0],
                ("a/mod", "pub mod inner { use super::super::b::B; }"),
                ("b", "use crate::a::{inner::{self, A}}; pub struct B(inner::C);")
            ]),
            ["a/mod.rs b.rs a/mod.rs"]
        );
    }

    #[test]
    fn a_finding_names_the_crate_and_the_files() {
        let circle = ["a.rs", "b.rs", "a.rs"].map(str::to_owned);
        assert_eq!(
            sentence("p", &circle),
            "p has a circle between files: a.rs -> b.rs -> a.rs; move what both ends need to a file of its own"
        );
    }
}
