//! Judges what was seen of the machine: one line per subject, with what to do where something is to be done.

use std::time::Duration;

use serde::Serialize;

use super::link::Observation;
use super::machine::{Clock, Congestion, Ffmpeg, KernelRing, Machine, Tcp};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// As it should be.
    Ok,
    /// It works, but less well, or a part of the program does not.
    Warn,
    /// Nothing can be sent or served without it.
    Missing,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// The observation.
    pub(super) found: String,
    /// What to do, where something is to be done.
    pub(super) advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, found: found.into(), advice: None }
    }

    fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    fn missing(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, status: Status::Missing, found: found.into(), advice: Some(advice.into()) }
    }
}

/// The oldest kernel that waits for files with a time-out below a millisecond (`epoll_pwait2`).
const OLDEST_KERNEL: (u32, u32) = (5, 11);

/// The oldest kernel on which the carrier was measured.
const MEASURED_KERNEL: (u32, u32) = (6, 1);

/// Enough descriptors for a thousand connections with both ends in one process, and a reserve. Chosen, not
/// measured.
const ENOUGH_FILES: u64 = 4096;

/// The lab doubts a run in which the slowest 1 % of all packets was later than this.
const LATE_LINK: Duration = Duration::from_millis(1);

/// A sleep that is longer than asked by more than this shows in measured delays. Chosen, not measured.
const LATE_WAKE: Duration = Duration::from_millis(1);

/// All checks, in the order in which they are shown.
pub(super) fn all(machine: &Machine) -> Vec<Check> {
    vec![
        kernel(&machine.kernel),
        processors(machine.cpus),
        notsent_lowat(&machine.tcp),
        min_rto(&machine.tcp),
        congestion(&machine.congestion),
        kernel_ring(&machine.kernel_ring),
        link(&machine.link),
        priority(&machine.link),
        sealed_memory(&machine.sealed_memory),
        open_files(machine.open_files),
        ffmpeg(machine.ffmpeg),
        clock(&machine.clock),
    ]
}

fn kernel(release: &str) -> Check {
    const NAME: &str = "kernel";
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    let version = (numbers.next().flatten(), numbers.next().flatten());
    match version {
        (Some(major), Some(minor)) if (major, minor) < OLDEST_KERNEL => {
            Check::missing(NAME, release, "Linux 5.11 or newer is needed: epoll_pwait2 is not there")
        }
        (Some(major), Some(minor)) if (major, minor) < MEASURED_KERNEL => {
            Check::warn(NAME, release, "it should work, but was measured on Linux 6.1 and newer only")
        }
        (Some(_), Some(_)) => Check::ok(NAME, release),
        _ => Check::warn(NAME, release, "its version cannot be read; Linux 6.1 or newer is expected"),
    }
}

fn processors(cpus: usize) -> Check {
    const NAME: &str = "processors";
    if cpus >= 2 {
        Check::ok(NAME, cpus.to_string())
    } else {
        Check::warn(
            NAME,
            cpus.to_string(),
            "with one processor the emulated link and the sender delay each other",
        )
    }
}

fn notsent_lowat(tcp: &Result<Tcp, String>) -> Check {
    const NAME: &str = "TCP_NOTSENT_LOWAT";
    match tcp {
        Ok(_) => Check::ok(NAME, "works, and so do SIOCOUTQNSD and TCP_INFO"),
        Err(error) => Check::missing(
            NAME,
            error,
            "the horizon cannot be bounded; allow TCP on 127.0.0.1, or leave the sandbox that hides socket options",
        ),
    }
}

fn min_rto(tcp: &Result<Tcp, String>) -> Check {
    const NAME: &str = "TCP_RTO_MIN_US";
    if tcp.as_ref().is_ok_and(|tcp| tcp.min_rto) {
        Check::ok(NAME, "works")
    } else {
        Check::warn(
            NAME,
            "not there",
            "Linux 6.15 has it; before, a lost tail is repaired after 200 ms at the earliest",
        )
    }
}

fn congestion(seen: &Congestion) -> Check {
    const NAME: &str = "congestion control";
    let default = seen.default.as_deref().unwrap_or("unknown");
    let mut found = format!("{}; default {default}", seen.available.join(" "));
    let reserved: Vec<&str> =
        seen.available.iter().filter(|name| !seen.allowed.contains(name)).map(String::as_str).collect();
    if !reserved.is_empty() {
        found += &format!("; outside the emulated link only root may choose {}", reserved.join(" "));
    }
    let absent: Vec<&str> = ["cubic", "bbr"]
        .into_iter()
        .filter(|name| !seen.available.iter().any(|available| available == name))
        .collect();
    if seen.available.is_empty() {
        Check::warn(NAME, "cannot be read", "mount /proc; until then the kernel's default is used")
    } else if absent.is_empty() {
        Check::ok(NAME, found)
    } else {
        let load: Vec<String> = absent.iter().map(|name| format!("sudo modprobe tcp_{name}")).collect();
        let advice = format!("{} is not loaded: {}", absent.join(" and "), load.join("; "));
        Check::warn(NAME, found, advice)
    }
}

fn kernel_ring(seen: &KernelRing) -> Check {
    const NAME: &str = "kernel ring";
    match seen {
        KernelRing::Works => Check::ok(NAME, "works"),
        KernelRing::NotLoaded => Check::ok(
            NAME,
            "not there, plain TCP is used; optional: build host/kernel/tcp_ldc, then sudo modprobe tcp_ldc",
        ),
        KernelRing::Broken(why) => Check::warn(
            NAME,
            why,
            "plain TCP is used; look at `dmesg`, or raise the locked memory limit (ulimit -l)",
        ),
    }
}

fn link(seen: &Observation) -> Check {
    const NAME: &str = "emulated link";
    match seen {
        Observation::NotPermitted(why) => Check::warn(
            NAME,
            why,
            "link and the demo need namespaces; as root: sysctl -w kernel.unprivileged_userns_clone=1 (Debian), \
             kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces=10000; or run as root",
        ),
        Observation::Broken(why) => Check::warn(
            NAME,
            why,
            "link and the demo need it; load the modules veth and af_packet, or leave the sandbox that hides them",
        ),
        Observation::Works { late_us, ipv6, .. } => {
            let late = Duration::from_micros(*late_us);
            let versions = if *ipv6 { "IPv4 and IPv6" } else { "IPv4" };
            let found = format!("works, {versions}; slowest packets {late:?} late");
            if late > LATE_LINK {
                Check::warn(NAME, found, "the machine is too busy for exact results: end other programs")
            } else {
                Check::ok(NAME, found)
            }
        }
    }
}

fn priority(seen: &Observation) -> Check {
    const NAME: &str = "real-time priority";
    match seen {
        Observation::Works { real_time: true, .. } => Check::ok(NAME, "permitted"),
        Observation::NotPermitted(_) | Observation::Broken(_) => {
            Check::warn(NAME, "not tried", "first the emulated link has to work")
        }
        Observation::Works { real_time: false, .. } => Check::warn(
            NAME,
            "not permitted",
            "the emulated link shares its processor with other programs; on a busy machine set RLIMIT_RTPRIO \
             (`rtprio` in /etc/security/limits.conf), or run as root",
        ),
    }
}

fn sealed_memory(seen: &Result<(), String>) -> Check {
    const NAME: &str = "sealed memory file";
    match seen {
        Ok(()) => Check::ok(NAME, "works"),
        Err(error) => Check::missing(
            NAME,
            error,
            "the ring cannot be shared; leave the sandbox that forbids memfd_create, or free some memory",
        ),
    }
}

fn open_files(limit: Option<(u64, u64)>) -> Check {
    const NAME: &str = "open files";
    match limit {
        None => Check::warn(NAME, "cannot be read", "mount /proc"),
        Some((now, _)) if now >= ENOUGH_FILES => Check::ok(NAME, now.to_string()),
        Some((now, most)) if most >= ENOUGH_FILES => Check::warn(
            NAME,
            now.to_string(),
            format!("for a thousand connections: ulimit -n {ENOUGH_FILES}"),
        ),
        Some((now, most)) => Check::warn(
            NAME,
            format!("{now}, at most {most}"),
            format!("for a thousand connections: nofile {ENOUGH_FILES} in /etc/security/limits.conf"),
        ),
    }
}

fn ffmpeg(seen: Ffmpeg) -> Check {
    const NAME: &str = "ffmpeg";
    let parts = [("ffmpeg", seen.ffmpeg), ("ffprobe", seen.ffprobe), ("libx264", seen.libx264)];
    let names = |there: bool| {
        let named: Vec<&str> = parts.iter().filter(|part| part.1 == there).map(|part| part.0).collect();
        named.join(" ")
    };
    let found = names(true);
    if names(false).is_empty() {
        Check::ok(NAME, found)
    } else if !seen.ffmpeg || !seen.ffprobe {
        Check::warn(
            NAME,
            format!("no {}", names(false)),
            "serve needs it for the test picture, most files and ladders, and the demo: sudo apt-get install ffmpeg",
        )
    } else {
        Check::warn(
            NAME,
            format!("no {}", names(false)),
            "the test picture and the demo need it: install an ffmpeg that has it; ladders can name another `encoder`",
        )
    }
}

fn clock(seen: &Clock) -> Check {
    const NAME: &str = "clock";
    let source = seen.source.as_deref().unwrap_or("unknown source");
    let found = format!("{source}; a sleep ends {:?} late", seen.oversleep);
    if seen.oversleep > LATE_WAKE {
        Check::warn(
            NAME,
            found,
            "the machine is busy or its timers are coarse: delays will be measured too long",
        )
    } else if matches!(source, "hpet" | "acpi_pm" | "jiffies") {
        Check::warn(
            NAME,
            found,
            "reading this clock is slow: boot with clocksource=tsc if the processor has it",
        )
    } else {
        Check::ok(NAME, found)
    }
}
