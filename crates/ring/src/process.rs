//! Which process has a role, and whether it lives.
//!
//! A claim is the process id with the low half of its start time, so that another process that got the same id later
//! is not mistaken for it. All processes of a region must see the same process ids (`spec/ring.md` R-CLAIM-4).

use crate::word::PID_MASK;

/// A role's owner: `start << 32 | pid`, zero for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim(pub(crate) u64);

impl Claim {
    pub(crate) const NOBODY: Self = Self(0);
    /// The kernel, as the sender of a ring that it made. //= spec/ring.md R-CLAIM-5
    pub(crate) const KERNEL: Self = Self(1 << 32);

    //= spec/ring.md R-CLAIM-1
    pub(crate) fn current() -> Self {
        let pid = std::process::id();
        let start = stat(pid).map_or(0, |stat| stat.start);
        Self((u64::from(start) << 32) | u64::from(pid))
    }

    pub(crate) fn pid(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn is_alive(self) -> bool {
        match stat(self.pid()) {
            Some(stat) => stat.alive && stat.start == (self.0 >> 32) as u32,
            None => exists(self.pid()),
        }
    }
}

/// This process's id as state words carry it.
pub(crate) fn own_pid() -> u32 {
    std::process::id() & PID_MASK
}

/// True unless it is certain that no process has this id.
pub(crate) fn pid_is_alive(pid: u32) -> bool {
    stat(pid).map_or_else(|| exists(pid), |stat| stat.alive)
}

struct Stat {
    alive: bool,
    start: u32,
}

#[cfg(any(miri, loom))]
fn stat(pid: u32) -> Option<Stat> {
    (pid == std::process::id()).then_some(Stat { alive: true, start: 1 })
}

#[cfg(any(miri, loom))]
fn exists(_pid: u32) -> bool {
    false
}

/// State and start time from `/proc/PID/stat`; a zombie is dead.
#[cfg(not(any(miri, loom)))]
fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in parentheses, may itself hold blanks and parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let alive = !matches!(fields.next()?, "Z" | "X" | "x");
    let start = fields.nth(18)?.parse::<u64>().ok()? as u32;
    Some(Stat { alive, start })
}

#[cfg(not(any(miri, loom)))]
fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_differs_from_a_dead_one_and_its_namesake() {
        let claim = Claim::current();
        assert!(claim.is_alive());
        assert!(!Claim(claim.0 ^ (1 << 32)).is_alive(), "same id, other start");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(pid_is_alive(child.id()));
        child.kill().unwrap();
        // Before wait() it is a zombie: the id exists, the process does not.
        for _ in 0..1000 {
            if !pid_is_alive(child.id()) {
                break;
            }
            // Pause: until the next look.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(!pid_is_alive(child.id()));
        child.wait().unwrap();
        assert!(!pid_is_alive(0));
    }
}
