//! A program with a receiver is killed at any point: nothing stays, with neither backend. And the kernel kills one that
//! makes a system call where it must not: taking a datagram that was pushed makes none.
//!
//! The program is this file's own binary, started again.
#![allow(clippy::disallowed_methods, reason = "conditions have deadlines by the clock")]

use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
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

/// Datagrams that are taken without a system call, and those that are there.
const TAKEN: u32 = 15;
const THERE: u32 = 60;

/// From here on the kernel kills the process at any call but its end, and reading the clock, which is a call on some machines.
fn allow_no_call() {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number = |call: libc::c_long| u32::try_from(call).expect("a call's number");
    let (load, equal, end) = (
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        (libc::BPF_JMP | libc::BPF_JEQ) as u16,
        libc::BPF_RET as u16,
    );
    let mut filter = [
        // The call's number is what `seccomp_data` begins with.
        step(load, 0, 0, 0),
        step(equal, 2, 0, number(libc::SYS_exit_group)),
        step(equal, 1, 0, number(libc::SYS_clock_gettime)),
        step(end, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(end, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 5, filter: filter.as_mut_ptr() };
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and its steps live until the call is back.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Takes what was pushed, or what the kernel's buffer has, under the eyes of the kernel.
fn taking_program(backend: Option<Backend>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
    sender.connect(socket.local_addr().expect("address")).expect("connect");
    let plain = socket.try_clone().expect("another descriptor");
    let mut buffer = [0; 2048];
    let receiver = backend.map(|backend| {
        let config = Config { backend, kernel_buffer: Some(64 << 10), ..Config::default() };
        let receiver = Receiver::with_config(socket, config).expect("receiver");
        receiver.try_receive(&mut buffer).expect_err("nothing was sent yet");
        receiver
    });
    for _ in 0..THERE {
        sender.send(&[1; 1400]).expect("send");
    }
    if let Some(receiver) = &receiver {
        let begin = Instant::now();
        let is_pushed = || {
            let statistics = receiver.statistics().expect("statistics");
            let used = freshwire_push::sys::memory(receiver.socket().as_raw_fd()).expect("memory").used;
            statistics.pushed >= TAKEN.into() || used == 0
        };
        while !is_pushed() {
            assert!(begin.elapsed() < LONG, "nothing is pushed");
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(1));
        }
        // Pause: the pusher sleeps when nothing has come for a while, and its lock is free.
        std::thread::sleep(Duration::from_millis(300));
    }
    allow_no_call();
    for _ in 0..TAKEN {
        let taken = match &receiver {
            Some(receiver) => receiver.recv(&mut buffer),
            None => plain.recv(&mut buffer),
        };
        if !matches!(taken, Ok(1400)) {
            std::process::abort();
        }
    }
    // SAFETY: nothing else has to be done at the end.
    unsafe { libc::_exit(0) };
}

fn takes_without_a_call(role: &str) -> bool {
    let own = std::env::current_exe().expect("own file");
    let status = Command::new(own).env(ROLE, role).status().expect("the program starts");
    assert!(status.success() || status.signal() == Some(libc::SIGSYS), "{role}: {status}");
    status.success()
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
        Ok("takes, recv") => taking_program(None),
        Ok("takes, thread") => taking_program(Some(Backend::Thread)),
        Ok("takes, auto") => taking_program(Some(Backend::Auto)),
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
            assert!(!takes_without_a_call("takes, recv"), "the kernel kills what makes a call");
            for role in ["takes, thread", "takes, auto"] {
                // The pusher may look at the socket just then, and its lock is waited for.
                assert!((0..5).any(|_| takes_without_a_call(role)), "{role}: a system call");
                println!("{role}: {TAKEN} datagrams without a system call");
            }
        }
    }
    ExitCode::SUCCESS
}
