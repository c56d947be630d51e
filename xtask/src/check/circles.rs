//! No circles inside a crate, neither between files nor between the modules below one parent. A reader can start with what needs
//! nothing else, and a module can move to another crate.
//!
//! A file needs another one if its code names something that is defined there, through `crate::`, `self::`, `super::`, a child module or an
//! import. Names are followed through re-exports to the file that defines them. A `mod` declaration, a re-export that the
//! file itself does not use, and code for tests need nothing. A module needs all that the files below it need: `config` needs `http`
//! if `config/file.rs` names what `http.rs` exports of `http/origin.rs`.

mod graph;
mod source;

use super::workspace::{Package, Workspace};

/// Each circle of each crate.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    workspace
        .packages
        .iter()
        .flat_map(|package| {
            circles_of(workspace, package).into_iter().map(|circle| sentence(&package.name, &circle))
        })
        .collect()
}

fn sentence(package: &str, Circle { between, names }: &Circle) -> String {
    let names = names.join(" -> ");
    let one = between.trim_end_matches('s');
    format!(
        "{package} has a circle between {between}: {names}; move what both ends need to a {one} of its own"
    )
}

/// The names of what needs each other, in order, the first one again at the end.
struct Circle {
    between: &'static str,
    names: Vec<String>,
}

fn circles_of(workspace: &Workspace, package: &Package) -> Vec<Circle> {
    let folder = format!("{}src/", package.folder);
    let files = workspace.files.iter().filter_map(|file| {
        let path = file.path.strip_prefix(&folder)?.strip_suffix(".rs")?;
        Some((path.to_owned(), file.text.as_str()))
    });
    circles(&source::Sources::read(files))
}

/// Circles between modules count only where there are none between files, which are the same ones at close range.
fn circles(sources: &source::Sources) -> Vec<Circle> {
    let named = |between, needs: &[_], name: &dyn Fn(usize) -> String| -> Vec<_> {
        let circles = graph::circles(needs).into_iter();
        circles.map(|circle| Circle { between, names: circle.into_iter().map(name).collect() }).collect()
    };
    let files = named("files", &sources.needs(), &|file| format!("{}.rs", sources.file_name(file)));
    if !files.is_empty() {
        return files;
    }
    let modules = sources.module_needs();
    named("modules", &modules.needs, &|module| modules.names[module].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), *text));
        circles(&source::Sources::read(files)).iter().map(|circle| circle.names.join(" ")).collect()
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
    fn modules_that_need_each_other_through_exports_are_a_circle() {
        let files = [
            ("lib", "mod config; mod http;"),
            ("config", "mod limits; mod file; pub use limits::Limits;"),
            ("config/limits", "pub struct Limits;"),
            ("config/file", "use crate::http::Origins; fn f(x: Origins) {}"),
            ("http", "mod connection; mod origin; pub use origin::Origins;"),
            ("http/connection", "use crate::config::Limits; struct Connection(Limits);"),
            ("http/origin", "pub struct Origins;"),
        ];
        assert_eq!(found(&files), ["config http config"]);
        let mut leaf = files;
        leaf[3].1 = "use super::origin::Origins; fn f(x: Origins) {}";
        leaf[4].1 = "mod connection; pub use crate::config::Origins;";
        leaf[1].1 = "mod limits; mod file; mod origin; pub use limits::Limits; pub use origin::Origins;";
        leaf[6].0 = "config/origin";
        assert!(found(&leaf).is_empty());
    }

    #[test]
    fn modules_below_one_parent_are_compared_at_each_depth() {
        let files = [
            ("lib", "mod recovery;"),
            ("recovery", "mod pacer; mod congestion;"),
            ("recovery/pacer", "use super::congestion::Rate; pub const QUANTUM: u32 = 1; fn f(x: Rate) {}"),
            ("recovery/congestion", "mod copa; mod rate; pub use rate::Rate;"),
            ("recovery/congestion/copa", "fn f() -> u32 { super::super::pacer::QUANTUM }"),
            ("recovery/congestion/rate", "pub struct Rate;"),
        ];
        assert_eq!(found(&files), ["recovery/congestion recovery/pacer recovery/congestion"]);
    }

    #[test]
    fn macros_attributes_and_fields_are_understood() {
        let files = [
            ("lib", "mod a; mod b;"),
            ("a", "pub struct A { #[cfg(test)] b: crate::b::B, /// Text.\n #[cfg(test)] c: u8 }"),
            ("b", "#[derive(Debug)] pub struct B; fn f() { assert!(x.b == [y, crate::a::A::new()]); }"),
        ];
        assert!(found(&files).is_empty());
        let uses = ("a", "pub struct A; fn f() { vec![1, g(&crate::b::B)]; }");
        assert_eq!(found(&[files[0], uses, files[2]]), ["a.rs b.rs a.rs"]);
    }

    #[test]
    fn a_finding_names_the_crate_and_the_circle() {
        let circle = |between| Circle { between, names: ["a", "b", "a"].map(str::to_owned).into() };
        assert_eq!(
            ["files", "modules"].map(|between| sentence("p", &circle(between))),
            [
                "p has a circle between files: a -> b -> a; move what both ends need to a file of its own",
                "p has a circle between modules: a -> b -> a; move what both ends need to a module of its own"
            ]
        );
    }
}
