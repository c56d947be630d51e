//! Players that nobody changed, and the little of RTSP that they need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Far longer than any test needs on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// Whether a program that a test needs is there. In CI it has to be.
pub(crate) fn has(program: &str, argument: &str) -> bool {
    let there = Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "{program} is needed in CI");
        println!("skipped: {program} is not on this machine");
    }
    there
}

/// A running program that is killed when dropped.
pub(crate) struct Player(Option<Child>);

impl Player {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().expect("the program starts")))
    }

    /// Waits for its end. Its output has to fit into a pipe.
    pub(crate) fn wait(mut self) -> Output {
        for _ in 0..TIMEOUT.as_millis() / PAUSE.as_millis() {
            if self.0.as_mut().is_some_and(|child| child.try_wait().expect("a child").is_some()) {
                return self.0.take().expect("checked above").wait_with_output().expect("its output");
            }
            // Pause: until the next look.
            std::thread::sleep(PAUSE);
        }
        panic!("the player does not end");
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Answers one player: the description, whatever transport it asks for, and after PLAY these bytes.
pub(crate) fn serve(listener: &TcpListener, description: &str, stream: &[u8]) {
    let mut socket = accept(listener);
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    loop {
        let request = request(&mut reader);
        let header = |name: &str| {
            let line = request.iter().find(|line| line.starts_with(name)).expect("a header");
            line[name.len() + 1..].trim().to_owned()
        };
        let method = request[0].split(' ').next().unwrap();
        let mut answer = format!("RTSP/1.0 200 OK\r\nCSeq: {}\r\nSession: 1\r\n", header("CSeq"));
        match method {
            "DESCRIBE" => answer += "Content-Type: application/sdp\r\n",
            "SETUP" => answer += &format!("Transport: {}\r\n", header("Transport")),
            _ => answer += "Public: OPTIONS, DESCRIBE, SETUP, PLAY\r\n",
        }
        let body = if method == "DESCRIBE" { description } else { "" };
        answer += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        socket.write_all(answer.as_bytes()).unwrap();
        if method == "PLAY" {
            break;
        }
    }
    socket.write_all(stream).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let _ = reader.read_to_end(&mut Vec::new());
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    for _ in 0..TIMEOUT.as_millis() / PAUSE.as_millis() {
        if let Ok((socket, _)) = listener.accept() {
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            socket.set_write_timeout(Some(TIMEOUT)).unwrap();
            return socket;
        }
        // Pause: until the next look.
        std::thread::sleep(PAUSE);
    }
    panic!("no player comes");
}

fn request(reader: &mut impl BufRead) -> Vec<String> {
    let lines = reader.lines().map(|line| line.expect("a line of a request"));
    lines.take_while(|line| !line.is_empty()).collect()
}
