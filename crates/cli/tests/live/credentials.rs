//! Passwords and signed links, as ffmpeg and curl use them.

use std::net::SocketAddr;
use std::process::Command;

use super::{Folder, Server, has_ffmpeg};

const SECRET: &str = "at-least-16-characters";

/// Whether curl is there. In CI it has to be.
fn has_curl() -> bool {
    let there = Command::new("curl").arg("--version").output().is_ok();
    assert!(there || std::env::var_os("CI").is_none(), "curl is needed in CI");
    if !there {
        println!("skipped: curl is not on this machine");
    }
    there
}

/// What curl prints: the body of the answer, and its status.
fn curl(arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-s", "-w", "\n%{http_code}"]).args(arguments);
    let output = command.output().expect("curl runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sign(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshwire"));
    let output = command.arg("sign").args(arguments).env("FRESHWIRE_LINK_SECRET", SECRET).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// A server with the user `anna`, links, and values.
fn server(folder: &Folder) -> Server {
    let text = format!(
        "[access]\nlink_secret = \"{SECRET}\"\n[access.users.anna]\npassword = \"sesame\"\npublish = [\"*\"]\n[streams.state]\nsource = \"publish\"\n"
    );
    let path = folder.write("f.toml", &text);
    Server::start(&["--config", path.to_str().expect("text")])
}

#[test]
fn a_signed_link_lets_ffmpeg_publish_pictures() {
    if !has_ffmpeg() {
        return;
    }
    let folder = Folder::new();
    let server = server(&folder);
    let query = |allow: &str| {
        let link = sign(&[&server.rtsp("live"), "--allow", allow, "--for", "1h"]);
        link.split_once('?').expect("a signature").1.to_owned()
    };
    let mut refused = server.publisher("small.mp4", &format!("live?{}", query("view")));
    assert!(!refused.end().success(), "a link to view lets publish");
    let _publisher = server.publisher("small.mp4", &format!("live?{}", query("publish")));
    server.0.says("publishes stream=\"live\"");
}

#[test]
fn a_signed_link_lets_curl_set_values() {
    if !has_curl() {
        return;
    }
    let folder = Folder::new();
    let server = server(&folder);
    let http: SocketAddr = server.address("http ");
    let key = format!("http://{http}/state/counter");
    let publish = sign(&[&key, "--stream", "state", "--allow", "publish", "--for", "1h"]);
    assert!(publish.starts_with(&format!("{key}?expires=")), "{publish}");
    assert_eq!(curl(&["--data", "{\"n\": 1}", &publish]), "\n204");
    let batch = sign(&[&format!("http://{http}/state"), "--allow", "publish"]);
    assert_eq!(curl(&["--data", "{\"key\":\"other\",\"value\":2}", &batch]), "\n204");
    let view = sign(&[&key, "--stream", "state"]);
    assert_eq!(curl(&[&view]), "{\"n\": 1}\n200");
    for (address, expected) in [(key.as_str(), "401"), (&view, "403")] {
        let answer = curl(&["--data", "3", address]);
        assert!(answer.ends_with(expected), "{address}: {answer}");
    }
    let events = sign(&[&format!("http://{http}/state/events")]);
    // It has no end, so that curl stops it.
    let seen = curl(&["-N", "-m", "2", &events]);
    assert!(seen.contains("\"value\":{\"n\": 1}"), "{seen}");
}

#[test]
fn curl_with_a_password_is_let_in_or_gets_a_remedy() {
    if !has_curl() {
        return;
    }
    let folder = Folder::new();
    let server = server(&folder);
    let key = format!("http://{}/state/a", server.address("http "));
    let with = |options: &[&str]| curl(&[options, &["--user", "anna:sesame", "--data", "7", &key]].concat());
    let basic = with(&["--basic"]);
    assert!(
        basic.ends_with("\n401") && basic.contains("curl --digest") && basic.contains("https"),
        "{basic}"
    );
    assert_eq!(with(&["--digest"]), "\n204");
    assert_eq!(with(&["--anyauth"]), "\n204");
    // One connection with many requests: each has a count of its own.
    let many = curl(&["--digest", "--user", "anna:sesame", "-o", "/dev/null", &format!("{key}?n=[1-20]")]);
    assert_eq!(many.matches("200").count(), 20, "{many}");
}

#[test]
fn rtsp_programs_with_a_password_are_let_in() {
    if !has_ffmpeg() {
        return;
    }
    let folder = Folder::new();
    let server = server(&folder);
    let with_password = server.rtsp("").replace("rtsp://", "rtsp://anna:sesame@");
    let mut publisher = Command::new("ffmpeg");
    publisher.args("-nostdin -loglevel error -re -stream_loop -1 -i".split(' '));
    publisher.arg(super::clips().join("small.mp4")).args("-c copy -f rtsp -rtsp_transport tcp".split(' '));
    let _publisher = super::Program::start(publisher.arg(format!("{with_password}live")));
    server.0.says("publishes stream=\"live\"");
    let player = super::ffmpeg_player(&format!("{with_password}live"), "60");
    crate::wait::wait_until(
        || super::pictures(&player) > 20,
        || format!("no pictures:\n{}\n{}", player.log(), server.0.log()),
    );
}
