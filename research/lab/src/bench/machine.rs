//! The machine and this process, read from /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::schema::Environment;

/// The environment of a measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    commit: String,
    freshwire: String,
    kernel: String,
    cpu: String,
    cores: u32,
    congestion: String,
    /// Load of the last minute: above the number of cores others disturb the numbers.
    load: Option<f64>,
    pub(super) command: String,
}

impl Machine {
    pub(super) fn look() -> Self {
        let Environment { commit, kernel, cpu, cores, freshwire, command } = Environment::here();
        let load = fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split_whitespace().next()?.parse().ok());
        let congestion = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
        let congestion = congestion.trim().to_owned();
        Self { commit, freshwire, kernel, cpu, cores, congestion, load, command }
    }

    pub(super) fn text(&self) -> String {
        let Self { commit, kernel, cpu, cores, congestion, .. } = self;
        let mut text = format!("{cpu}, {cores} cores, Linux {kernel}, {congestion}, commit {commit}");
        if let Some(load) = self.load.filter(|&load| load > f64::from(*cores)) {
            text += &format!("\nload {load}: other programs disturb these numbers; believe the ratios only");
        }
        text
    }
}

/// Lets this process, and those that it starts, open `wanted` files; `option` asks for that number.
pub(super) fn allow_files(wanted: u64, option: &str) -> anyhow::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    anyhow::ensure!(
        maximum.is_none_or(|maximum| maximum >= wanted),
        "this needs {wanted} open files and the hard limit is {}: raise it (ulimit -Hn) or take fewer {option}",
        maximum.unwrap_or(u64::MAX)
    );
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("cannot raise the limit of open files")
}

/// Write system calls of the calling thread so far; `None` on a kernel that does not count them.
pub(super) fn write_calls() -> Option<u64> {
    field(&fs::read_to_string("/proc/thread-self/io").ok()?, "syscw:")
}

/// Private memory of this process, in bytes.
pub(super) fn private_bytes() -> anyhow::Result<u64> {
    let rollup =
        fs::read_to_string("/proc/self/smaps_rollup").context("cannot read /proc/self/smaps_rollup")?;
    let kib = field(&rollup, "Anonymous:").context("/proc/self/smaps_rollup has no anonymous memory")?;
    Ok(kib * 1024)
}

/// Memory of all TCP sockets' buffers on this machine, in bytes.
pub(super) fn socket_buffer_bytes() -> anyhow::Result<u64> {
    let stat = fs::read_to_string("/proc/net/sockstat").context("cannot read /proc/net/sockstat")?;
    let pages = stat.lines().find_map(|line| {
        let mut words = line.strip_prefix("TCP:")?.split_whitespace();
        words.find(|&word| word == "mem")?;
        words.next()?.parse::<u64>().ok()
    });
    Ok(pages.context("/proc/net/sockstat has no TCP memory")? * rustix::param::page_size() as u64)
}

/// Processor time of a thread of this process so far, in nanoseconds.
pub(super) fn thread_time(thread: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/self/task/{thread}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    text.split_whitespace()
        .next()
        .and_then(|time| time.parse().ok())
        .with_context(|| format!("{path} is empty"))
}

/// Processor time of each thread of a process so far.
pub(super) struct ThreadTimes(BTreeMap<String, u64>);

impl ThreadTimes {
    /// Reads them of the process with this number. A thread that ends meanwhile is left out.
    pub(super) fn of(process: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{process}/task");
        let tasks = fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
        let time = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            let time = text.split_whitespace().next()?.parse().ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), time))
        };
        Ok(Self(tasks.flatten().filter_map(time).collect()))
    }

    /// Time since an earlier look, threads that are newer included.
    pub(super) fn since(&self, earlier: &Self) -> Duration {
        let before = |thread: &String| earlier.0.get(thread).copied().unwrap_or(0);
        let taken = self.0.iter().map(|(thread, time)| time.saturating_sub(before(thread)));
        Duration::from_nanos(taken.sum())
    }
}

/// What the threads of a process have done so far. A thread that has ended is left out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    pub(super) processor: Duration,
    /// How often a thread waited and was woken.
    pub(super) wakes: u64,
    /// How often a thread was made to give its processor up.
    pub(super) displaced: u64,
    /// Its share of the memory that it has (proportional set size), in bytes.
    pub(super) memory: u64,
}

impl Activity {
    /// Reads it of the process with this number.
    pub(super) fn of(process: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{process}/task");
        let threads = fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
        let mut all = Self::default();
        for thread in threads.flatten() {
            let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let (status, time) = (read("status"), read("schedstat"));
            let time = time.split_whitespace().next().and_then(|time| time.parse().ok());
            all.processor += Duration::from_nanos(time.unwrap_or(0));
            all.wakes += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
            all.displaced += field(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0);
        }
        let path = format!("/proc/{process}/smaps_rollup");
        let rollup = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        all.memory = 1024 * field(&rollup, "Pss:").with_context(|| format!("{path} has no `Pss`"))?;
        Ok(all)
    }
}

/// Memory of a process that no file backs, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resident {
    pub(super) private: u64,
    pub(super) shared: u64,
}

impl Resident {
    /// Reads it of the process with this number.
    pub(super) fn of(process: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{process}/status");
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let bytes = |name| Some(field(&status, name)? * 1024);
        let resident = bytes("RssAnon:").zip(bytes("RssShmem:"));
        let (private, shared) = resident.with_context(|| format!("{path} does not tell the memory"))?;
        Ok(Self { private, shared })
    }

    pub(super) fn sum(self) -> u64 {
        self.private + self.shared
    }
}

/// Processor time by one of the clocks of this process.
pub(super) fn processor_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The calling thread, for [`thread_time`].
pub(super) fn this_thread() -> anyhow::Result<String> {
    let link = fs::read_link("/proc/thread-self").context("cannot read /proc/thread-self")?;
    Ok(link.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
}

/// The threads of this process, for [`thread_time`].
pub(super) fn threads() -> anyhow::Result<BTreeSet<String>> {
    let tasks = fs::read_dir("/proc/self/task").context("cannot read /proc/self/task")?;
    Ok(tasks.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// The threads of a process.
pub(super) fn threads_of(process: u32) -> anyhow::Result<Vec<i32>> {
    let path = format!("/proc/{process}/task");
    let tasks = fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(tasks.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The number after a field's name.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found() {
        assert_eq!(field("syscr: 7\nsyscw: 12\n", "syscw:"), Some(12));
        assert_eq!(field("Anonymous:     2048 kB\n", "Anonymous:"), Some(2048));
        assert_eq!(field("x: y", "x:"), None);
    }

    #[test]
    fn too_many_files_are_refused_with_advice() {
        let error = allow_files(u64::MAX - 1, "--connections").map_err(|error| error.to_string());
        if let Some(error) = error.err() {
            assert!(error.contains("--connections"), "{error}");
        }
        assert!(allow_files(16, "--connections").is_ok());
    }

    #[test]
    fn this_process_can_be_read() -> anyhow::Result<()> {
        assert!(private_bytes()? > 0);
        // The kernel accounts a thread's time when it is switched away; a young one may have none yet.
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(1));
        assert!(thread_time(&this_thread()?)? > 0);
        let own = std::process::id();
        let earlier = ThreadTimes(BTreeMap::new());
        assert!(ThreadTimes::of(own)?.since(&earlier) > Duration::ZERO);
        assert!(Resident::of(own)?.sum() >= private_bytes()? / 2);
        socket_buffer_bytes()?;
        Ok(())
    }
}
