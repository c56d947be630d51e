//! `find_package(Freshwire)` as a user's project has it, after `make install` with the folders of several systems.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::{install, install_with};
use crate::{block_of_the_manual, has, run, send_with_the_manuals_program};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A project in an empty folder, which finds what is installed below `prefix`.
fn configure(project: &Path, lists: &str, prefix: &Path, options: &[&str]) -> Command {
    std::fs::create_dir_all(project).expect("a folder");
    std::fs::write(project.join("CMakeLists.txt"), lists).expect("written");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(project).arg("-B").arg(project.join("build")).arg("-G").arg("Unix Makefiles");
    cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())).args(options);
    // Nothing but the installation, and nothing of a `make test` around this one.
    cmake.arg("-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF").env_remove("CMAKE_PREFIX_PATH");
    cmake.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    cmake
}

/// Builds the manual's project with the manual's program, runs it, and returns the libraries that it loads.
fn build_and_run(project: &Path, lists: &str, prefix: &Path) -> String {
    std::fs::create_dir_all(project).expect("a folder");
    let program = project.join("build/position");
    send_with_the_manuals_program(&project.join("position.c"), || {
        run(&mut configure(project, lists, prefix, &["-DCMAKE_C_FLAGS=-Wall -Wextra -Werror"]));
        let mut cmake = Command::new("cmake");
        run(cmake.arg("--build").arg(project.join("build")).env_remove("MAKEFLAGS").env_remove("MAKELEVEL"));
        // No LD_LIBRARY_PATH: CMake gives the program the library's folder.
        let mut built = Command::new(&program);
        built.env_remove("LD_LIBRARY_PATH");
        built
    });
    run(Command::new("readelf").arg("--dynamic").arg(&program))
}

/// The manual's project with each of its two targets.
fn both_targets(work: &Path, prefix: &Path) {
    let lists = block_of_the_manual("```cmake\ncmake_minimum_required");
    let is_shared = |dynamic: &str| dynamic.contains("Shared library: [libfreshwire.so.1]");
    let dynamic = build_and_run(&work.join("shared"), &lists, prefix);
    assert!(is_shared(&dynamic), "{dynamic}");
    let of_static = lists.replace("Freshwire::freshwire)", "Freshwire::freshwire-static)");
    assert_ne!(lists, of_static);
    let dynamic = build_and_run(&work.join("static"), &of_static, prefix);
    assert!(!is_shared(&dynamic), "{dynamic}");
}

#[test]
fn the_manuals_project_is_built_in_each_layout() {
    if !has("cmake") {
        return;
    }
    let layouts: [(&str, &[&str]); 3] = [
        ("usr", &["PREFIX=/usr"]),
        ("usr/local", &[]),
        ("opt/fw", &["PREFIX=/opt/fw", "LIBDIR=/opt/fw/lib", "INCLUDEDIR=/opt/fw/include/deeper/still"]),
    ];
    for (prefix, folders) in layouts {
        let into = tempfile::tempdir().expect("a folder");
        let root = install_with(into.path(), folders);
        both_targets(into.path(), &root.join(prefix));
    }
}

/// As Debian has it: a folder for each architecture, and `/lib` is a symbolic link, below which no headers are.
#[test]
fn the_package_is_found_through_a_symbolic_link() {
    if !has("cmake") {
        return;
    }
    let into = tempfile::tempdir().expect("a folder");
    let triplet = run(Command::new("cc").arg("-print-multiarch"));
    let libdir = format!("LIBDIR=/usr/lib/{}", triplet.trim());
    let root = install_with(into.path(), &["PREFIX=/usr", &libdir]);
    symlink("usr/lib", root.join("lib")).expect("a link");
    both_targets(into.path(), &root);
}

/// Configures a project that only looks for the package; returns whether it is found, and what CMake says.
fn finds(work: &Path, request: &str, prefix: &Path, options: &[&str]) -> (bool, String) {
    let project = tempfile::tempdir_in(work).expect("a folder");
    let lists = format!(
        "cmake_minimum_required(VERSION 3.19)\nproject(look LANGUAGES NONE)\nfind_package(Freshwire {request} REQUIRED)\n\
         message(STATUS \"found ${{Freshwire_VERSION}}\")\n"
    );
    let output = configure(project.path(), &lists, prefix, options).output().expect("cmake starts");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success() && said.contains(&format!("found {VERSION}\n")), said)
}

#[test]
fn a_request_for_another_version_is_refused_with_ours() {
    if !has("cmake") {
        return;
    }
    let into = tempfile::tempdir().expect("a folder");
    let prefix = install(into.path()).join("usr");
    let [major, minor, patch] = [0, 1, 2].map(|part| {
        VERSION.split('.').nth(part).and_then(|number| number.parse::<u32>().ok()).expect("a number")
    });
    let newer = [format!("{major}.{minor}.{}", patch + 1), format!("{major}.{}", minor + 1)];
    let other_major = (major + 1).to_string();
    let satisfied =
        ["", VERSION, &format!("{major}.{minor}"), &format!("{VERSION} EXACT")].map(str::to_owned);
    let ranges = [format!("{VERSION}...{other_major}"), format!("0...{VERSION}")];
    for request in satisfied.iter().chain(&ranges) {
        let (found, said) = finds(into.path(), request, &prefix, &[]);
        assert!(found, "{request}: {said}");
    }
    let outside = [other_major.clone(), format!("{other_major}...100"), format!("0...<{VERSION}")];
    for request in newer.iter().chain(&outside) {
        let (found, said) = finds(into.path(), request, &prefix, &[]);
        assert!(!found && said.contains(&format!("version: {VERSION}")), "{request}: {said}");
    }
    let pointers = if cfg!(target_pointer_width = "64") { 4 } else { 8 };
    let (found, said) = finds(into.path(), "", &prefix, &[&format!("-DCMAKE_SIZEOF_VOID_P={pointers}")]);
    assert!(!found && said.contains(&format!("{VERSION} ({} bit)", usize::BITS)), "{said}");
}

#[test]
fn an_incomplete_installation_is_refused_with_the_missing_file() {
    if !has("cmake") {
        return;
    }
    for file in ["usr/lib/libfreshwire.so.1", "usr/lib/libfreshwire.a", "usr/include/freshwire.h"] {
        let into = tempfile::tempdir().expect("a folder");
        let root = install(into.path());
        std::fs::remove_file(root.join(file)).expect("it was installed");
        let (found, said) = finds(into.path(), "", &root.join("usr"), &[]);
        // CMake breaks lines between words.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!found && said.contains(&format!("{file} is missing: install libfreshwire again")), "{said}");
    }
}
