//! The server's share of the processor: what is fresh does not wait behind an encoder that has work for all processors.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, getpriority_process, setpriority_process};

/// The nice value that a server takes if nobody has said anything; what programs for sound in real time take too.
pub const DEFAULT_NICE: i32 = -10;

/// The nice value that this process was started with.
static STARTED_WITH: OnceLock<i32> = OnceLock::new();

/// Gives this thread, and those that it starts from now on, the nice value `nice`, from -20 to 19. `None` is [`DEFAULT_NICE`], unless
/// the process was started with a value other than 0, which then stays. Encoders that sources start have the one of before. Call it
/// before anything else is started.
///
/// # Errors
///
/// Where the system does not allow it: below the value of the process it needs `CAP_SYS_NICE`, or a limit by `ulimit -e`.
pub fn set_nice(nice: Option<i32>) -> io::Result<()> {
    let started_with = *STARTED_WITH.get_or_init(|| getpriority_process(None).unwrap_or(0));
    let wanted = nice.unwrap_or(if started_with == 0 { DEFAULT_NICE } else { started_with });
    Ok(setpriority_process(None, wanted)?)
}

/// Gives a program that was just started the nice value that this process was started with.
pub(crate) fn leave_behind(child: Option<u32>) {
    let pid = child.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let (Some(pid), Some(&nice)) = (pid, STARTED_WITH.get()) {
        // Fails only for one that has ended already.
        let _ = setpriority_process(Some(pid), nice);
    }
}
