//! What the program does.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libc::c_int;

use crate::calls::{
    epoll_wait, fionread, poll, ppoll, read, readv, recv, recvfrom, recvmmsg, recvmsg, result, select,
};

pub(crate) const ALL: &[&str] = &[
    "receives",
    "addresses",
    "messages",
    "several",
    "polls",
    "empty",
    "blocking",
    "errors",
    "duplicates",
    "closes",
    "forks",
    "spawns",
    "inherits",
    "ipv6",
    "threads",
    "signals",
];
/// Scenes in which the library has to push.
pub(crate) const PUSHES: &[&str] = &[
    "receives",
    "addresses",
    "messages",
    "several",
    "polls",
    "empty",
    "blocking",
    "duplicates",
    "closes",
    "inherits",
    "ipv6",
    "threads",
];

/// The descriptor and the address of the socket that the scene "inherited" has from "inherits".
const INHERITED: &str = "FRESHWIRE_INHERITED";

/// Fills the buffer to more than its threshold, and less than its size.
const MANY: usize = 95;

fn say(text: String) {
    println!("{text}");
}

/// A socket that the library serves, and one that sends to it.
struct Pair {
    fd: c_int,
    sender: UdpSocket,
    next: u8,
}

fn set(fd: c_int, level: c_int, name: c_int, value: c_int) {
    // SAFETY: the option's value is an int.
    let returned = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), 4) };
    assert_eq!(returned, 0, "option {name}: {}", io::Error::last_os_error());
}

/// What the kernel accounts for in the socket's buffer, and its limit.
fn memory(fd: c_int) -> (u32, u32) {
    let mut values = [0_u32; 9];
    let mut len = 36;
    // SAFETY: the kernel writes at most 36 bytes.
    let returned = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, values.as_mut_ptr().cast(), &raw mut len)
    };
    assert_eq!(returned, 0);
    (values[0], values[1])
}

impl Pair {
    fn new(address: &str) -> Self {
        let mut pair = Self::unused(address);
        // The first receive makes the library serve a bound socket.
        pair.send(10);
        say(recv(pair.fd, 100, 0));
        pair
    }

    /// A bound socket over which nothing came.
    fn unused(address: &str) -> Self {
        let any: SocketAddr = address.parse().expect("address");
        let domain = if any.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::socket(domain, libc::SOCK_DGRAM, 0) };
        say(format!("socket {fd}"));
        assert!(fd >= 0);
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 128 << 10);
        let socket = bind(fd, any);
        let sender = UdpSocket::bind(any).expect("sender");
        sender.connect(socket).expect("connect");
        Self { fd, sender, next: 0 }
    }

    fn send(&mut self, len: usize) {
        self.sender.send(&vec![self.next; len]).expect("send");
        self.next = self.next.wrapping_add(1);
    }

    /// Many datagrams of different sizes, pushed if the library is there.
    fn fill(&mut self) {
        for number in 0..MANY {
            self.send(1000 + number);
        }
        let (used, limit) = memory(self.fd);
        let pushes = std::env::var_os("FRESHWIRE_PUSHES").is_some();
        assert!(pushes || used > limit / 3 * 2, "{used} of {limit} is below the threshold");
        let begin = Instant::now();
        while pushes && memory(self.fd).0 > limit / 3 * 2 {
            assert!(begin.elapsed() < Duration::from_secs(20), "nothing is pushed: {:?}", memory(self.fd));
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn drain(&self) {
        let mut number = 0;
        loop {
            let text = recv(self.fd, 2000, libc::MSG_DONTWAIT);
            let is_last = text.contains("errno");
            say(text);
            if is_last {
                return;
            }
            number += 1;
            assert!(number < 1000, "it never ends");
        }
    }
}

fn bind(fd: c_int, any: SocketAddr) -> SocketAddr {
    // Binds through the standard library, which must not close the descriptor.
    // SAFETY: plain bytes.
    let mut name = unsafe { std::mem::zeroed::<libc::sockaddr_in6>() };
    let len = if any.is_ipv6() { 28 } else { 16 };
    name.sin6_family = if any.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET } as u16;
    if any.is_ipv6() {
        name.sin6_addr.s6_addr[15] = 1;
    } else {
        // The same place holds the address of a sockaddr_in.
        name.sin6_flowinfo = u32::from_ne_bytes([127, 0, 0, 1]);
    }
    // SAFETY: the name lives, and has this length.
    assert_eq!(unsafe { libc::bind(fd, (&raw const name).cast(), len) }, 0);
    let mut len = 28;
    // SAFETY: the name has room for the length.
    assert_eq!(unsafe { libc::getsockname(fd, (&raw mut name).cast(), &raw mut len) }, 0);
    SocketAddr::new(any.ip(), u16::from_be(name.sin6_port))
}

pub(crate) fn play(scene: &str) {
    match scene {
        "inherits" => return inherits(),
        "inherited" => return inherited(),
        _ => {}
    }
    let v6 = scene == "ipv6";
    if v6 && UdpSocket::bind("[::1]:0").is_err() {
        assert!(std::env::var_os("CI").is_none(), "no IPv6");
        say("skipped: no IPv6 on loopback".to_owned());
        return;
    }
    let mut pair = Pair::new(if v6 { "[::1]:0" } else { "127.0.0.1:0" });
    match scene {
        "receives" => receives(&mut pair),
        "addresses" | "ipv6" => addresses(&mut pair),
        "messages" => messages(&mut pair),
        "several" => several(&mut pair),
        "polls" => polls(&mut pair),
        "empty" => empty(&mut pair),
        "blocking" => blocking(&mut pair),
        "errors" => errors(&mut pair),
        "duplicates" => duplicates(&mut pair),
        "closes" => closes(&mut pair),
        "forks" => forks(&mut pair),
        "spawns" => spawns(&mut pair),
        "threads" => threads(&mut pair),
        "signals" => signals(&mut pair),
        other => panic!("no scene {other}"),
    }
}

fn receives(pair: &mut Pair) {
    pair.fill();
    let fd = pair.fd;
    for flags in [0, libc::MSG_PEEK, libc::MSG_PEEK | libc::MSG_TRUNC, libc::MSG_TRUNC, libc::MSG_DONTWAIT] {
        for len in [2000, 1000, 1, 0] {
            say(fionread(fd));
            say(recv(fd, len, flags));
        }
    }
    for len in [2000, 10, 0] {
        say(read(fd, len));
        say(readv(fd, &[0, len, 7]));
    }
    say(recv(fd, 2000, libc::MSG_WAITALL));
    say(recv(fd, 2000, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT));
    pair.drain();
    say(fionread(fd));
}

fn addresses(pair: &mut Pair) {
    pair.fill();
    for room in [None, Some(128), Some(28), Some(16), Some(8), Some(0)] {
        say(recvfrom(pair.fd, 2000, libc::MSG_PEEK, room));
        say(recvfrom(pair.fd, 5, libc::MSG_TRUNC, room));
        say(recvmsg(pair.fd, &[100], 0, room.is_some(), 0));
    }
    say(recvfrom(pair.fd, 2000, 0, Some(u32::MAX)));
    pair.drain();
}

fn messages(pair: &mut Pair) {
    let fd = pair.fd;
    for option in [libc::IP_PKTINFO, libc::IP_RECVTOS, libc::IP_RECVTTL] {
        set(fd, libc::IPPROTO_IP, option, 1);
    }
    set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    set(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    pair.fill();
    for room in [0, 8, 16, 17, 24, 31, 32, 40, 56, 64, 100, 120, 200, 1000] {
        say(recvmsg(fd, &[10, 0, 1500], 0, true, room));
        say(recvmsg(fd, &[10, 20], libc::MSG_PEEK, true, room));
        say(recvmsg(fd, &[3], libc::MSG_TRUNC, false, room));
    }
    say(recvmsg(fd, &[], 0, true, 200));
    say(recvmsg(fd, &[100], libc::MSG_CMSG_CLOEXEC, true, 200));
    say(recvmsg(fd, &[1; 1025], libc::MSG_DONTWAIT, true, 200));
    pair.drain();
    say(recvmsg(fd, &[100], libc::MSG_DONTWAIT, true, 200));
}

fn several(pair: &mut Pair) {
    let fd = pair.fd;
    pair.fill();
    say(recvmmsg(fd, 0, 0));
    say(recvmmsg(fd, 1, 0));
    say(recvmmsg(fd, 10, 0));
    say(recvmmsg(fd, 3, libc::MSG_PEEK));
    say(recvmmsg(fd, 30, libc::MSG_DONTWAIT));
    // More than there is.
    say(recvmmsg(fd, 500, libc::MSG_WAITFORONE));
    say(recvmmsg(fd, 10, libc::MSG_DONTWAIT));
    pair.fill();
    say(recvmmsg(fd, 500, libc::MSG_DONTWAIT));
    pair.drain();
}

fn polls(pair: &mut Pair) {
    let fd = pair.fd;
    // SAFETY: the call takes a number.
    let level = unsafe { libc::epoll_create1(0) };
    // SAFETY: as above.
    let edge = unsafe { libc::epoll_create1(0) };
    say(format!("epolls {level} {edge}"));
    for (epoll, flags) in [(level, libc::EPOLLIN), (edge, libc::EPOLLIN | libc::EPOLLET)] {
        let mut event = libc::epoll_event { events: flags as u32, u64: 42 };
        // SAFETY: the event is a local.
        let returned = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        say(result(returned as isize));
    }
    let all = |what: &str| {
        say(format!("{what}: {} {} {} {}", poll(fd, 0), ppoll(fd), select(fd), epoll_wait(level)));
    };
    all("nothing");
    say(epoll_wait(edge));
    pair.fill();
    say(epoll_wait(edge));
    say(epoll_wait(edge));
    // Every one of them, so that the last of the pushed ones is among them.
    for _ in 0..MANY {
        all("something");
        say(recv(fd, 2000, libc::MSG_DONTWAIT));
    }
    all("nothing");
    say(recv(fd, 2000, libc::MSG_DONTWAIT));
    pair.send(5);
    all("one");
    say(epoll_wait(edge));
    pair.drain();
}

fn empty(pair: &mut Pair) {
    for number in 0..40 {
        pair.send(if number % 3 == 0 { 0 } else { 700 });
    }
    pair.fill_rest();
    for _ in 0..10 {
        say(fionread(pair.fd));
        say(recv(pair.fd, 2000, libc::MSG_PEEK));
        say(recv(pair.fd, 2000, 0));
    }
    say(recvmmsg(pair.fd, 10, 0));
    pair.drain();
}

impl Pair {
    /// As [`fill`](Self::fill), with less.
    fn fill_rest(&mut self) {
        for number in 0..60 {
            self.send(1000 + number);
        }
        if std::env::var_os("FRESHWIRE_PUSHES").is_some() {
            let begin = Instant::now();
            while memory(self.fd).0 > memory(self.fd).1 / 3 * 2 {
                assert!(begin.elapsed() < Duration::from_secs(20), "nothing is pushed");
                // Pause: until the next look.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn blocking(pair: &mut Pair) {
    let fd = pair.fd;
    let timeout = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
    let name = (&raw const timeout).cast();
    // SAFETY: the option's value is a timeval.
    let returned = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, name, 16) };
    say(result(returned as isize));
    let begin = Instant::now();
    say(recv(fd, 100, 0));
    say(format!("it took its time: {}", begin.elapsed() >= Duration::from_millis(19)));
    say(read(fd, 100));
    pair.fill();
    for _ in 0..MANY + 1 {
        say(recvfrom(fd, 2000, 0, Some(16)));
    }
    // SAFETY: the call takes numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: the call takes numbers.
    say(result(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } as isize));
    say(recv(fd, 100, 0));
    pair.fill();
    for _ in 0..MANY + 2 {
        say(read(fd, 2000));
    }
}

fn errors(pair: &mut Pair) {
    say(recv(-1, 10, 0));
    say(recv(9999, 10, 0));
    let file = std::fs::File::open("/dev/zero").expect("file");
    say(recv(file.as_raw_fd(), 10, 0));
    say(read(file.as_raw_fd(), 10));
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("tcp");
    say(recv(tcp.as_raw_fd(), 10, libc::MSG_DONTWAIT));
    let (one, other) = std::os::unix::net::UnixDatagram::pair().expect("pair");
    one.send(b"local").expect("send");
    say(recv(other.as_raw_fd(), 10, 0));
    // Nobody is there: the machine says so.
    let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
    let nobody = UdpSocket::bind("127.0.0.1:0").expect("nobody").local_addr().expect("address");
    socket.connect(nobody).expect("connect");
    for _ in 0..3 {
        socket.send(b"x").expect("send");
        say(poll(socket.as_raw_fd(), 1000));
        say(recv(socket.as_raw_fd(), 10, 0));
        say(recv(socket.as_raw_fd(), 10, libc::MSG_DONTWAIT));
    }
    // SAFETY: the call takes numbers.
    say(result(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RD) } as isize));
    say(recv(socket.as_raw_fd(), 10, 0));
    pair.send(3);
    say(recv(pair.fd, 10, 0));
}

fn duplicates(pair: &mut Pair) {
    let fd = pair.fd;
    pair.fill();
    // SAFETY: the call takes a number.
    let first = unsafe { libc::dup(fd) };
    // SAFETY: the call takes numbers.
    let second = unsafe { libc::dup2(fd, 40) };
    // SAFETY: the call takes numbers.
    let third = unsafe { libc::dup3(fd, 41, libc::O_CLOEXEC) };
    // SAFETY: the call takes numbers.
    let fourth = unsafe { libc::fcntl(fd, libc::F_DUPFD, 50) };
    let copies = [first, second, third, fourth];
    say(format!("{copies:?}"));
    for _ in 0..5 {
        for copy in copies {
            say(recv(copy, 2000, 0));
        }
        say(recv(fd, 2000, 0));
    }
    // SAFETY: the descriptor is ours.
    say(result(unsafe { libc::close(fd) } as isize));
    say(recv(fd, 2000, 0));
    say(recv(copies[0], 2000, 0));
    // A file takes the place of one of them.
    let file = std::fs::File::open("/dev/zero").expect("file").into_raw_fd();
    // SAFETY: the calls take numbers only.
    say(result(unsafe { libc::dup2(file, 40) } as isize));
    say(read(40, 20));
    // SAFETY: the calls take numbers only.
    say(result(unsafe { libc::dup2(41, 41) } as isize));
    pair.fd = copies[3];
    pair.drain();
}

fn closes(pair: &mut Pair) {
    pair.fill();
    say(recv(pair.fd, 2000, 0));
    // SAFETY: the descriptor is ours.
    say(result(unsafe { libc::close(pair.fd) } as isize));
    say(recv(pair.fd, 2000, 0));
    // The same number again, for another socket: nothing of the old one is left in it.
    let mut second = Pair::new("127.0.0.1:0");
    say(recv(second.fd, 2000, libc::MSG_DONTWAIT));
    second.fill();
    // SAFETY: the call takes numbers.
    say(result(unsafe { libc::close_range(second.fd as u32, second.fd as u32, 0) } as isize));
    say(recv(second.fd, 2000, 0));
    let mut third = Pair::new("127.0.0.1:0");
    third.fill();
    third.drain();
}

fn forks(pair: &mut Pair) {
    // SAFETY: this program has one thread of its own; the child makes system calls and prints.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    // Both share the socket: what waits goes to whom asks, as without the library.
    if child == 0 {
        for _ in 0..3 {
            say(recv(pair.fd, 2000, 0));
        }
        std::process::exit(0);
    }
    for number in 0..MANY {
        pair.send(1000 + number);
    }
    let mut status = 0;
    // SAFETY: the status is a local.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0));
    for _ in 0..MANY - 3 {
        say(recv(pair.fd, 2000, libc::MSG_DONTWAIT));
    }
    say(recv(pair.fd, 2000, libc::MSG_DONTWAIT));
    // The child is gone: the socket is ours alone.
    pair.fill();
    pair.drain();
}

fn spawns(pair: &mut Pair) {
    pair.fill();
    // The standard library uses `vfork` or its like; the child closes and duplicates in our memory.
    let output = std::process::Command::new("sh").args(["-c", "echo spawned; exit 3"]).output().expect("sh");
    say(format!("{:?} {}", output.status.code(), String::from_utf8_lossy(&output.stdout)));
    pair.drain();
}

/// As with socket activation: one program binds, and another one that it starts receives.
fn inherits() {
    let pair = Pair::unused("127.0.0.1:0");
    let address = pair.sender.peer_addr().expect("address");
    let own = std::env::current_exe().expect("this program");
    let mut program = std::process::Command::new(own);
    program.env(crate::ROLE, "inherited").env(INHERITED, format!("{} {address}", pair.fd));
    say(format!("{:?}", program.status().expect("start").code()));
}

/// Its first receive is followed by a stall.
fn inherited() {
    let place = std::env::var(INHERITED).expect("a socket");
    let (fd, address) = place.split_once(' ').expect("a descriptor and an address");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("sender");
    sender.connect(address).expect("connect");
    let mut pair = Pair { fd: fd.parse().expect("a number"), sender, next: 0 };
    pair.send(10);
    say(recvfrom(pair.fd, 100, 0, Some(128)));
    pair.fill();
    pair.drain();
}

fn threads(pair: &mut Pair) {
    pair.fill();
    let fd = pair.fd;
    let mut all: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    loop {
                        let text = recv(fd, 2000, 0);
                        if text.contains(": 4 ") {
                            return mine;
                        }
                        mine.push(text);
                    }
                })
            })
            .collect();
        // Pause: the threads begin to wait: nothing is there to receive.
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..4 {
            pair.send(4);
        }
        threads.into_iter().flat_map(|thread| thread.join().expect("thread")).collect()
    });
    all.sort();
    all.into_iter().for_each(say);
}

static HANDLED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: c_int) {
    HANDLED.store(true, Ordering::SeqCst);
}

/// Waits until the program's first thread sleeps in a receive.
fn wait_for_receive() {
    let begin = Instant::now();
    let call = format!("{} ", libc::SYS_recvfrom);
    let path = format!("/proc/self/task/{}/syscall", std::process::id());
    while !std::fs::read_to_string(&path).expect("proc").starts_with(&call) {
        assert!(begin.elapsed() < Duration::from_secs(20), "the receive does not begin");
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Interrupts the receive, and sends a datagram once the signal was handled.
fn interrupt_then_send(sender: &UdpSocket) {
    // SAFETY: plain bytes.
    let mut set = unsafe { std::mem::zeroed::<libc::sigset_t>() };
    // SAFETY: the set is a local. Only the first thread takes the signal.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGALRM) };
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    wait_for_receive();
    let own = std::process::id().cast_signed();
    // SAFETY: the call takes numbers only.
    assert_eq!(unsafe { libc::kill(own, libc::SIGALRM) }, 0);
    let begin = Instant::now();
    while !HANDLED.swap(false, Ordering::SeqCst) {
        assert!(begin.elapsed() < Duration::from_secs(20), "the signal is not handled");
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(1));
    }
    sender.send(b"late").expect("send");
}

fn signals(pair: &mut Pair) {
    for restarts in [false, true] {
        // SAFETY: plain bytes.
        let mut action = unsafe { std::mem::zeroed::<libc::sigaction>() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = if restarts { libc::SA_RESTART } else { 0 };
        // SAFETY: the action is a local, the handler stores a flag.
        assert_eq!(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) }, 0);
        let sender = pair.sender.try_clone().expect("clone");
        let late = std::thread::spawn(move || interrupt_then_send(&sender));
        say(format!("restarts {restarts}: {}", recv(pair.fd, 100, 0)));
        late.join().expect("thread");
        pair.drain();
    }
}
