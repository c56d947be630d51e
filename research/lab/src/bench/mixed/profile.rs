//! Where the processor time of the send path goes: samples of `perf` by the kernel's functions.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// Samples a second of processor time, at most. A prime, so that they do not keep step with pictures.
const FREQUENCY: u32 = 3989;

/// The kernel's limit, which it lowers on a busy machine.
const MOST: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// Functions that take or release locks, or wait for them.
const LOCKS: &[&str] = &[
    "_raw_spin_",
    "_raw_read_",
    "_raw_write_",
    "queued_spin_lock_slowpath",
    "native_queued_spin_lock",
    "lock_sock",
    "release_sock",
    "__local_bh_",
    "mutex_lock",
    "mutex_unlock",
];

/// Functions between IP and the device: queueing disciplines, the device's transmit function, the backlog of the other host.
const QUEUE: &[&str] = &[
    "__dev_queue_xmit",
    "__dev_xmit_skb",
    "sch_direct_xmit",
    "__qdisc_run",
    "qdisc_",
    "pfifo_",
    "dev_hard_start_xmit",
    "dev_qdisc_",
    "validate_xmit_",
    "veth_xmit",
    "__dev_forward_skb",
    "netif_rx",
    "enqueue_to_backlog",
    "netdev_core_pick_tx",
    "netif_skb_features",
];

/// Functions that handle acknowledgements in TCP.
const ACKS: &[&str] = &[
    "tcp_ack",
    "tcp_rcv_established",
    "tcp_v4_rcv",
    "tcp_v4_do_rcv",
    "tcp_clean_rtx_queue",
    "tcp_rate_",
    "tcp_rack_",
    "cubictcp_",
    "tcp_validate_incoming",
    "tcp_parse_",
    "tcp_data_snd_check",
    "tcp_check_space",
    "tcp_rearm_rto",
    "tcp_queue_rcv",
    "__inet_lookup_established",
];

/// Shares of the samples of the camera's and the arrivals' threads, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shares {
    pub(super) samples: u64,
    pub(super) locks: f64,
    pub(super) queue: f64,
    pub(super) acks: f64,
}

/// A running `perf record` of some threads.
pub(super) struct Recording {
    child: Child,
    file: PathBuf,
}

impl Recording {
    /// Starts it; `None` if there is no `perf`.
    pub(super) fn start(threads: &[i32], time: Duration) -> anyhow::Result<Option<Self>> {
        let file = std::env::temp_dir().join(format!("freshwire-mixed-{}.perf", std::process::id()));
        let allowed = std::fs::read_to_string(MOST).ok().and_then(|text| text.trim().parse().ok());
        let frequency = allowed.unwrap_or(FREQUENCY).min(FREQUENCY).to_string();
        let threads = threads.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let child = Command::new("perf")
            .args(["record", "-q", "-e", "cpu-clock:k", "-F", &frequency, "-t", &threads, "-o"])
            .arg(&file)
            .args(["--", "sleep", &format!("{:.3}", time.as_secs_f64())])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Ok(Some(Self { child, file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("cannot start perf"),
        }
    }

    /// Waits for its end and reads it.
    pub(super) fn finish(mut self) -> anyhow::Result<Shares> {
        let status = self.child.wait()?;
        ensure!(status.success(), "perf record failed ({status}); try `perf record -e cpu-clock:k true`");
        let report = Command::new("perf")
            .args(["report", "--stdio", "-q", "-F", "sample,sym", "-s", "sym", "-i"])
            .arg(&self.file)
            .stderr(Stdio::null())
            .output()?;
        std::fs::remove_file(&self.file)?;
        ensure!(report.status.success(), "perf report failed ({})", report.status);
        Ok(shares(&String::from_utf8_lossy(&report.stdout)))
    }
}

/// Adds up lines such as `  123  [k] tcp_ack`.
fn shares(report: &str) -> Shares {
    let (mut all, mut locks, mut queue, mut acks) = (0_u64, 0_u64, 0_u64, 0_u64);
    for line in report.lines() {
        let mut words = line.split_whitespace();
        let (Some(samples), Some(_), Some(symbol)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let Ok(samples) = samples.parse::<u64>() else { continue };
        all += samples;
        let is_of = |list: &[&str]| list.iter().any(|start| symbol.starts_with(start));
        for (sum, list) in [(&mut locks, LOCKS), (&mut queue, QUEUE), (&mut acks, ACKS)] {
            if is_of(list) {
                *sum += samples;
            }
        }
    }
    let percent = |part: u64| 100.0 * part as f64 / (all.max(1)) as f64;
    Shares { samples: all, locks: percent(locks), queue: percent(queue), acks: percent(acks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_added_by_the_kinds_of_functions() {
        let report = "\n    50  [k] tcp_sendmsg_locked\n    20  [k] _raw_spin_lock\n    20  [k] __dev_queue_xmit\n     10  [k] tcp_ack\n";
        assert_eq!(shares(report), Shares { samples: 100, locks: 20.0, queue: 20.0, acks: 10.0 });
        assert_eq!(shares("").samples, 0);
    }
}
