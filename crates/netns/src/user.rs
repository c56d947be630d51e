//! The user namespace that gives an unprivileged process capabilities over network namespaces of its own.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, unshare_unsafe};

use super::error::NetnsError;

/// Enters a user namespace unless the process can do without.
pub(super) fn become_capable() -> Result<(), NetnsError> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    let held = capabilities(None).map_err(|error| NetnsError::setup("read capabilities")(error.into()))?;
    if held.effective.contains(needed) {
        return Ok(());
    }
    let user = geteuid().as_raw();
    let group = getegid().as_raw();
    unshare_user()?;
    write_map("/proc/self/setgroups", "deny")?;
    write_map("/proc/self/uid_map", &format!("{user} {user} 1"))?;
    write_map("/proc/self/gid_map", &format!("{group} {group} 1"))
}

fn unshare_user() -> Result<(), NetnsError> {
    // A thread that was joined counts for some microseconds more.
    for attempt in 0..5 {
        // SAFETY: NEWUSER does not touch the file descriptor table, the one hazard of this call.
        match unsafe { unshare_unsafe(UnshareFlags::NEWUSER) } {
            Ok(()) => return Ok(()),
            Err(Errno::INVAL) => std::thread::sleep(Duration::from_millis(attempt)),
            Err(error) => return Err(NetnsError::UserNamespace(error.into())),
        }
    }
    Err(NetnsError::Threads)
}

fn write_map(path: &'static str, text: &str) -> Result<(), NetnsError> {
    match fs::write(path, text) {
        Ok(()) => Ok(()),
        // Older kernels have no setgroups file, and then need no denial.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.ends_with("setgroups") => Ok(()),
        Err(error) => Err(NetnsError::UserNamespace(error)),
    }
}
