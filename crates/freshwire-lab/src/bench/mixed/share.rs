//! A limited share of one processor: the quota of a control group (CFS bandwidth control).

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::thread::gettid;

/// Length of a turn, after which the group has its quota again. A picture comes each 4 ms, and a viewer may be 25 behind.
const PERIOD: Duration = Duration::from_millis(20);

/// The largest `cpu.shares`: what else the machine does takes nothing from the quota.
const WEIGHT: &str = "262144";

/// How long a thread that has ended may stay in its group.
const LEAVING: Duration = Duration::from_secs(2);

/// A control group. Dropping it puts the kernel's threads back and removes it.
#[derive(Debug)]
pub(super) struct Share {
    group: PathBuf,
    parent: PathBuf,
    kernel_threads: Vec<i32>,
}

/// There is no control group that threads could be put into.
#[derive(Debug, thiserror::Error)]
#[error(
    "no cpu controller of cgroup v1 is mounted, and cgroup v2 takes whole processes: boot with systemd.unified_cgroup_hierarchy=0"
)]
pub(super) struct NoController;

impl Share {
    /// Makes a group without a quota.
    pub(super) fn new() -> anyhow::Result<Self> {
        let parent = controller(&fs::read_to_string("/proc/self/mountinfo")?).ok_or(NoController)?;
        let group = parent.join(format!("freshwire-mixed-{}", std::process::id()));
        fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
        let share = Self { group, parent, kernel_threads: Vec::new() };
        share.write("cpu.shares", WEIGHT)?;
        share.write("cpu.cfs_period_us", &PERIOD.as_micros().to_string())?;
        Ok(share)
    }

    /// Limits the group to a share of one processor; `None` takes the limit away.
    pub(super) fn limit(&self, share: Option<f64>) -> anyhow::Result<()> {
        let quota = match share {
            None => "-1".to_owned(),
            Some(share) => {
                ensure!((0.05..=1.0).contains(&share), "a share of {share:.3} is not from 0.05 to 1");
                ((share * PERIOD.as_micros() as f64) as u64).to_string()
            }
        };
        self.write("cpu.cfs_quota_us", &quota)
    }

    /// Puts the calling thread into the group, until it ends.
    pub(super) fn join(&self) -> anyhow::Result<()> {
        self.write("tasks", &gettid().as_raw_nonzero().to_string())
    }

    /// Puts a thread of the kernel into the group. What it takes is taken from the quota; the kernel itself is not held back.
    pub(super) fn add_kernel_thread(&mut self, thread: i32) -> anyhow::Result<()> {
        self.write("tasks", &thread.to_string())?;
        self.kernel_threads.push(thread);
        Ok(())
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.group.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for thread in &self.kernel_threads {
            // One that has ended is in no group.
            let _ = fs::write(self.parent.join("tasks"), thread.to_string());
        }
        let deadline = Instant::now() + LEAVING;
        while fs::remove_dir(&self.group).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Where the cpu controller of cgroup v1 is mounted, by the text of `/proc/self/mountinfo`.
fn controller(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_cgroup = kind.next()? == "cgroup";
        let has_cpu = kind.nth(1)?.split(',').any(|option| option == "cpu");
        let path = mount.split(' ').nth(4)?;
        (is_cgroup && has_cpu).then(|| Path::new(path).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_is_found_among_mounts() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n\
                      33 30 0:29 / /sys/fs/cgroup/cpuset rw,relatime shared:15 - cgroup cgroup rw,cpuset\n\
                      34 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:16 - cgroup cgroup rw,cpu,cpuacct\n";
        assert_eq!(controller(mounts), Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")));
        let unified = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate";
        assert_eq!(controller(unified), None);
    }
}
