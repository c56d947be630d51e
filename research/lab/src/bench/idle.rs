//! Connections of A1 over which nothing is sent: what they keep, and what their timers cost. Both ends are in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use freshwire::a1::{ConnectConfig, Connection, ConnectionConfig, Node, NodeConfig};
use freshwire_io::now;
use rustix::time::ClockId;

use super::machine::{private_bytes, processor_time};
use super::series::{Goal, Report, Unit};
use crate::output::say;

const BENCH: &str = "idle";

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// From the last connection to the idle time: what a handshake leaves to be done is done by then.
const SETTLE: Duration = Duration::from_secs(3);

/// As often as a NAT forgets, or oftener.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Longer than a repetition, so that no connection ends in it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Processor time of both ends in a second of idle time that counts as none: a thousandth of a processor.
const NOTHING: Duration = Duration::from_millis(1);

/// One repetition with `connections` and one with a single one, without and with keep-alive; each is idle for `time`.
pub(super) fn measure(
    repeat: u32,
    connections: usize,
    time: Duration,
    report: &mut Report,
) -> anyhow::Result<()> {
    for repetition in 1..=repeat {
        for (keep_alive, how) in [(None, "no keep-alive"), (Some(KEEP_ALIVE), "kept alive each 15 s")] {
            say(&format!("idle, {how}: repetition {repetition} of {repeat} ..."));
            let one = Idle::measure(1, keep_alive, time)?;
            let many = Idle::measure(connections, keep_alive, time)?;
            if repetition == 1 && keep_alive.is_none() {
                // Later ones live in what the allocator kept of the first.
                let more = many.private_bytes.saturating_sub(one.private_bytes) as f64;
                let an_end = more / (2 * (connections - 1)) as f64;
                report.add(BENCH, "private memory of an end of a connection", Unit::Bytes, an_end);
            }
            let mut add =
                |what: &str, unit, sample| report.add(BENCH, &format!("{how}: {what}"), unit, sample);
            add(
                "opening one connection",
                Unit::Nanoseconds,
                many.opening.as_nanos() as f64 / connections as f64,
            );
            let a_second = |idle: &Idle| idle.processor.as_nanos() as f64 / time.as_secs_f64();
            add("processor time a second, one connection", Unit::Nanoseconds, a_second(&one));
            let cost = add(
                &format!("processor time a second, {connections} connections"),
                Unit::Nanoseconds,
                a_second(&many),
            );
            if repetition == repeat && keep_alive.is_none() {
                report.demand(cost, Goal::AtMost(NOTHING.as_nanos() as f64));
            }
        }
    }
    Ok(())
}

/// The cost of connections between two nodes of this process.
struct Idle {
    opening: Duration,
    /// Memory of both ends, and of the two nodes.
    private_bytes: u64,
    /// Processor time of both ends during the idle time.
    processor: Duration,
}

impl Idle {
    fn measure(connections: usize, keep_alive: Option<Duration>, time: Duration) -> anyhow::Result<Self> {
        let before = private_bytes()?;
        let mut transport = ConnectionConfig::default();
        transport.keep_alive = keep_alive;
        transport.idle_timeout = IDLE_TIMEOUT;
        let bind = || -> anyhow::Result<Node> {
            let config = NodeConfig::new().context("cannot make a key")?.connection(transport.clone());
            Ok(Node::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), config)?)
        };
        let (near, far) = (bind()?, bind()?);
        let begin = now();
        let ends = open(&near, &far, connections)?;
        let opening = now().saturating_since(begin);
        std::thread::sleep(SETTLE);
        let private_bytes = private_bytes()?.saturating_sub(before);
        let used = processor_time(ClockId::ProcessCPUTime);
        std::thread::sleep(time);
        let processor = processor_time(ClockId::ProcessCPUTime).saturating_sub(used);
        let closed = ends.iter().filter_map(Connection::closed).next();
        anyhow::ensure!(closed.is_none(), "a connection ended: {closed:?}");
        Ok(Self { opening, private_bytes, processor })
    }
}

/// Both ends of each connection.
fn open(near: &Node, far: &Node, connections: usize) -> anyhow::Result<Vec<Connection>> {
    let address = far.local_addr().context("cannot tell the address")?;
    let (key, config) = (far.public_key(), ConnectConfig::default().timeout(PATIENCE));
    let mut ends = Vec::with_capacity(2 * connections);
    for _ in 0..connections {
        ends.push(near.connect(address, &key, &config).context("cannot connect over A1")?);
        ends.push(far.accept(PATIENCE)?.context("the connection was not accepted")?);
    }
    Ok(ends)
}
