//! Small datagrams that tell how long the queue is.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::now;
use freshwire_netns::Namespaces;
use freshwire_record::Timestamp;

use crate::scenario::{TestLink, wait_until};

/// A thousandth or two of a link of 2 Mbit/s.
const INTERVAL: Duration = Duration::from_millis(100);

/// How long one look waits at most.
const WATCH: Duration = Duration::from_millis(100);

/// Both ends of the probes' way.
pub(super) struct Probe {
    near: UdpSocket,
    far: UdpSocket,
}

impl Probe {
    pub(super) fn open(link: &TestLink) -> anyhow::Result<Self> {
        let bind = |address| UdpSocket::bind((address, 0));
        let near = link.namespaces.in_near(|| bind(Namespaces::NEAR_V4))?.context("cannot probe")?;
        let far = link.namespaces.in_far(|| bind(Namespaces::FAR_V4))?.context("cannot probe")?;
        near.connect(far.local_addr().context("cannot probe")?).context("cannot probe")?;
        Ok(Self { near, far })
    }

    /// Sends probes from `begin` to `end`. For each that came: when it left, from `begin`, and how long it took beyond
    /// `delay`, in nanoseconds.
    pub(super) fn run(
        self,
        begin: Timestamp,
        end: Timestamp,
        delay: Duration,
    ) -> anyhow::Result<Vec<(u64, u64)>> {
        let Self { near, far } = self;
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&far, begin, end, delay));
            let mut due = begin;
            while due < end {
                wait_until(due);
                near.send(&now().as_nanos().to_be_bytes()).context("cannot send a probe")?;
                due += INTERVAL;
            }
            receiver.join().map_err(|_| anyhow::anyhow!("the receiver of probes panicked"))?
        })
    }
}

fn receive(
    socket: &UdpSocket,
    begin: Timestamp,
    end: Timestamp,
    delay: Duration,
) -> anyhow::Result<Vec<(u64, u64)>> {
    socket.set_read_timeout(Some(WATCH)).context("cannot set a time-out")?;
    let mut waits = Vec::new();
    while now() < end {
        let mut stamp = [0; 8];
        // Nothing came for a while, or a signal did.
        let Ok(8) = socket.recv(&mut stamp) else { continue };
        let sent = Timestamp::from_nanos(u64::from_be_bytes(stamp));
        let wait = now().saturating_since(sent).saturating_sub(delay);
        waits.push((sent.saturating_since(begin).as_nanos() as u64, wait.as_nanos() as u64));
    }
    Ok(waits)
}
