//! Machines of a tree: a network namespace each, on one switch.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use freshwire_record::Rate;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes that may wait before a slow line: what it carries in 0.8 s at 300 kbit/s, as in a router's small queue.
const SLOW_QUEUE: &str = "30kb";
/// Two full packets of Ethernet with their heads.
const SLOW_BURST: &str = "3028";

/// The machines. Dropping it removes them; the programs in them have to have ended.
pub(super) struct Wires {
    switch: String,
    nodes: Vec<String>,
}

/// A machine, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node(usize);

impl Node {
    pub(super) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, u8::try_from(self.0 + 1).unwrap_or(u8::MAX))
    }

    fn port(self) -> String {
        format!("port{}", self.0)
    }
}

impl Wires {
    pub(super) fn new() -> anyhow::Result<Self> {
        let switch = format!("fw{}-switch", std::process::id());
        let wires = Self { switch, nodes: Vec::new() };
        let switch = &wires.switch;
        ip(&format!("netns add {switch}")).context("the tree needs root")?;
        ip(&format!("-n {switch} link add switch type bridge"))?;
        ip(&format!("-n {switch} link set switch up"))?;
        Ok(wires)
    }

    /// A further machine. What goes to it has at most that rate.
    pub(super) fn add(&mut self, name: &str, rate: Option<Rate>) -> anyhow::Result<Node> {
        let node = Node(self.nodes.len());
        let (space, port, switch) = (format!("fw{}-{name}", std::process::id()), node.port(), &self.switch);
        ip(&format!("netns add {space}"))?;
        self.nodes.push(space.clone());
        ip(&format!("link add {port} netns {switch} type veth peer name eth0 netns {space}"))?;
        ip(&format!("-n {switch} link set {port} master switch up"))?;
        ip(&format!("-n {space} addr add {}/24 dev eth0", node.address()))?;
        ip(&format!("-n {space} link set eth0 up"))?;
        ip(&format!("-n {space} link set lo up"))?;
        if let Some(rate) = rate {
            shape(switch, &port, rate)?;
        }
        Ok(node)
    }

    /// Limits what comes from a machine to that rate.
    pub(super) fn limit_uplink(&self, node: Node, rate: Rate) -> anyhow::Result<()> {
        shape(self.space(node), "eth0", rate)
    }

    fn space(&self, node: Node) -> &str {
        self.nodes.get(node.0).map_or("", String::as_str)
    }

    /// A command that runs in a machine.
    pub(super) fn command(&self, node: Node, program: &std::path::Path) -> Command {
        let mut command = Command::new("ip");
        // `ip` becomes the program, so that its process is the program's.
        command.args(["netns", "exec", self.space(node)]).arg(program);
        command
    }

    /// Makes connections from a machine.
    pub(super) fn dialer(&self, node: Node) -> anyhow::Result<Dialer> {
        let path = format!("/run/netns/{}", self.space(node));
        Ok(Dialer(File::open(&path).with_context(|| format!("cannot open {path}"))?))
    }

    /// Bytes that have gone to a machine so far.
    pub(super) fn bytes_to(&self, node: Node) -> anyhow::Result<u64> {
        let shown = run("ip", &format!("-n {} -s -j link show dev {}", self.switch, node.port()))?;
        let shown: serde_json::Value = serde_json::from_str(&shown).context("`ip` does not write JSON")?;
        shown[0]["stats64"]["tx"]["bytes"].as_u64().context("`ip` does not count bytes")
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        for space in self.nodes.iter().chain([&self.switch]) {
            // One that is missing was never made.
            let _ = ip(&format!("netns del {space}"));
        }
    }
}

/// Connects from a machine.
pub(super) struct Dialer(File);

impl Dialer {
    pub(super) fn connect(&self, address: SocketAddr) -> anyhow::Result<TcpStream> {
        std::thread::scope(|scope| {
            let dial = || {
                move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&self.0),
                    Some(LinkNameSpaceType::Network),
                )
                .context("cannot enter a network namespace")?;
                TcpStream::connect_timeout(&address, PATIENCE)
                    .with_context(|| format!("cannot connect to {address}"))
            };
            // A thread of its own, since it stays there.
            scope.spawn(dial).join().map_err(|_| anyhow::anyhow!("a connection panicked"))?
        })
    }
}

/// Limits what leaves by a device of a namespace.
fn shape(space: &str, device: &str, rate: Rate) -> anyhow::Result<()> {
    let bits = rate.bits_per_sec();
    let line =
        format!("qdisc add dev {device} root tbf rate {bits}bit burst {SLOW_BURST} limit {SLOW_QUEUE}");
    run("tc", &format!("-n {space} {line}")).map(drop)
}

fn ip(arguments: &str) -> anyhow::Result<()> {
    run("ip", arguments).map(drop)
}

/// Runs a program of iproute2 to its end; what it says.
fn run(program: &str, arguments: &str) -> anyhow::Result<String> {
    // Programs: ip tc
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.with_context(|| format!("cannot run `{program}`: apt-get install iproute2"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{program} {arguments}` failed: {}", error.trim());
    String::from_utf8(output.stdout).with_context(|| format!("`{program}` does not write text"))
}
