//! A program with a receiver is killed at any point: nothing stays, with neither backend.
//!
//! The program is this file's own binary, started again.
#![allow(clippy::disallowed_methods, reason = "conditions have deadlines by the clock")]

use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use freshwire_push::{Backend, Config, Receiver};

const ROLE: &str = "FRESHWIRE_KILLED";
const ROUNDS: u32 = 25;
/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// Receives, and is busy for longer than that.
fn stalling_program(backend: Backend) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let address = socket.local_addr().expect("address");
    let config = Config { backend, kernel_buffer: Some(64 << 10), ..Config::default() };
    let receiver = Receiver::with_config(socket, config).expect("receiver");
    let mut buffer = [0; 2048];
    // With io_uring the kernel receives from here on.
    receiver.try_receive(&mut buffer).expect_err("nothing was sent yet");
    println!("{address}");
    loop {
        for _ in 0..20 {
            receiver.recv(&mut buffer).expect("recv");
        }
        // Pause: a program that is busy.
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn kill_one(role: &str, datagrams: u32, sender: &UdpSocket) {
    let own = std::env::current_exe().expect("own file");
    let mut child =
        Command::new(own).env(ROLE, role).stdout(Stdio::piped()).spawn().expect("the program starts");
    let output = child.stdout.take().expect("its output");
    let address = BufReader::new(output).lines().next().expect("an address").expect("text");
    for _ in 0..datagrams {
        // Refused once it is dead.
        let _ = sender.send_to(&[1; 1400], &address);
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
    // With io_uring the kernel lets go of the socket a little after the process has ended.
    let begin = Instant::now();
    while UdpSocket::bind(&address).is_err() {
        assert!(begin.elapsed() < LONG, "{address} is still bound");
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn main() -> ExitCode {
    match std::env::var(ROLE).as_deref() {
        Ok("thread") => stalling_program(Backend::Thread),
        Ok(_) => stalling_program(Backend::Auto),
        Err(_) => {
            let sender = UdpSocket::bind("127.0.0.1:0").expect("sender");
            for role in ["thread", "auto"] {
                for round in 0..ROUNDS {
                    // Other points in each round, the same in each run: Knuth's multiplicative hash.
                    kill_one(role, round.wrapping_mul(2_654_435_761) % 1500, &sender);
                }
                println!("{role}: {ROUNDS} programs left nothing");
            }
        }
    }
    ExitCode::SUCCESS
}
