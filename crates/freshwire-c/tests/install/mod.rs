//! `make install` into a folder: names, versions and the soname of the library, and a program that is built with pkg-config alone.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{WARNINGS, folder, has, libraries, run};

/// Where nothing but the installation is.
const PREFIX: &str = "/usr";

/// Installs what cargo has built for this test.
fn install(into: &Path) -> PathBuf {
    let root = into.join("root");
    let variable = |name: &str, value: &Path| format!("{name}={}", value.display());
    let mut make = Command::new("make");
    make.arg("-C").arg(folder()).args(["--silent", "install", &format!("PREFIX={PREFIX}")]);
    make.arg(variable("DESTDIR", &root)).arg(variable("O", &into.join("built")));
    make.arg(variable("ARCHIVE", &libraries().join("libfreshwire_c.a")));
    // Of a `make test` around this one.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    run(&mut make);
    root
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(folder().join("include/freshwire.h")).expect("the header");
    let code =
        header.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let names = code.match_indices("fw_").filter_map(|(at, _)| {
        let name: String =
            code[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let is_whole = !code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        (is_whole && code[at + name.len()..].starts_with('(')).then_some(name)
    });
    names.collect()
}

#[test]
fn the_library_has_the_headers_functions_with_their_version() {
    let into = tempfile::tempdir().expect("a folder");
    let library = install(into.path()).join("usr/lib/libfreshwire.so.1");
    let names =
        run(Command::new("nm").args(["--dynamic", "--defined-only", "--with-symbol-versions"]).arg(&library));
    let exported: BTreeSet<String> = names
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        // The name of the version itself is a symbol too.
        .filter(|name| *name != "FRESHWIRE_1@@FRESHWIRE_1" && *name != "FRESHWIRE_1")
        .map(str::to_owned)
        .collect();
    let expected: BTreeSet<String> = declared().iter().map(|name| format!("{name}@@FRESHWIRE_1")).collect();
    assert!(expected.len() > 30, "{expected:?}");
    assert_eq!(exported, expected);
    let dynamic = run(Command::new("readelf").arg("--dynamic").arg(&library));
    assert!(dynamic.contains("Library soname: [libfreshwire.so.1]"), "{dynamic}");
}

#[test]
fn an_example_is_built_with_pkg_config_and_runs() {
    if !has("pkg-config") {
        return;
    }
    let into = tempfile::tempdir().expect("a folder");
    let root = install(into.path());
    let pkg_config = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_LIBDIR", root.join("usr/lib/pkgconfig")).env("PKG_CONFIG_SYSROOT_DIR", &root);
        // It would leave out what the system's compiler finds anyway; this folder is not the system's.
        command.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1").env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
        run(command.args(arguments).arg("freshwire"))
    };
    assert_eq!(pkg_config(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let flags = pkg_config(&["--cflags", "--libs"]);
    let program = into.path().join("positions");
    let mut cc = Command::new("cc");
    cc.arg("-std=gnu11").args(WARNINGS).arg(folder().join("examples/positions.c")).arg("-o").arg(&program);
    run(cc.args(flags.split_whitespace()));

    let mut positions = Command::new(&program)
        .args(["0", "20"])
        .env("LD_LIBRARY_PATH", root.join("usr/lib"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example starts");
    let mut line = String::new();
    BufReader::new(positions.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with(concat!("libfreshwire ", env!("CARGO_PKG_VERSION"), " listens on ")), "{line}");
    let address = line.trim().rsplit(' ').next().expect("an address");
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("positions");
    for object in 1..=50 {
        assert!(
            text.contains(&format!("object {object}, tick 19\n")),
            "the last value of {object} is missing"
        );
    }
    assert!(positions.wait().expect("it ends").success());
}
