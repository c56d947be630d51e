//! `freshwire serve` with listening sockets that a service manager holds.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod live;
mod wait;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use live::{Player, Program, Server, ffmpeg_player, has_ffmpeg, pictures};
use wait::wait_until;

/// Holds a socket, as a service manager does.
struct Manager(TcpListener);

impl Manager {
    fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("its address")
    }

    /// Starts a server with the socket under this name.
    fn start(&self, name: &str, arguments: &str) -> Program {
        // LISTEN_PID has to be the server's own number: the shell becomes the server.
        let script = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=$1 exec $2 serve $3";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", name, env!("CARGO_BIN_EXE_freshwire"), arguments]);
        Program::start(command.stdin(OwnedFd::from(self.0.try_clone().expect("a clone"))))
    }
}

const OTHERS: &str = "--listen-rtsp none --listen-rtmp none --listen-webrtc none --listen-internal none";

#[test]
fn viewers_wait_for_the_next_server() {
    if !has_ffmpeg() {
        return;
    }
    let manager = Manager::new();
    let mut server = Server(manager.start("http", &format!("live=test --open {OTHERS}")));
    let player = Player::start(manager.address(), "live").expect("it connects");
    player.sees(&server, |seen| seen.pictures.len() > 10);
    server.0.signal("KILL");
    server.0.end();
    let player = Player::start(manager.address(), "live").expect("it connects to nobody");
    let server = Server(manager.start("http", &format!("live=test --open {OTHERS}")));
    player.sees(&server, |seen| seen.pictures.len() > 10);
}

/// Asks for the page, and returns the status.
fn page(address: SocketAddr) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(socket, "GET /live HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or("nothing").to_owned())
}

#[test]
fn an_upgrade_loses_no_request() {
    let manager = Manager::new();
    let address = manager.address();
    let arguments = format!("live=publish --open {OTHERS}");
    let ready = |server: &Program| server.says("live waits for a publisher");
    let mut server = manager.start("http", &arguments);
    ready(&server);
    let stop = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let mut answers = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                answers.push(page(address));
            }
            answers
        });
        for _ in 0..5 {
            server.signal("TERM");
            assert!(server.end().success(), "{}", server.log());
            server = manager.start("http", &arguments);
            ready(&server);
        }
        stop.store(true, Ordering::Relaxed);
        asker.join().expect("it asks")
    });
    assert!(answers.len() > 20, "{} answers", answers.len());
    let wrong: Vec<_> =
        answers.iter().filter(|answer| !matches!(answer, Ok(status) if status.contains(" 200 "))).collect();
    assert!(wrong.is_empty(), "{} of {}: {:?}", wrong.len(), answers.len(), wrong.first());
}

#[test]
fn a_socket_that_cannot_be_used_is_named() {
    let manager = Manager::new();
    for (name, reason) in [
        ("web", "\"web\" cannot be used: FileDescriptorName= of its unit has to be one of rtsp, rtsps,"),
        ("", "\"unknown\" cannot be used"),
        ("https", "\"https\" cannot be used: there is no certificate"),
    ] {
        let mut server = manager.start(name, &format!("live=test {OTHERS}"));
        assert_eq!(server.end().code(), Some(2), "{name}");
        wait_until(|| server.log().contains(reason), || format!("{name}: {}", server.log()));
    }
}

/// The addresses of the manager count for the rules of access, too.
#[test]
fn a_socket_for_everybody_needs_a_password() {
    let manager = Manager(TcpListener::bind("0.0.0.0:0").expect("a port"));
    let mut server = manager.start("http", &format!("live=test {OTHERS}"));
    assert_eq!(server.end().code(), Some(2));
    server.says("nobody has a password");
}

#[test]
fn systemd_starts_it_with_the_first_viewer() {
    if !has_ffmpeg() {
        return;
    }
    let has = Command::new("systemd-socket-activate").arg("--version").output().is_ok();
    if !has {
        assert!(std::env::var_os("CI").is_none(), "systemd-socket-activate is needed in CI");
        println!("skipped: systemd-socket-activate is not on this machine");
        return;
    }
    let free = || TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let [rtsp, http] = [free(), free()];
    let mut command = Command::new("systemd-socket-activate");
    command.args(["-l", &rtsp.to_string(), "-l", &http.to_string(), "--fdname=rtsp:http"]);
    command.arg(env!("CARGO_BIN_EXE_freshwire"));
    command.args(
        "serve live=test --open --listen-rtmp none --listen-webrtc none --listen-internal none".split(' '),
    );
    let server = Server(Program::start(command.stdin(Stdio::null())));
    server.0.says("Listening on");
    let player = ffmpeg_player(&format!("rtsp://{rtsp}/live"), "60");
    wait_until(|| pictures(&player) > 10, || format!("{}{}", player.log(), server.0.log()));
    let player = Player::start(http, "live").expect("it connects");
    player.sees(&server, |seen| seen.pictures.len() > 10);
}
