//! The live server as a process in a testbed's near host, fed with a steady stream, and its viewers in the far host.
//!
//! ```text
//!  this process            near host, processor 0               far host, processor 1
//!  steady stream ──stdin──► freshwire serve ──RTSP, RTP over TCP or UDP──► viewers, one thread reads them
//! ```

pub(super) mod steady;
pub(super) mod viewers;

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_netns::testbed::{Testbed, pin};

use crate::child::ChildGuard;
use crate::viewers::server::{self, Server};
use steady::Steady;
use viewers::Viewers;

const PORT: u16 = 8554;

/// All viewers have the far host's address.
const MANY_FROM_ONE_ADDRESS: &str =
    "[limits]\nmax_connections_per_ip = 4096\nmax_connection_rate_per_ip = 4096\n";

/// From the last viewer to the measured time: slow start is over.
pub(super) const SETTLE: Duration = Duration::from_millis(1500);

/// The stream, and who gets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Bytes of a picture.
    pub(super) bytes: usize,
    /// From one picture to the next.
    pub(super) interval: Duration,
    pub(super) tcp: usize,
    pub(super) udp: usize,
}

/// A server at work. Dropping it ends it.
pub(super) struct Served {
    process: ChildGuard,
    stop: Arc<AtomicBool>,
    feeder: Option<JoinHandle<[u64; 2]>>,
    pub(super) viewers: Viewers,
}

impl Served {
    /// Starts the server on processor 0 and connects the viewers. `enter` runs on the thread that starts it, first: the server inherits
    /// what it does.
    pub(super) fn start(
        testbed: &Testbed,
        plan: Plan,
        enter: impl FnOnce() -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<Self> {
        let mut config = tempfile::NamedTempFile::new().context("cannot make a configuration")?;
        config.write_all(MANY_FROM_ONE_ADDRESS.as_bytes()).context("cannot write a configuration")?;
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let mut command: Command = Server::Freshwire.command(address, Some(config.path()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = testbed.in_near(|| {
            pin(0);
            enter()?;
            command.spawn().context("cannot start the server")
        })??;
        let mut process = ChildGuard(child);
        let input = process.stdin.take().context("the server has no input")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let feeder = std::thread::spawn(move || {
            pin(1);
            // A starved feeder would look like a slow server. Where it may not, `pictures fed` tells.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), viewers::NICE);
            Steady::new(plan.bytes).feed(input, plan.interval, &stopped)
        });
        let address = SocketAddr::new(testbed.near_address(), PORT);
        server::wait_until_it_listens(&mut process, || testbed.in_far(|| TcpStream::connect(address)))?;
        let mut served = Self { process, stop, feeder: Some(feeder), viewers: Viewers::new()? };
        let url = format!("rtsp://{address}/live");
        for place in 0..plan.tcp.max(plan.udp) {
            if place < plan.tcp {
                testbed.in_far(|| served.viewers.add(address, &url, None))??;
            }
            if place < plan.udp {
                testbed.in_far(|| served.viewers.add(address, &url, Some(testbed.address().ip())))??;
            }
        }
        served.viewers.read()?;
        std::thread::sleep(SETTLE);
        Ok(served)
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends the stream; how many pictures were handed over, and how many were left out because the server did not read.
    pub(super) fn finish(mut self) -> anyhow::Result<[u64; 2]> {
        anyhow::ensure!(matches!(self.process.try_wait(), Ok(None)), "the server has ended");
        self.stop.store(true, Ordering::Relaxed);
        // A feeder may wait for a server that does not read.
        self.process.kill().context("cannot end the server")?;
        let feeder = self.feeder.take().context("the feeder has ended")?;
        feeder.join().map_err(|_| anyhow::anyhow!("the feeder panicked"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
