//! A process namespace whose processes end with this one, however it ends.

use std::io::{self, PipeWriter};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// A process namespace for the programs that one thread starts, with their children and all that descend from them. The kernel ends
/// them all when the first process of a namespace ends: that one waits for the end of this process, and inherits orphans meanwhile.
#[derive(Debug)]
pub struct Enclosure {
    keeper: Pid,
    /// Its other end is read by the keeper. Nobody writes; the kernel closes it with this process.
    alive: ManuallyDrop<PipeWriter>,
}

impl Enclosure {
    /// Makes the namespace. From now on the children of the calling thread are in it, and the thread can start no further threads.
    /// Needs the capabilities that [`Namespaces::create`](super::Namespaces::create) gives.
    ///
    /// # Errors
    ///
    /// If the kernel permits no process namespace, or no process can be started.
    pub fn enter() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // SAFETY: NEWPID does not touch the file descriptor table, the one hazard of this call.
        unsafe { unshare_unsafe(UnshareFlags::NEWPID) }?;
        // SAFETY: the child runs `keep` only, which makes system calls and never returns.
        match unsafe { libc::fork() } {
            0 => keep(reader.as_raw_fd(), writer.as_raw_fd()),
            pid => match Pid::from_raw(pid).filter(|_| pid > 0) {
                Some(keeper) => Ok(Self { keeper, alive: ManuallyDrop::new(writer) }),
                None => Err(io::Error::last_os_error()),
            },
        }
    }

    /// The process that inherits orphans, as this process sees it.
    pub fn keeper(&self) -> Pid {
        self.keeper
    }

    /// Gives a program of the namespace a `/proc` with the processes that it can see, if one may be mounted.
    pub fn show_processes(&self, command: &mut Command) {
        // SAFETY: between fork and exec `mount_processes` makes system calls only: it neither allocates nor takes a lock.
        unsafe { command.pre_exec(mount_processes) };
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        // SAFETY: it is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.alive) };
        // It has ended by itself, or somebody else has waited for it.
        let _ = waitpid(Some(self.keeper), WaitOptions::empty());
    }
}

/// The first process of the namespace. Orphans that end are collected by the kernel, because nobody handles `SIGCHLD`.
fn keep(reader: RawFd, writer: RawFd) -> ! {
    // SAFETY: the process has no other handler, and no other thread.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // SAFETY: the copy of this process is closed, which nothing else here uses.
    unsafe { libc::close(writer) };
    let mut byte = 0_u8;
    loop {
        // SAFETY: the buffer has a byte, and the descriptor is open.
        let read = unsafe { libc::read(reader, (&raw mut byte).cast(), 1) };
        if read == 0 || (read < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted) {
            // SAFETY: it runs no destructors, which belong to the parent.
            unsafe { libc::_exit(0) };
        }
    }
}

fn mount_processes() -> io::Result<()> {
    // SAFETY: NEWNS does not touch the file descriptor table, the one hazard of this call.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    let flags = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: the path ends with a zero, and the other pointers may be null for a change of propagation.
    let private = unsafe { libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), flags, ptr::null()) };
    if private != 0 {
        return Err(io::Error::last_os_error());
    }
    let (name, path) = (c"proc", c"/proc");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // A container that hides a part of /proc permits no other: programs see the machine's processes then.
    // SAFETY: the texts end with a zero, and this file system needs no data.
    let _ = unsafe { libc::mount(name.as_ptr(), path.as_ptr(), name.as_ptr(), flags, ptr::null()) };
    Ok(())
}
