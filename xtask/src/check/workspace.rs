//! What the rules look at: the packages of `cargo metadata` and the files that git tracks.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

/// A member of the workspace.
#[derive(Clone, Debug, Default)]
pub(super) struct Package {
    pub(super) name: String,
    /// Relative to the workspace's root, with a slash at the end.
    pub(super) folder: String,
    pub(super) version: String,
    /// A registry may have it.
    pub(super) is_published: bool,
    pub(super) has_description: bool,
    pub(super) has_license: bool,
    pub(super) has_repository: bool,
    pub(super) has_readme: bool,
    /// How many.
    pub(super) keywords: usize,
    /// How many.
    pub(super) categories: usize,
    /// The lowest Rust version that it declares.
    pub(super) rust_version: String,
    /// The root files of its library and programs, relative to the workspace's root.
    pub(super) crate_roots: Vec<String>,
    /// Names of its test programs: `--test NAME`.
    pub(super) tests: Vec<String>,
    pub(super) dependencies: Vec<Dependency>,
}

/// A direct dependency, of any kind: normal, build or test.
#[derive(Clone, Debug, Default)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// What its manifest calls it in code, if that is not the package's name.
    pub(super) alias: Option<String>,
    /// The versions that it accepts: `*` without any.
    pub(super) requirement: String,
    /// It is a folder of this workspace, not a third party's crate.
    pub(super) local: bool,
    /// Only tests and examples use it.
    pub(super) for_tests: bool,
}

/// A text file, its path relative to the workspace's root.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
}

#[derive(Default)]
pub(super) struct Workspace {
    pub(super) packages: Vec<Package>,
    pub(super) files: Vec<File>,
    /// Path and size in bytes of every file, binary ones included.
    pub(super) sizes: Vec<(String, u64)>,
}

impl Workspace {
    pub(super) fn load(root: &Path) -> anyhow::Result<Self> {
        let metadata = output(root, "cargo", &["metadata", "--format-version=1", "--no-deps"])?;
        let metadata: Value = serde_json::from_slice(&metadata).context("cargo metadata is not JSON")?;
        let paths = paths(root)?;
        Ok(Self {
            packages: packages(root, &metadata)?,
            files: files(root, &paths),
            sizes: sizes(root, &paths),
        })
    }

    pub(super) fn file(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }
}

/// Whether a file belongs to a package of the workspace other than this tool.
pub(super) fn is_in_wing(path: &str) -> bool {
    ["crates/", "bindings/", "host/", "research/"].iter().any(|wing| path.starts_with(wing))
}

fn output(root: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {} failed: {errors}", arguments.join(" "));
    Ok(output.stdout)
}

fn packages(root: &Path, metadata: &Value) -> anyhow::Result<Vec<Package>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    packages.iter().map(|package| read_package(root, package)).collect()
}

fn read_package(root: &Path, package: &Value) -> anyhow::Result<Package> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let manifest = PathBuf::from(text(&package["manifest_path"]));
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
    let folder = folder.with_context(|| format!("{} is outside the workspace", manifest.display()))?;
    let crate_roots = list(&package["targets"])
        .iter()
        .filter(|target| list(&target["kind"]).iter().any(|kind| kind == "lib" || kind == "bin"))
        .filter_map(|target| {
            Path::new(target["src_path"].as_str()?).strip_prefix(root).ok()?.to_str().map(str::to_owned)
        })
        .collect();
    let tests = list(&package["targets"])
        .iter()
        .filter(|target| list(&target["kind"]).iter().any(|kind| kind == "test"))
        .map(|target| text(&target["name"]))
        .collect();
    let dependencies = list(&package["dependencies"])
        .iter()
        .map(|dependency| Dependency {
            name: text(&dependency["name"]),
            alias: dependency["rename"].as_str().map(str::to_owned),
            requirement: text(&dependency["req"]),
            local: !dependency["path"].is_null(),
            for_tests: dependency["kind"] == "dev",
        })
        .collect();
    Ok(Package {
        name: text(&package["name"]),
        folder: format!("{}/", folder.display()),
        version: text(&package["version"]),
        // `publish = false` is a list of no registries, `publish = true` is null.
        is_published: package["publish"].is_null(),
        has_description: !package["description"].is_null(),
        has_license: !package["license"].is_null(),
        has_repository: !package["repository"].is_null(),
        has_readme: !package["readme"].is_null(),
        keywords: list(&package["keywords"]).len(),
        categories: list(&package["categories"]).len(),
        rust_version: text(&package["rust_version"]),
        crate_roots,
        tests,
        dependencies,
    })
}

/// Paths of tracked and new files that git does not ignore.
fn paths(root: &Path) -> anyhow::Result<Vec<String>> {
    // A checkout that another user owns, as in many build containers, is read all the same.
    const LIST: &[&str] =
        &["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let names = output(root, "git", LIST)?;
    let names = String::from_utf8(names).context("a file's name is not UTF-8")?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

/// The text files among these. A tracked file may be deleted in the working tree, and a picture is not text.
fn files(root: &Path, paths: &[String]) -> Vec<File> {
    let read = |path: &String| {
        Some(File { path: path.clone(), text: std::fs::read_to_string(root.join(path)).ok()? })
    };
    paths.iter().filter_map(read).collect()
}

fn sizes(root: &Path, paths: &[String]) -> Vec<(String, u64)> {
    let size = |path: &String| Some((path.clone(), std::fs::symlink_metadata(root.join(path)).ok()?.len()));
    paths.iter().filter_map(size).collect()
}
