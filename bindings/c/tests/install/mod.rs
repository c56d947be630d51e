//! `make install` into a folder: names, versions and the soname of the library, and programs that are built with pkg-config or CMake
//! alone.

mod cmake;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{WARNINGS, folder, has, libraries, run};

/// Where nothing but the installation is.
const PREFIX: &str = "/usr";

/// Installs what cargo has built for this test.
fn install(into: &Path) -> PathBuf {
    install_with(into, &[&format!("PREFIX={PREFIX}")])
}

/// The same with the folders that these variables of the Makefile name.
fn install_with(into: &Path, folders: &[&str]) -> PathBuf {
    let root = into.join("root");
    let variable = |name: &str, value: &Path| format!("{name}={}", value.display());
    let mut make = Command::new("make");
    make.arg("-C").arg(folder()).args(["--silent", "install"]).args(folders);
    make.arg(variable("DESTDIR", &root)).arg(variable("O", &into.join("built")));
    make.arg(variable("ARCHIVE", &libraries().join("libfreshwire_c.a")));
    // These are set by a `make test` around this one.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    run(&mut make);
    root
}

/// The functions that the installed headers declare.
fn declared(include: &Path) -> BTreeSet<String> {
    let parts = std::fs::read_dir(include.join("freshwire")).expect("the headers that freshwire.h includes");
    let parts = parts.map(|part| part.expect("a header").path());
    let code: String = parts
        .chain([include.join("freshwire.h")])
        .map(|header| std::fs::read_to_string(header).expect("a header"))
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| line + "\n")
        .collect();
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
    let root = install(into.path());
    let library = root.join("usr/lib/libfreshwire.so.1");
    let names =
        run(Command::new("nm").args(["--dynamic", "--defined-only", "--with-symbol-versions"]).arg(&library));
    let exported: BTreeSet<String> = names
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        // The name of the version itself is a symbol too.
        .filter(|name| *name != "FRESHWIRE_1@@FRESHWIRE_1" && *name != "FRESHWIRE_1")
        .map(str::to_owned)
        .collect();
    let expected: BTreeSet<String> =
        declared(&root.join("usr/include")).iter().map(|name| format!("{name}@@FRESHWIRE_1")).collect();
    assert!(expected.len() > 30, "{expected:?}");
    assert_eq!(exported, expected);
    let dynamic = run(Command::new("readelf").arg("--dynamic").arg(&library));
    assert!(dynamic.contains("Library soname: [libfreshwire.so.1]"), "{dynamic}");
}

/// Builds an example with the installation and starts it with these arguments; `None` without pkg-config. Returns the address that it
/// names in its first line.
fn example(name: &str, arguments: &[&str], into: &Path) -> Option<(Child, String)> {
    if !has("pkg-config") {
        return None;
    }
    let root = install(into);
    let pkg_config = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_LIBDIR", root.join("usr/lib/pkgconfig")).env("PKG_CONFIG_SYSROOT_DIR", &root);
        // It would leave out what the system's compiler finds anyway; this folder is not the system's.
        command.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1").env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
        run(command.args(arguments).arg("freshwire"))
    };
    assert_eq!(pkg_config(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let flags = pkg_config(&["--cflags", "--libs"]);
    let program = into.join(name);
    let mut cc = Command::new("cc");
    let source = folder().join(format!("examples/{name}.c"));
    cc.arg("-std=gnu11").args(WARNINGS).arg(source).arg("-o").arg(&program);
    run(cc.args(flags.split_whitespace()));
    let mut started = Command::new(&program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", root.join("usr/lib"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example starts");
    let mut line = String::new();
    BufReader::new(started.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with(concat!("libfreshwire ", env!("CARGO_PKG_VERSION"), " ")), "{line}");
    let address = line.trim().rsplit([' ', '/']).next().expect("an address").to_owned();
    Some((started, address))
}

fn connect(address: &str) -> TcpStream {
    let client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    client
}

#[test]
fn an_example_is_built_with_pkg_config_and_runs() {
    let into = tempfile::tempdir().expect("a folder");
    let Some((mut positions, address)) = example("positions", &["0", "20"], into.path()) else { return };
    let mut text = String::new();
    connect(&address).read_to_string(&mut text).expect("positions");
    for object in 1..=50 {
        assert!(
            text.contains(&format!("object {object}, tick 19\n")),
            "the last value of {object} is missing"
        );
    }
    assert!(positions.wait().expect("it ends").success());
}

/// A page, a page of another site, and a browser that gets the newest values until the example ends.
#[test]
fn the_example_for_browsers_serves_a_page_and_values() {
    let into = tempfile::tempdir().expect("a folder");
    let Some((mut browser, address)) = example("browser", &["0", "20"], into.path()) else { return };
    let ask = |request: &str| {
        let mut client = connect(&address);
        client.write_all(request.replace("HOST", &address).as_bytes()).expect("written");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("an answer, and its end");
        answer
    };
    let upgrade = |origin: &str| {
        format!(
            "GET /values HTTP/1.1\r\nHost: HOST\r\nOrigin: http://{origin}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
    };
    let page = ask("GET / HTTP/1.1\r\nHost: HOST\r\n\r\n");
    assert!(page.starts_with(b"HTTP/1.1 200 OK\r\n") && page.ends_with(b"</script>\n"), "{page:?}");
    assert_eq!(ask(&upgrade("evil.example")), b"", "a page of another site gets nothing");
    let answer = ask(&upgrade("HOST"));
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&answer[..end]);
    assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    let values = String::from_utf8_lossy(&answer[end..]);
    // Which ticks come depends on the machine: what is queued at the next tick, or at the end, is not sent.
    for gauge in 1..=8 {
        let ticks: Vec<u32> = values
            .split(&format!("{{\"gauge\":{gauge},\"tick\":"))
            .skip(1)
            .map(|rest| rest.split('}').next().expect("a part").parse().expect("a number"))
            .collect();
        assert!(!ticks.is_empty() && ticks.is_sorted_by(|a, b| a < b), "{gauge}: {values}");
    }
    assert!(values.ends_with("the example ends"), "{values}");
    assert!(browser.wait().expect("it ends").success());
}
