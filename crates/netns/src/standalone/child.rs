//! The link's process.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use freshwire_link::Config;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::relay;
use super::types::{End, StandaloneError};
use super::wire::{Answer, Channel, Request};
use crate::{Emulator, EmulatorOptions, Namespaces, NetnsError};

/// Forks the link's process; the first answer comes when it has started.
pub(super) fn fork(up: Config, down: Config, to: Option<SocketAddr>) -> Result<Channel, StandaloneError> {
    let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| StandaloneError::system("create a socket pair")(error.into()))?;
    // Without it (under a tool that does not know the call) only the closed socket shows this process's end.
    let parent = pidfd_open(getpid(), PidfdFlags::empty()).ok();
    // SAFETY: the child only runs `intermediate`, which never returns. It makes system calls, allocates, and
    // starts threads of its own. The C library prepares its allocator for the fork, and the child uses no
    // other lock that another thread may hold.
    let process = unsafe { libc::fork() };
    match process {
        -1 => Err(StandaloneError::system("fork the link's process")(io::Error::last_os_error())),
        0 => intermediate(its, parent, up, down, to),
        process => {
            reap(process);
            Ok(Channel::new(ours))
        }
    }
}

/// The intermediate process has ended at once. The program may have seen to it itself, with `wait` or by ignoring `SIGCHLD`.
fn reap(process: libc::pid_t) {
    loop {
        // SAFETY: no status is asked for.
        let result = unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) };
        if result >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Forks once more and ends, so that the link's process is no child of the program, and no `wait` of the program returns it.
fn intermediate(
    channel: OwnedFd,
    parent: Option<OwnedFd>,
    up: Config,
    down: Config,
    to: Option<SocketAddr>,
) -> ! {
    // The terminal's signals are for the program. This cannot fail: a new child leads no process group.
    let _ = rustix::process::setsid();
    // SAFETY: as in `fork`.
    if unsafe { libc::fork() } == 0 {
        let run = || {
            block_signals();
            // A name for the list of processes; and no folder stays in use.
            let _ = rustix::thread::set_name(c"freshwire-link");
            let _ = std::env::set_current_dir("/");
            keep_only(&channel, parent.as_ref());
            serve(&Channel::new(channel), parent.as_ref(), up, down, to);
        };
        // A panic ends the process as all else does: the program sees the closed socket.
        let _ = catch_unwind(AssertUnwindSafe(run));
    }
    // SAFETY: no destructor or exit handler of the program's may run here.
    unsafe { libc::_exit(0) }
}

/// A handler of the program must not run in this process.
fn block_signals() {
    // SAFETY: `sigset_t` is plain old data, for which all-zero is a value.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a live value.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: the set is initialised; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) };
}

/// Closes what this process has of the program, so that its connections and pipes end when the program closes them.
fn keep_only(channel: &OwnedFd, parent: Option<&OwnedFd>) {
    let mut kept: Vec<u32> = [Some(channel), parent]
        .into_iter()
        .flatten()
        .filter_map(|fd| u32::try_from(fd.as_raw_fd()).ok())
        .collect();
    kept.sort_unstable();
    let mut first = 0;
    for kept in kept.into_iter().chain([u32::MAX]) {
        if kept > first {
            // SAFETY: no descriptor in between is used any more: the values that own them are never dropped.
            unsafe { libc::syscall(libc::SYS_close_range, first, kept - 1, 0) };
        }
        first = kept.saturating_add(1);
    }
    // So that nothing that this process opens becomes its standard output.
    for number in 0..3 {
        // SAFETY: the path is a string; the descriptor is left open on purpose.
        let opened = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        if opened > number {
            // SAFETY: it was opened above, is none of the standard ones, and has no other owner.
            drop(unsafe { OwnedFd::from_raw_fd(opened) });
            return;
        }
    }
}

/// The link: everything that is needed while it is up.
struct Running {
    namespaces: Arc<Namespaces>,
    emulator: Emulator,
    address: Option<SocketAddr>,
}

fn start(up: Config, down: Config, to: Option<SocketAddr>) -> Result<Running, Box<Answer>> {
    let namespaces = Namespaces::create().map_err(refused)?;
    let emulator = Emulator::start(&namespaces, up, down, EmulatorOptions::default()).map_err(refused)?;
    let namespaces = Arc::new(namespaces);
    let address = match to {
        Some(to) => Some(relay::start(&namespaces, to).map_err(|words| Box::new(Answer::Failed(words)))?),
        None => None,
    };
    Ok(Running { namespaces, emulator, address })
}

fn refused(error: NetnsError) -> Box<Answer> {
    let words = error.to_string();
    Box::new(if error.is_not_permitted() { Answer::NotPermitted(words) } else { Answer::Failed(words) })
}

/// Runs the link until it is stopped, or the program has ended.
fn serve(channel: &Channel, parent: Option<&OwnedFd>, up: Config, down: Config, to: Option<SocketAddr>) {
    let running = match start(up, down, to) {
        Ok(running) => running,
        Err(answer) => return drop(channel.reply(&answer)),
    };
    let Running { namespaces, emulator, address } = running;
    let started = Answer::Started { address, has_ipv6: namespaces.has_ipv6() };
    if channel.reply(&started).is_err() {
        return;
    }
    while is_asked(channel, parent) {
        let Ok(Some(request)) = channel.request() else { return };
        let answer = match request {
            Request::Socket { end, domain, kind, protocol } => {
                socket(&namespaces, end, domain, kind, protocol)
            }
            Request::SetRate { direction, rate } => {
                emulator.set_rate(direction, rate);
                Answer::Done
            }
            Request::Snapshot => match emulator.snapshot() {
                Some(snapshot) => Answer::Snapshot(snapshot),
                None => return,
            },
            Request::Stop => {
                let snapshot = emulator.snapshot().unwrap_or_default();
                // The program ends the link whether or not it gets this.
                let _ = channel.reply(&Answer::Stopped(snapshot, emulator.stop().faults));
                return;
            }
        };
        if channel.reply(&answer).is_err() {
            return;
        }
    }
}

/// Waits for the next request; false once the program has ended, although a child of it may still hold the other end.
fn is_asked(channel: &Channel, parent: Option<&OwnedFd>) -> bool {
    loop {
        let mut files = vec![PollFd::new(channel, PollFlags::IN)];
        files.extend(parent.map(|parent| PollFd::new(parent, PollFlags::IN)));
        match poll(&mut files, None) {
            Err(Errno::INTR) => {}
            Err(_) => return false,
            Ok(_) if !files[0].revents().is_empty() => return true,
            Ok(_) => return false,
        }
    }
}

fn socket(namespaces: &Namespaces, end: End, domain: i32, kind: i32, protocol: i32) -> Answer {
    let make = || {
        // SAFETY: no pointers.
        let socket = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just created and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(socket) })
    };
    let made = match end {
        End::Near => namespaces.in_near(make),
        End::Far => namespaces.in_far(make),
    };
    match made {
        Ok(Ok(socket)) => Answer::Socket(socket),
        Ok(Err(error)) => Answer::Failed(format!("cannot make a socket at the {} end: {error}", name(end))),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn name(end: End) -> &'static str {
    match end {
        End::Near => "near",
        End::Far => "far",
    }
}
