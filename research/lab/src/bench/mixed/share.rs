//! A limited share of one processor: the quota of a control group (CFS bandwidth control), by cgroup v1 or v2.
//!
//! ```text
//!  v1:  cpu hierarchy ─► freshwire-mixed-PID: its threads (`tasks`), quota and weight
//!  v2:  root ─► freshwire-mixed-PID: this process ─► share, threaded: its threads (`cgroup.threads`), quota and weight
//! ```
//!
//! In v2 a thread can only be in a group below its process's own, so the process moves too, and back at the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::thread::gettid;

/// Length of a turn, after which the group has its quota again. A picture comes each 4 ms, and a viewer may be 25 behind.
const PERIOD: Duration = Duration::from_millis(20);

/// The largest weights of v1 and v2: what else the machine does takes nothing from the quota.
const SHARES: &str = "262144";
const WEIGHT: &str = "10000";

/// How long a thread that has ended may stay in its group.
const LEAVING: Duration = Duration::from_secs(2);

/// A control group. Dropping it puts everything back and removes it.
#[derive(Debug)]
pub(super) struct Share {
    version: Version,
    /// That of the threads.
    group: PathBuf,
    /// In v2, the one above, in which the process is.
    above: Option<PathBuf>,
    /// Where the kernel's threads were.
    root: PathBuf,
    /// In v2, where the process was.
    home: Option<PathBuf>,
    kernel_threads: Vec<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// There is no control group that threads could be put into.
#[derive(Debug, thiserror::Error)]
#[error(
    "no cpu controller of control groups can be used here ({0}); mount cgroup v2 with it, outside of a container, or that of v1"
)]
pub(super) struct NoController(String);

impl Share {
    /// Makes a group without a quota.
    pub(super) fn new() -> anyhow::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let name = format!("freshwire-mixed-{}", std::process::id());
        match v1(&mounts) {
            Some(root) => Self::with_v1(root, &name),
            None => Self::with_v2(&mounts, &name),
        }
    }

    fn with_v1(root: PathBuf, name: &str) -> anyhow::Result<Self> {
        let group = root.join(name);
        make(&group)?;
        let share =
            Self { version: Version::V1, group, above: None, root, home: None, kernel_threads: Vec::new() };
        share.write("cpu.shares", SHARES)?;
        share.write("cpu.cfs_period_us", &PERIOD.as_micros().to_string())?;
        Ok(share)
    }

    fn with_v2(mounts: &str, name: &str) -> anyhow::Result<Self> {
        let root = v2(mounts).ok_or_else(|| NoController("none is mounted".to_owned()))?;
        let controllers = fs::read_to_string(root.join("cgroup.controllers"))?;
        if !has_cpu(&controllers) {
            return Err(NoController(format!("{} has none", root.display())).into());
        }
        if !has_cpu(&fs::read_to_string(root.join("cgroup.subtree_control"))?) {
            // A container's root has processes in it, so that the kernel refuses.
            fs::write(root.join("cgroup.subtree_control"), "+cpu")
                .map_err(|error| NoController(format!("{}: {error}", root.display())))?;
        }
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let home = own_group(&own).context("this process is in no group of cgroup v2")?;
        let home = root.join(home.trim_start_matches('/'));
        let above = root.join(name);
        make(&above)?;
        let group = above.join("share");
        let share = Self {
            version: Version::V2,
            group: group.clone(),
            above: Some(above.clone()),
            root,
            home: Some(home),
            kernel_threads: Vec::new(),
        };
        write(&above, "cpu.weight", WEIGHT)?;
        make(&group)?;
        // Before processes come: a threaded group makes the one above a threaded domain, which may have both.
        share.write("cgroup.type", "threaded")?;
        write(&above, "cgroup.procs", &std::process::id().to_string())?;
        write(&above, "cgroup.subtree_control", "+cpu")?;
        share.write("cpu.weight", WEIGHT)?;
        Ok(share)
    }

    /// Limits the group to a share of one processor; `None` takes the limit away.
    pub(super) fn limit(&self, share: Option<f64>) -> anyhow::Result<()> {
        let period = PERIOD.as_micros();
        let quota = match share {
            None => None,
            Some(share) => {
                ensure!((0.05..=1.0).contains(&share), "a share of {share:.3} is not from 0.05 to 1");
                Some((share * period as f64) as u64)
            }
        };
        match (self.version, quota) {
            (Version::V1, None) => self.write("cpu.cfs_quota_us", "-1"),
            (Version::V1, Some(quota)) => self.write("cpu.cfs_quota_us", &quota.to_string()),
            (Version::V2, None) => self.write("cpu.max", &format!("max {period}")),
            (Version::V2, Some(quota)) => self.write("cpu.max", &format!("{quota} {period}")),
        }
    }

    /// Puts the calling thread into the group, until it ends.
    pub(super) fn join(&self) -> anyhow::Result<()> {
        self.write(self.threads(), &gettid().as_raw_nonzero().to_string())
    }

    /// Puts a thread of the kernel into the group. Its time is taken from the quota; the kernel itself is not held back.
    pub(super) fn add_kernel_thread(&mut self, thread: i32) -> anyhow::Result<()> {
        if let Some(above) = &self.above {
            write(above, "cgroup.procs", &thread.to_string())?;
        }
        self.kernel_threads.push(thread);
        self.write(self.threads(), &thread.to_string())
    }

    /// For how long the group was held back because its quota was used up, since it was made.
    pub(super) fn held_back(&self) -> anyhow::Result<Duration> {
        let text = fs::read_to_string(self.group.join("cpu.stat"))?;
        let of = |name: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
            pairs.find(|(found, _)| *found == name).and_then(|(_, value)| value.parse::<u64>().ok())
        };
        let time = match self.version {
            Version::V1 => of("throttled_time").map(Duration::from_nanos),
            Version::V2 => of("throttled_usec").map(Duration::from_micros),
        };
        time.with_context(|| format!("{}/cpu.stat does not say it", self.group.display()))
    }

    fn threads(&self) -> &'static str {
        match self.version {
            Version::V1 => "tasks",
            Version::V2 => "cgroup.threads",
        }
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        write(&self.group, file, value)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // In v1 `tasks` takes threads; in v2 a kernel thread is a process.
        let file = if self.version == Version::V1 { "tasks" } else { "cgroup.procs" };
        for thread in &self.kernel_threads {
            // One that has ended is in no group.
            let _ = fs::write(self.root.join(file), thread.to_string());
        }
        if let Some(home) = &self.home {
            // Without a home it stays in the group, which then stays as well.
            let _ = fs::write(home.join("cgroup.procs"), std::process::id().to_string());
        }
        let deadline = Instant::now() + LEAVING;
        for group in [Some(&self.group), self.above.as_ref()].into_iter().flatten() {
            while fs::remove_dir(group).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
                && Instant::now() < deadline
            {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn make(group: &Path) -> anyhow::Result<()> {
    fs::create_dir(group).with_context(|| format!("cannot make {}", group.display()))
}

fn write(group: &Path, file: &str, value: &str) -> anyhow::Result<()> {
    let path = group.join(file);
    fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
}

/// Where the cpu controller of cgroup v1 is mounted, by the text of `/proc/self/mountinfo`.
fn v1(mounts: &str) -> Option<PathBuf> {
    mount(mounts, |kind, options| kind == "cgroup" && options.split(',').any(|option| option == "cpu"))
}

/// Where cgroup v2 is mounted, by the same text.
fn v2(mounts: &str) -> Option<PathBuf> {
    mount(mounts, |kind, _| kind == "cgroup2")
}

/// The mount point of the first mount whose type and options are wanted.
fn mount(mounts: &str, is_wanted: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let path = mount.split(' ').nth(4)?;
        is_wanted(name, options).then(|| Path::new(path).to_owned())
    })
}

/// The group of cgroup v2, by the text of `/proc/self/cgroup`.
fn own_group(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::"))
}

fn has_cpu(controllers: &str) -> bool {
    controllers.split_whitespace().any(|name| name == "cpu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_found_among_mounts() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n\
                      33 30 0:29 / /sys/fs/cgroup/cpuset rw,relatime shared:15 - cgroup cgroup rw,cpuset\n\
                      34 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:16 - cgroup cgroup rw,cpu,cpuacct\n";
        assert_eq!(v1(mounts), Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(v2(mounts), None);
        let unified = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate";
        assert_eq!(v1(unified), None);
        assert_eq!(v2(unified), Some(PathBuf::from("/sys/fs/cgroup")));
        assert!(has_cpu("cpuset cpu io memory\n") && !has_cpu("cpuset io\n") && !has_cpu("\n"));
        assert_eq!(own_group("3:cpu:/a\n0::/user.slice/b.scope\n"), Some("/user.slice/b.scope"));
        assert_eq!(own_group("3:cpu:/a\n"), None);
    }
}
