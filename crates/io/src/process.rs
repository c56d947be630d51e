use std::io;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Ends this process (`SIGKILL`) when the thread that started it ends, as it does when its process is killed. For workers, to
/// be called on their first thread: nobody is left to end them then.
///
/// # Errors
///
/// If the kernel refuses the option.
pub fn end_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}
