//! Programs with the library that are killed, reuse descriptors, have a thousand sockets; and ffmpeg, which is not ours.
//!
//! The program is this file's own binary, started again with the library.
#![allow(clippy::disallowed_methods, reason = "conditions have deadlines by the clock")]

use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(60);
const ROLE: &str = "FRESHWIRE_ROBUST";
const KERNEL_BUFFER: i32 = 64 << 10;

type Outcome = Result<String, String>;

fn library() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let deps = test.parent()?;
    let name = "libfreshwire_preload.so";
    [deps.join(name), deps.parent()?.join(name)].into_iter().find(|path| path.exists())
}

/// This binary in a role, with the library.
fn start(role: &str, library: &Path) -> Result<Child, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command.env(ROLE, role).env("LD_PRELOAD", library).env("FRESHWIRE_PUSH_REPORT", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| error.to_string())
}

/// Waits for a child's end, which is then read; kills it after a while.
fn end(mut child: Child) -> Result<(String, String), String> {
    drop(child.stdin.take());
    let pid = child.id().to_string();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(LONG) else {
        let _ = Command::new("kill").args(["-9", &pid]).status();
        return Err(format!("it did not end within {LONG:?}"));
    };
    let output = output.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok((text(&output.stdout), text(&output.stderr)))
    } else {
        Err(format!("{}: {}", output.status, text(&output.stderr)))
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) -> Result<(), String> {
    let begin = Instant::now();
    while !condition() {
        if begin.elapsed() > LONG {
            return Err(format!("not within {LONG:?}: {what}"));
        }
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let size = KERNEL_BUFFER;
    // SAFETY: the option's value is an int.
    let returned = unsafe {
        let size = (&raw const size).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, size, 4)
    };
    assert_eq!(returned, 0);
    socket.set_read_timeout(Some(LONG)).expect("timeout");
    socket
}

/// What the kernel accounts for in the socket's buffer, and its limit.
fn memory(fd: RawFd) -> (u32, u32) {
    let mut values = [0_u32; 9];
    let mut len = 36;
    // SAFETY: the kernel writes at most 36 bytes.
    let returned = unsafe {
        let values = values.as_mut_ptr().cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, values, &raw mut len)
    };
    assert_eq!(returned, 0);
    (values[0], values[1])
}

/// A program that is busy for longer than it receives.
fn stalling_program() {
    let socket = socket();
    println!("{}", socket.local_addr().expect("address"));
    let mut buffer = [0; 2048];
    loop {
        for _ in 0..20 {
            socket.recv(&mut buffer).expect("recv");
        }
        // Pause: a program that is busy.
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn killed_at_random_points(library: &Path) -> Outcome {
    const ROUNDS: u64 = 40;
    let sender = UdpSocket::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    for round in 0..ROUNDS {
        let mut child = start("stalls", library)?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let address = lines.next().ok_or("it says nothing")?.map_err(|error| error.to_string())?;
        // Knuth's multiplicative hash: other points in each round, the same in each run.
        let datagrams = round.wrapping_mul(2_654_435_761) % 1500;
        for _ in 0..datagrams {
            // Refused once it is dead.
            let _ = sender.send_to(&[1; 1400], &address);
        }
        child.kill().map_err(|error| error.to_string())?;
        child.wait().map_err(|error| error.to_string())?;
        until("the port of a killed program is free", || UdpSocket::bind(&address).is_ok())?;
    }
    Ok(format!("{ROUNDS} programs left nothing"))
}

/// Sockets come and go under few numbers. Each datagram says for which it was sent.
fn churning_program() {
    let sender = UdpSocket::bind("127.0.0.1:0").expect("sender");
    let mut buffer = [0; 2048];
    let mut state = 1_u64;
    let mut sockets: Vec<(UdpSocket, u64)> = (0..4).map(|number| (socket(), number)).collect();
    let (mut next, mut received) = (4, 0_u64);
    for _ in 0..600 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) as usize % sockets.len();
        let (socket, tag) = &sockets[at];
        let address = socket.local_addr().expect("address");
        let mut payload = [0; 1400];
        payload[..8].copy_from_slice(&tag.to_ne_bytes());
        for _ in 0..40 {
            sender.send_to(&payload, address).expect("send");
        }
        // Some are left behind, in the kernel and in the program's memory.
        for _ in 0..(state >> 40) % 40 {
            socket.recv(&mut buffer).expect("recv");
            let seen = buffer.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
            assert_eq!(seen, Some(*tag), "a datagram for another socket");
            received += 1;
        }
        let new = self::socket();
        match (state >> 50) % 3 {
            // The number goes to the next socket.
            0 => {
                sockets.remove(at);
                sockets.push((new, next));
            }
            // The number is another socket's from one moment to the next.
            1 => {
                // SAFETY: both are open, and the old socket is not known by its number to anything else.
                let number = unsafe { libc::dup2(new.as_raw_fd(), sockets[at].0.as_raw_fd()) };
                assert_eq!(number, sockets[at].0.as_raw_fd());
                sockets[at].1 = next;
            }
            _ => {}
        }
        next += 1;
    }
    println!("{received} datagrams reached their socket");
}

fn descriptors_are_reused(library: &Path) -> Outcome {
    let (said, report) = end(start("churns", library)?)?;
    if !report.contains("freshwire-host push: ") {
        return Err(format!("the library served nothing: {report}"));
    }
    Ok(said.trim().to_owned())
}

const SOCKETS: usize = 1000;

fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
}

/// A thousand sockets, of which each has pushed datagrams at some time.
fn many_sockets_program() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a local.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    limit.rlim_cur = limit.rlim_max.min(4096);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let sockets: Vec<UdpSocket> = (0..SOCKETS).map(|_| socket()).collect();
    let sender = UdpSocket::bind("127.0.0.1:0").expect("sender");
    let before = resident();
    let mut most = 0;
    let mut buffer = [0; 2048];
    for socket in &sockets {
        let address = socket.local_addr().expect("address");
        for _ in 0..2 {
            sender.send_to(&[1; 1400], address).expect("send");
            socket.recv(&mut buffer).expect("recv");
        }
        for _ in 0..45 {
            sender.send_to(&[2; 1400], address).expect("send");
        }
        let begin = Instant::now();
        while memory(socket.as_raw_fd()).0 > memory(socket.as_raw_fd()).1 / 3 * 2 {
            assert!(begin.elapsed() < LONG, "nothing is pushed");
            // Pause: until the next look.
            std::thread::sleep(Duration::from_micros(200));
        }
        most = most.max(resident());
    }
    for socket in &sockets {
        for _ in 0..45 {
            socket.recv(&mut buffer).expect("recv");
        }
    }
    let threads = std::fs::read_dir("/proc/self/task").expect("tasks").count();
    println!("{} {threads}", most.saturating_sub(before) / SOCKETS);
}

fn a_thousand_sockets(library: &Path) -> Outcome {
    let (said, report) = end(start("many", library)?)?;
    let mut numbers = said.split_whitespace().map(|text| text.parse::<usize>().unwrap_or(usize::MAX));
    let (each, threads) = (numbers.next().unwrap_or(usize::MAX), numbers.next().unwrap_or(usize::MAX));
    // docs/push.md: 1536 bytes for a datagram of 1400, and at most 30 % for bookkeeping; what is not full are pages.
    if each > 45 * 1536 * 13 / 10 + 4 * 4096 || threads > 2 || !report.contains("1000 sockets") {
        return Err(format!("{each} bytes for each socket, {threads} threads: {report}"));
    }
    Ok(format!("{each} bytes for each socket with 45 datagrams that wait, {threads} threads"))
}

/// Bytes in the receive buffer of the socket that is bound to this port, as the kernel tells everybody.
fn queued(port: u16) -> Option<u64> {
    let sockets = std::fs::read_to_string("/proc/self/net/udp").ok()?;
    let mine = sockets.lines().find(|line| {
        line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&format!(":{port:04X}")))
    })?;
    u64::from_str_radix(mine.split_whitespace().nth(4)?.split_once(':')?.1, 16).ok()
}

/// The pictures that ffmpeg sees in a transport stream that comes over UDP faster than it reads.
fn ffmpeg_receives(stream: &[u8], library: Option<&Path>) -> Result<(String, String), String> {
    let port = UdpSocket::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .map_err(|error| error.to_string())?
        .port();
    let mut command = Command::new("ffmpeg");
    command.args([
        "-nostdin",
        "-hide_banner",
        "-loglevel",
        "error",
        "-analyzeduration",
        "500000",
        "-probesize",
        "200000",
        "-readrate",
        "2",
        "-f",
        "mpegts",
        "-i",
    ]);
    // Without ffmpeg's own thread and buffer.
    command.arg(format!("udp://127.0.0.1:{port}?fifo_size=0&buffer_size={KERNEL_BUFFER}"));
    command.args(["-frames:v", "80", "-c", "copy", "-f", "framecrc", "-"]);
    if let Some(library) = library {
        command.env("LD_PRELOAD", library).env("FRESHWIRE_PUSH_REPORT", "1");
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let sender = UdpSocket::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    until("ffmpeg listens", || queued(port).is_some())?;
    for chunk in stream.chunks(7 * 188) {
        // The limit is two thirds of 128 KiB, as accounted. A quarter of that may be accounted for although
        // it is gone.
        until("ffmpeg reads", || queued(port).is_none_or(|bytes| bytes < 90 << 10))?;
        sender.send_to(chunk, ("127.0.0.1", port)).map_err(|error| error.to_string())?;
        if child.try_wait().map_err(|error| error.to_string())?.is_some() {
            break;
        }
    }
    end(child)
}

fn ffmpeg_sees_the_same(library: &Path) -> Outcome {
    let made = Command::new("ffmpeg")
        .args([
            "-nostdin",
            "-loglevel",
            "error",
            "-f",
            "lavfi",
            "-i",
            "testsrc=size=320x240:rate=25",
            "-t",
            "4",
        ])
        .args(["-c:v", "mpeg2video", "-b:v", "1500k", "-g", "12", "-f", "mpegts", "-"])
        .output();
    let stream = match made {
        Ok(made) if made.status.success() && !made.stdout.is_empty() => made.stdout,
        other => {
            if std::env::var_os("CI").is_some() {
                return Err(format!("ffmpeg makes no stream: {other:?}"));
            }
            return Ok(format!("skipped: ffmpeg makes no stream: {other:?}"));
        }
    };
    let (plain, _) = ffmpeg_receives(&stream, None)?;
    let (pushed, report) = ffmpeg_receives(&stream, Some(library))?;
    let pictures = plain.lines().filter(|line| !line.starts_with('#')).count();
    if pictures != 80 || plain != pushed {
        return Err(format!("{pictures} pictures without the library; with it:\n{pushed}\n{report}"));
    }
    if !report.contains("datagrams moved in") || report.contains(" 0 datagrams moved") {
        return Err(format!("nothing was pushed: {report}"));
    }
    Ok(format!("{pictures} pictures are the same; {}", report.trim()))
}

fn main() -> ExitCode {
    match std::env::var(ROLE).as_deref() {
        Ok("stalls") => stalling_program(),
        Ok("churns") => churning_program(),
        Ok("many") => many_sockets_program(),
        _ => return test(),
    }
    ExitCode::SUCCESS
}

type Case = (&'static str, fn(&Path) -> Outcome);

fn test() -> ExitCode {
    let Some(library) = library() else {
        eprintln!("the library was not built: cargo build -p freshwire-preload");
        return ExitCode::FAILURE;
    };
    let cases: [Case; 4] = [
        ("killed_at_random_points", killed_at_random_points),
        ("descriptors_are_reused", descriptors_are_reused),
        ("a_thousand_sockets", a_thousand_sockets),
        ("ffmpeg_sees_the_same", ffmpeg_sees_the_same),
    ];
    let wanted = std::env::args().nth(1).filter(|name| !name.starts_with('-'));
    let mut failed = 0;
    for (name, case) in cases {
        if wanted.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        match case(&library) {
            Ok(said) => println!("{name}: {said}"),
            Err(error) => {
                eprintln!("{name} failed: {error}");
                failed += 1;
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
