//! Child processes inside a namespace, and the signals that concern whoever looks after them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, capabilities, configure_capability_in_ambient_set,
    move_into_link_name_space, set_capabilities,
};

/// What a program may do with its end of the link although it is not root: choose any congestion control, ping, and
/// listen on ports below 1024.
const KEPT: [CapabilitySet; 3] =
    [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW, CapabilitySet::NET_BIND_SERVICE];

/// The signals that [`Signals`] takes over.
const TAKEN: [libc::c_int; 7] =
    [libc::SIGCHLD, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// Starts `command` inside `namespace`. It is killed when the calling thread ends, even if this process is killed; its own children
/// are not, unless it is in an [`Enclosure`](super::Enclosure).
pub(super) fn spawn(namespace: BorrowedFd<'_>, command: &mut Command) -> io::Result<Child> {
    let namespace = namespace.as_raw_fd();
    let keep_capabilities = !rustix::process::geteuid().is_root();
    let prepare = move || {
        // SAFETY: the parent keeps the namespace open until `spawn` returns.
        let namespace = unsafe { BorrowedFd::borrow_raw(namespace) };
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if keep_capabilities {
            keep()?;
        }
        set_mask(libc::SIG_SETMASK, &[])
    };
    // SAFETY: between fork and exec `prepare` makes system calls only: it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Lets the calling process keep [`KEPT`] across `exec`.
fn keep() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    for capability in KEPT {
        sets.inheritable |= capability;
    }
    set_capabilities(None, sets)?;
    for capability in KEPT {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// The signals of a process that looks after children, taken one by one instead of interrupting it.
///
/// The set: `SIGCHLD`, `SIGHUP`, `SIGINT`, `SIGQUIT`, `SIGTERM`, `SIGUSR1`, `SIGUSR2`.
#[derive(Debug)]
pub struct Signals(());

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// A child has changed its state.
    pub is_child: bool,
    /// The terminal sent it, hence to the whole foreground process group and not to this process alone.
    pub from_terminal: bool,
}

impl Signals {
    /// Takes over the signals, for good. Call it before the first thread starts: threads inherit it. Children started
    /// by [`super::Namespaces::spawn_near`] and [`super::Namespaces::spawn_far`] have their signals as usual.
    ///
    /// # Errors
    ///
    /// If the kernel does not block them for this thread.
    pub fn take_over() -> io::Result<Self> {
        set_mask(libc::SIG_BLOCK, &TAKEN)?;
        Ok(Self(()))
    }

    /// Waits for the next one.
    ///
    /// # Errors
    ///
    /// If the kernel cannot wait for signals.
    pub fn wait(&self) -> io::Result<Arrived> {
        let set = set_of(&TAKEN);
        // SAFETY: `siginfo_t` is plain old data, for which all-zero is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: both point to live values of the right type.
            let signal = unsafe { libc::sigwaitinfo(&raw const set, &raw mut info) };
            if signal > 0 {
                let is_child = signal == libc::SIGCHLD;
                return Ok(Arrived { signal, is_child, from_terminal: info.si_code == libc::SI_KERNEL });
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

fn set_mask(how: libc::c_int, signals: &[libc::c_int]) -> io::Result<()> {
    let set = set_of(signals);
    // SAFETY: `set` is initialised; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: `sigset_t` is plain old data, and all-zero is the empty set on Linux.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for &signal in signals {
        // SAFETY: `set` is initialised, and the signals are those of `TAKEN`.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}
