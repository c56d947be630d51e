//! What a registry asks of a crate that is published, and the one version of the workspace.

use super::workspace::{Package, Workspace};

/// What the registry takes at most.
const MOST_KEYWORDS: usize = 5;
const MOST_CATEGORIES: usize = 5;
/// Each crate carries the texts of its licence.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Published crates that lack something, or need a crate that is not published.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let packages = &workspace.packages;
    let mut findings: Vec<String> = packages
        .iter()
        .filter(|package| package.is_published)
        .flat_map(|package| of_package(package, packages))
        .collect();
    for package in packages.iter().filter(|package| package.is_published) {
        for name in ["README.md"].iter().chain(&LICENCES) {
            let path = format!("{}{name}", package.folder);
            if !workspace.sizes.iter().any(|(present, _)| *present == path) {
                findings.push(format!("{} is published and lacks {path}", package.name));
            }
        }
    }
    let version = packages.first().map_or("", |package| &package.version);
    let others = packages.iter().filter(|package| package.version != version);
    findings.extend(others.map(|package| {
        format!("{} has version {}, the workspace has {version}", package.name, package.version)
    }));
    findings
}

fn of_package(package: &Package, packages: &[Package]) -> Vec<String> {
    let name = &package.name;
    let mut findings = Vec::new();
    let facts = [
        ("description", usize::from(package.has_description), 1),
        ("license", usize::from(package.has_license), 1),
        ("repository", usize::from(package.has_repository), 1),
        ("readme", usize::from(package.has_readme), 1),
        ("keywords", package.keywords, MOST_KEYWORDS),
        ("categories", package.categories, MOST_CATEGORIES),
    ];
    for (what, count, most) in facts {
        if count == 0 {
            findings.push(format!("{name} is published without {what}"));
        } else if count > most {
            findings.push(format!("{name} has {count} {what}, a registry takes {most}"));
        }
    }
    for dependency in package.dependencies.iter().filter(|dependency| dependency.local) {
        let Some(target) = packages.iter().find(|other| other.name == dependency.name) else { continue };
        // Cargo leaves dependencies of tests without a version out of what it publishes.
        let needed = !dependency.for_tests || dependency.requirement != "*";
        if needed && !target.is_published {
            findings.push(format!("{name} is published and needs {}, which is not", target.name));
        }
        if !dependency.for_tests && dependency.requirement != format!("^{}", target.version) {
            findings.push(format!(
                "{name} asks for {} {}, the workspace has {}",
                target.name, dependency.requirement, target.version
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::workspace::Dependency;
    use super::*;

    fn complete(name: &str) -> Package {
        Package {
            name: name.to_owned(),
            folder: format!("crates/{name}/"),
            version: "1.2.3".to_owned(),
            is_published: true,
            has_description: true,
            has_license: true,
            has_repository: true,
            has_readme: true,
            keywords: 2,
            categories: 1,
            ..Package::default()
        }
    }

    fn found(packages: Vec<Package>) -> Vec<String> {
        let files = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];
        let sizes = packages
            .iter()
            .flat_map(|package| files.map(|file| (format!("{}{file}", package.folder), 1)))
            .collect();
        findings(&Workspace { packages, sizes, ..Workspace::default() })
    }

    #[test]
    fn a_complete_crate_may_be_published_and_another_need_not() {
        let private = Package { version: "1.2.3".to_owned(), ..Package::default() };
        assert!(found(vec![complete("a"), private]).is_empty());
        assert_eq!(
            found(vec![Package { has_readme: false, ..complete("a") }]),
            ["a is published without readme"]
        );
        assert_eq!(
            found(vec![Package { keywords: 6, ..complete("a") }]),
            ["a has 6 keywords, a registry takes 5"]
        );
    }

    #[test]
    fn a_published_crate_needs_published_ones_of_the_same_version() {
        let with = |for_tests, requirement: &str| Package {
            dependencies: vec![Dependency {
                name: "b".to_owned(),
                local: true,
                for_tests,
                requirement: requirement.to_owned(),
                ..Dependency::default()
            }],
            ..complete("a")
        };
        let private = Package { is_published: false, ..complete("b") };
        assert!(found(vec![with(false, "^1.2.3"), complete("b")]).is_empty());
        assert_eq!(found(vec![with(false, "*"), complete("b")]), ["a asks for b *, the workspace has 1.2.3"]);
        assert_eq!(
            found(vec![with(false, "^1.2.3"), private.clone()]),
            ["a is published and needs b, which is not"]
        );
        assert!(found(vec![with(true, "*"), private]).is_empty());
        assert_eq!(
            found(vec![complete("a"), Package { version: "2.0.0".to_owned(), ..complete("b") }]),
            ["b has version 2.0.0, the workspace has 1.2.3"]
        );
    }

    #[test]
    fn a_missing_licence_is_named() {
        let lacking = findings(&Workspace { packages: vec![complete("a")], ..Workspace::default() });
        assert_eq!(lacking.len(), 3, "{lacking:?}");
    }
}
