//! Looks at the machine. Nothing is judged here: what cannot be read is `None` or an error in words.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use freshwire::ring::Region;
use freshwire::{RingConfig, now};
use freshwire_io::kernel_ring::{Geometry, KernelRingError, RingSocket};
use freshwire_io::tcp::{TcpSocket, available_congestion_controls, kernel_release};

use super::link::{self, Observation};

/// Everything that was seen.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Such as `6.12.0`.
    pub(super) kernel: String,
    pub(super) cpus: usize,
    pub(super) congestion: Congestion,
    pub(super) tcp: Result<Tcp, String>,
    pub(super) link: Observation,
    pub(super) kernel_ring: KernelRing,
    /// Why no sealed memory file can be made and mapped, if so.
    pub(super) sealed_memory: Result<(), String>,
    /// How many files this process may open: now, and at most after `ulimit -n`.
    pub(super) open_files: Option<(u64, u64)>,
    pub(super) ffmpeg: Ffmpeg,
    pub(super) clock: Clock,
}

/// Congestion controls by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Congestion {
    /// Loaded in the kernel.
    pub(super) available: Vec<String>,
    /// Free for everybody to choose; the others need a privilege.
    pub(super) allowed: Vec<String>,
    /// What a socket gets that does not choose.
    pub(super) default: Option<String>,
}

/// What a TCP socket here can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tcp {
    /// The shortest retransmission timeout can be chosen.
    pub(super) min_rto: bool,
}

/// Whether a kernel module of Freshwire serves this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KernelRing {
    Works,
    /// The module is not loaded, and this process may not load it or it is not installed.
    NotLoaded,
    /// The module is there and does not serve this process.
    Broken(String),
}

/// What of ffmpeg there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ffmpeg {
    pub(super) ffmpeg: bool,
    pub(super) ffprobe: bool,
    pub(super) libx264: bool,
}

/// The clock behind `CLOCK_MONOTONIC`, and how exactly a thread wakes.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// The kernel's name for it, such as `tsc`.
    pub(super) source: Option<String>,
    /// By how much the median of some short sleeps was too long.
    pub(super) oversleep: Duration,
}

/// Looks at everything. Takes about half a second.
pub(super) fn look() -> Machine {
    Machine {
        kernel: kernel_release(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        congestion: congestion(),
        tcp: tcp().map_err(|error| format!("{error:#}")),
        link: link::probe_in_child(),
        kernel_ring: kernel_ring().unwrap_or_else(|error| KernelRing::Broken(format!("{error:#}"))),
        sealed_memory: sealed_memory().map_err(|error| format!("{error:#}")),
        open_files: fs::read_to_string("/proc/self/limits").ok().and_then(|limits| open_files(&limits)),
        ffmpeg: ffmpeg(),
        clock: clock(),
    }
}

fn congestion() -> Congestion {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    Congestion {
        available: available_congestion_controls().unwrap_or_default(),
        allowed: read("tcp_allowed_congestion_control").split_whitespace().map(str::to_owned).collect(),
        default: read("tcp_congestion_control").split_whitespace().next().map(str::to_owned),
    }
}

fn tcp() -> anyhow::Result<Tcp> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let socket = TcpSocket::new(TcpStream::connect(listener.local_addr()?)?)?;
    socket.set_notsent_lowat(1)?;
    socket.unsent()?;
    socket.info()?;
    Ok(Tcp { min_rto: socket.set_min_rto(Duration::from_millis(50))? })
}

/// Makes a small ring, which also loads the module where it is installed and this process may.
fn kernel_ring() -> anyhow::Result<KernelRing> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let socket = TcpSocket::new(TcpStream::connect(listener.local_addr()?)?)?;
    match RingSocket::attach(socket, &Geometry { slots: 2, block_bytes: 16, blocks: 2, keep_acks: 0 }) {
        Ok(ring) => ring.map().map(|_| KernelRing::Works).map_err(Into::into),
        Err(refused) if matches!(refused.error, KernelRingError::NotLoaded) => Ok(KernelRing::NotLoaded),
        Err(refused) => Err(refused.error.into()),
    }
}

fn sealed_memory() -> anyhow::Result<()> {
    let region = Region::create(&RingConfig::default())?;
    let file = region.as_fd().ok_or_else(|| anyhow::anyhow!("the region has no memory file"))?;
    Region::attach(file.try_clone_to_owned()?)?;
    Ok(())
}

/// Reads the line `Max open files  1024  4096  files` of a process's limits.
pub(super) fn open_files(limits: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut numbers = line.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        _ => word.parse().ok(),
    });
    Some((numbers.next()??, numbers.next()??))
}

fn ffmpeg() -> Ffmpeg {
    let says = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let encoders = says("ffmpeg", &["-hide_banner", "-encoders"]);
    Ffmpeg {
        ffmpeg: encoders.is_some(),
        ffprobe: says("ffprobe", &["-version"]).is_some(),
        libx264: encoders.is_some_and(|encoders| encoders.split_whitespace().any(|word| word == "libx264")),
    }
}

fn clock() -> Clock {
    const SLEEP: Duration = Duration::from_millis(2);
    let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let mut oversleeps: Vec<Duration> = (0..21)
        .map(|_| {
            let before = now();
            std::thread::sleep(SLEEP);
            now().saturating_since(before).saturating_sub(SLEEP)
        })
        .collect();
    oversleeps.sort_unstable();
    Clock {
        source: source.ok().map(|name| name.trim().to_owned()),
        oversleep: oversleeps[oversleeps.len() / 2],
    }
}
