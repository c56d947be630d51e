//! The server's share of the processor: what is fresh does not wait behind an encoder that has work for all processors.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, getpriority_process, setpriority_process};

/// The nice value that a server has unless told otherwise; what programs for sound in real time take too.
pub const DEFAULT_NICE: i32 = -10;

/// What this process was started with.
static STARTED_WITH: OnceLock<i32> = OnceLock::new();

/// Gives this thread, and those that it starts from now on, the nice value `nice`, from -20 to 19. Encoders that sources start
/// keep the one of before. Call it before anything else is started.
///
/// Fails where the system does not allow it: below what the process has it needs `CAP_SYS_NICE`, or a limit by `ulimit -e`.
pub fn set_nice(nice: i32) -> io::Result<()> {
    STARTED_WITH.get_or_init(|| getpriority_process(None).unwrap_or(0));
    Ok(setpriority_process(None, nice)?)
}

/// Gives a program that was just started the nice value that this process was started with.
pub(crate) fn leave_behind(child: Option<u32>) {
    let pid = child.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let (Some(pid), Some(&nice)) = (pid, STARTED_WITH.get()) {
        // Fails only for one that has ended already.
        let _ = setpriority_process(Some(pid), nice);
    }
}
