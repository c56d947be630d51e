//! The `freshwire-host` command as its users meet it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test waits for real processes")]

mod receivers;
#[path = "../../../crates/cli/tests/support/mod.rs"]
#[allow(dead_code, reason = "other commands use the rest")]
mod support;
#[path = "../../../crates/cli/tests/wait/mod.rs"]
mod wait;

// `support` reads JSON.
use serde_json as _;
use support::run;

const PROGRAM: &str = env!("CARGO_BIN_EXE_freshwire-host");

#[test]
fn a_wrong_command_line_ends_with_2_and_says_why() {
    for (arguments, message) in [
        (&["ack-filter", "--interface", "nowhere0"][..], "cannot filter acknowledgements at nowhere0: "),
        (&["push", "--", "no-such-program"], "no such program"),
        (&["push"], "Usage"),
    ] {
        run(arguments).failed(2, message);
    }
}

#[test]
fn help_is_a_result() {
    for command in ["ack-filter", "push", "doctor"] {
        assert!(run(&[command, "--help"]).ok().text().contains("Exit code:"), "{command}");
    }
}

#[test]
fn doctor_names_what_push_can_use() {
    let text = run(&["doctor"]).ok().text().to_owned();
    assert!(text.contains("preloaded library  works: ") && text.contains("pkt_push module"), "{text}");
}

#[test]
fn generate_writes_pages_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    run(&["generate", folder.path().to_str().unwrap()]).ok();
    for file in [
        "man/man1/freshwire-host-push.1",
        "bash-completion/completions/freshwire-host",
        "zsh/site-functions/_freshwire-host",
        "fish/vendor_completions.d/freshwire-host.fish",
    ] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
}
