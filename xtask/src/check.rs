//! The rules of the workspace. Each rule is a function from text to findings; one sentence per finding.

mod budgets;
mod circles;
mod citations;
mod claims;
mod commands;
mod dependencies;
mod documents;
mod mask;
mod pauses;
mod publication;
mod requirements;
mod style;
mod texts;
mod unsafety;
mod workspace;

use std::path::Path;

use workspace::Workspace;

/// Runs every rule, prints what was found and returns whether nothing was.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let workspace = Workspace::load(root)?;
    let rules: [(&str, Vec<String>); 14] = [
        ("dependencies between crates", dependencies::findings(&workspace.packages)),
        ("circles between files", circles::findings(&workspace)),
        ("unused dependencies", dependencies::unused(&workspace)),
        ("publication", publication::findings(&workspace)),
        ("sizes", budgets::findings(&workspace)),
        ("unsafe code", unsafety::findings(&workspace)),
        ("rules of the specifications", citations::findings(&workspace)),
        ("pauses in tests", pauses::findings(&workspace)),
        ("requirements", requirements::findings(&workspace)),
        ("documents", documents::findings(&workspace)),
        ("commands in documents", commands::findings(&workspace)),
        ("texts", texts::findings(&workspace)),
        ("claims", claims::findings(&workspace)),
        ("style", style::findings(&workspace)),
    ];
    let mut clean = true;
    for (rule, findings) in rules {
        println!("{} {rule}", if findings.is_empty() { "ok  " } else { "FAIL" });
        for finding in findings {
            clean = false;
            println!("     {finding}");
        }
    }
    Ok(clean)
}
