//! The conversations of the Rust tests in C: `conversation.c`, `a1.c` and `websocket.c` in `tests/c`. They
//! run against the shared and the static library, with the address, undefined-behaviour and leak sanitizers,
//! and under valgrind. Module `install` tests `make install`.

mod install;

use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with `libfreshwire_c.so` and `.a`, which cargo has built for this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a program");
    test.parent().expect("the folder of dependencies").to_owned()
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

const WARNINGS: [&str; 7] =
    ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Werror"];

/// Libraries that the static library needs besides; `rustc --print native-static-libs` names them.
const SYSTEM: [&str; 5] = ["-lgcc_s", "-lrt", "-lpthread", "-lm", "-ldl"];

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

/// The programs, each of which ends with the same line.
const PROGRAMS: [&str; 3] = ["conversation", "a1", "websocket"];

fn compile(name: &str, to: &Path, options: &[&str], is_static: bool) {
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-g", "-O1"]).args(WARNINGS).args(options);
    cc.arg("-I").arg(folder().join("include")).arg("-o").arg(to);
    cc.arg(folder().join(format!("tests/c/{name}.c")));
    match is_static {
        true => cc.arg(libraries().join("libfreshwire_c.a")).args(SYSTEM),
        false => cc.arg("-L").arg(libraries()).arg("-lfreshwire_c").arg("-lpthread"),
    };
    run(&mut cc);
}

fn converse(mut command: Command) {
    let text = run(command.env("LD_LIBRARY_PATH", libraries()));
    assert!(text.contains("conversation: ok"), "{text}");
}

/// Compiles and runs all programs.
fn converse_with(options: &[&str], is_static: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    for name in PROGRAMS {
        let program = folder.path().join(name);
        compile(name, &program, options, is_static);
        converse(Command::new(program));
    }
}

#[test]
fn with_the_shared_library() {
    converse_with(&[], false);
}

#[test]
fn with_the_static_library() {
    converse_with(&[], true);
}

#[test]
fn with_the_address_sanitizer() {
    converse_with(&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], false);
}

#[test]
fn over_loopback() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("loopback");
    compile("loopback", &program, &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], false);
    let text = run(Command::new(program).env("LD_LIBRARY_PATH", libraries()));
    assert!(text.contains("loopback: ok"), "{text}");
}

/// `make memory` runs it over a hundred million records.
#[test]
fn memory_is_flat_over_a_million_records() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("memory");
    compile("memory", &program, &[], false);
    let records = std::env::var("FRESHWIRE_MEMORY_RECORDS").unwrap_or_else(|_| "1000000".to_owned());
    let text = run(Command::new(program).arg(records).env("LD_LIBRARY_PATH", libraries()));
    assert!(text.contains("memory: ok"), "{text}");
}

/// Whether a program is there, which it has to be in CI.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    assert!(found || std::env::var_os("CI").is_none(), "{program} is missing (CI: nothing may be skipped)");
    if !found {
        eprintln!("skipped: {program} is missing");
    }
    found
}

#[test]
fn under_valgrind_nothing_is_lost_or_invalid() {
    if !has("valgrind") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for name in PROGRAMS {
        let program = folder.path().join(name);
        compile(name, &program, &[], false);
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        valgrind.args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite", "--fair-sched=yes"]);
        valgrind.arg(program).arg("without-forks");
        converse(valgrind);
    }
}

const MANUAL: &str = "../../docs/c.md";

/// The first block of the manual that starts with these lines.
fn block_of_the_manual(start: &str) -> String {
    let manual = std::fs::read_to_string(folder().join(MANUAL)).expect("the manual");
    let at = manual.find(start).unwrap_or_else(|| panic!("{MANUAL} has no {start}"));
    let block = &manual[at..][start.find('\n').expect("a fence, and a line") + 1..];
    block.split("```").next().expect("a block").to_owned()
}

/// Writes the manual's first program to a file, and lets what `build` makes of it send to a viewer.
fn send_with_the_manuals_program(source: &Path, build: impl FnOnce() -> Command) {
    let viewer = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = viewer.local_addr().expect("an address").port();
    let program = block_of_the_manual("```c\n#include");
    assert!(program.contains("htons(5000)"), "{program}");
    std::fs::write(source, program.replace("htons(5000)", &format!("htons({port})"))).expect("written");
    let mut built = build();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        viewer.accept().expect("a program").0.read_to_string(&mut text).map(|_| text)
    });
    let said = run(&mut built);
    assert_eq!(
        (said.as_str(), reader.join().expect("no panic").expect("text")),
        ("delivered\n", "position 4711\n".to_owned())
    );
}

#[test]
fn the_manuals_first_program_delivers_a_record() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (source, program) = (scratch.path().join("position.c"), scratch.path().join("position"));
    send_with_the_manuals_program(&source, || {
        let mut cc = Command::new("cc");
        cc.args(WARNINGS).arg("-I").arg(folder().join("include")).arg(&source).arg("-o").arg(&program);
        run(cc.arg("-L").arg(libraries()).arg("-lfreshwire_c"));
        // Programs: own
        let mut built = Command::new(&program);
        built.env("LD_LIBRARY_PATH", libraries());
        built
    });
}

#[test]
fn the_manuals_reservation_sends_a_file() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (content, source, program) =
        (scratch.path().join("content"), scratch.path().join("reserve.c"), scratch.path().join("reserve"));
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(&content, &bytes).expect("written");
    let block = block_of_the_manual("```c\nuint8_t *data;");
    let block: String = block.lines().map(|line| format!("\t{line}\n")).collect();
    let body = "static int send_file(fw_sink sink, int file)\n{\n\tfw_reservation reservation;\n".to_owned()
        + &block
        + "\treturn 0;\n}\n";
    let first = block_of_the_manual("```c\n#include");
    let push = "fw_sink_push(sink, (const uint8_t *)\"position 4711\\n\", 14, NULL, NULL)";
    assert!(first.contains(push), "{first}");
    let viewer = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = viewer.local_addr().expect("an address").port();
    let text = first
        .replace("htons(5000)", &format!("htons({port})"))
        .replace("fw_sender_new(engine, NULL, &sender)", "fw_sender_new(engine, &ring, &sender)")
        .replace(push, "send_file(sink, 0)")
        .replace(
            "int main(void)\n{",
            &format!(
                "#include <unistd.h>\n{body}int main(void)\n{{\n\tfw_ring ring = {{ 1, 64, 8192, 64 }};"
            ),
        );
    std::fs::write(&source, text).expect("written");
    let mut cc = Command::new("cc");
    cc.args(WARNINGS).arg("-I").arg(folder().join("include")).arg(&source).arg("-o").arg(&program);
    run(cc.arg("-L").arg(libraries()).arg("-lfreshwire_c"));
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        viewer.accept().expect("a program").0.read_to_end(&mut received).map(|_| received)
    });
    // Programs: own
    let mut built = Command::new(&program);
    built.env("LD_LIBRARY_PATH", libraries()).stdin(std::fs::File::open(&content).expect("the file"));
    assert_eq!(run(&mut built), "delivered\n");
    assert!(reader.join().expect("no panic").expect("bytes") == bytes, "the file arrives");
}

/// The manual's example, with fates of which each time is unknown once, and one that is complete.
#[test]
fn the_manuals_departures_are_those_that_are_known() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (source, program) = (scratch.path().join("departures.c"), scratch.path().join("departures"));
    let block = block_of_the_manual("```c\nconfig.network.dscp");
    let block: String = block.lines().map(|line| format!("\t{line}\n")).collect();
    let text = format!(
        "#include <freshwire.h>\n#include <stdio.h>\n\
         static fw_fate fate;\n\
         static fw_status poll_known(fw_sink sink, fw_fate *known)\n{{\n\t(void)sink, (void)known;\n\treturn FW_OK;\n}}\n\
         static void wait_for_events(fw_sink sink)\n{{\n\t(void)sink;\n}}\n\
         static void report(uint64_t queued, uint64_t waited)\n\
         {{\n\tprintf(\"%d %d\\n\", (int)queued, (int)waited);\n}}\n\
         #define fw_sender_add_sink(...) FW_OK\n#define fw_sink_push(...) FW_OK\n\
         #define fw_sink_poll_fate poll_known\n\
         static int look(fw_sink_config config, fw_sink sink)\n{{\n{block}\n\t(void)config;\n\treturn 0;\n}}\n\
         int main(void)\n{{\n\
         \tfor (int known = 0; known < 8; known++) {{\n\
         \t\tfate.committed_at = known & 1 ? 10 : 0;\n\
         \t\tfate.scheduled_at = known & 2 ? 13 : 0;\n\
         \t\tfate.departed_at = known & 4 ? 20 : 0;\n\
         \t\tlook(fw_sink_config_default(), (fw_sink){{ 0 }});\n\t}}\n\
         \treturn 0;\n}}\n"
    );
    std::fs::write(&source, text).expect("written");
    let mut cc = Command::new("cc");
    cc.args(WARNINGS).arg("-I").arg(folder().join("include")).arg(&source).arg("-o").arg(&program);
    run(cc.arg("-L").arg(libraries()).arg("-lfreshwire_c"));
    // Programs: own
    assert_eq!(run(Command::new(&program).env("LD_LIBRARY_PATH", libraries())), "3 7\n");
}

#[test]
fn the_header_is_one_of_cpp_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("header.cpp");
    std::fs::write(&source, "#include <freshwire.h>\nint main() { return fw_now() == 0; }\n")
        .expect("written");
    let program = folder.path().join("header");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
    compiler.arg(self::folder().join("include")).arg(&source).arg("-o").arg(&program);
    run(compiler.arg("-L").arg(libraries()).arg("-lfreshwire_c"));
    run(Command::new(program).env("LD_LIBRARY_PATH", libraries()));
}
