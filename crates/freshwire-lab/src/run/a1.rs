//! A1: the same ring and policies as over TCP, and a receiver of messages.

use std::time::Duration;

use anyhow::Context as _;
use freshwire::Sender;
use freshwire::a1::{Closed, ConnectConfig, Connection, ConnectionConfig, Node, NodeConfig, Qos, SinkConfig};
use freshwire_netns::Namespaces;

use super::fresh;
use super::offer::Offered;
use super::pace::{Ends, LEAD, Paced, Span};
use super::path::TestLink;
use super::receive::{Received, whole_record};
use crate::a1::congestion;
use crate::lab::schema::Plan;
use crate::lab::scheme;

/// How long connecting may take: a lost packet of the handshake is repeated after a second and later.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(32);

/// How long one look for a message waits at most.
const WATCH: Duration = Duration::from_millis(100);

/// Both ends of an A1 connection. The nodes carry it as long as they are held.
pub(crate) struct A1Path {
    pub(crate) sending: Connection,
    pub(crate) receiving: Connection,
    _nodes: [Node; 2],
}

impl A1Path {
    /// Connects across the link.
    pub(crate) fn connect(link: &TestLink, transport: &ConnectionConfig, qos: Qos) -> anyhow::Result<Self> {
        let bind = |address| -> anyhow::Result<Node> {
            let config = NodeConfig::new().context("cannot make a key")?;
            let config = config.connection(transport.clone()).maximum(qos);
            Ok(Node::bind((address, 0).into(), config)?)
        };
        let far = link.namespaces.in_far(|| bind(Namespaces::FAR_V4))??;
        let near = link.namespaces.in_near(|| bind(Namespaces::NEAR_V4))??;
        Self::between(near, far).context("cannot connect across the link")
    }

    /// Connects two nodes.
    pub(crate) fn between(near: Node, far: Node) -> anyhow::Result<Self> {
        let config = ConnectConfig::default().timeout(CONNECT_TIMEOUT);
        let sending = near.connect(far.local_addr()?, &far.public_key(), &config)?;
        let receiving = far.accept(CONNECT_TIMEOUT)?.context("the connection was not accepted")?;
        Ok(Self { sending, receiving, _nodes: [near, far] })
    }
}

/// How a connection of a scheme that is carried by A1 behaves.
pub(crate) fn transport(scheme: &str) -> anyhow::Result<ConnectionConfig> {
    let mut transport = ConnectionConfig::default();
    if let Some(name) = scheme.strip_prefix(scheme::A1).and_then(|rest| rest.strip_prefix('-')) {
        transport.congestion = congestion(name)?;
    }
    Ok(transport)
}

/// Sends the offered records across the link and receives them.
pub(super) fn run(link: &TestLink, plan: &Plan, offered: &[Offered]) -> anyhow::Result<Ends> {
    let transport = transport(&plan.scheme)?;
    let A1Path { sending, receiving, _nodes } = A1Path::connect(link, &transport, Qos::default())?;
    let span = Span::of(plan, link.start_after(LEAD)?);
    let (paced, received) = std::thread::scope(|scope| {
        // The connection outlives both: dropping it would end it before the sender does.
        let reader = scope.spawn(|| receive(&receiving, span));
        let paced = send(&sending, plan, offered, span);
        let received = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        anyhow::Ok((paced.context("the sender failed")?, received.context("the receiver failed")?))
    })?;
    Ok(Ends { span, paced, received })
}

fn send(connection: &Connection, plan: &Plan, offered: &[Offered], span: Span) -> anyhow::Result<Paced> {
    let mut sender = Sender::without_engine(&fresh::ring())?;
    let sink = sender.add_a1_sink(connection, SinkConfig::new(fresh::policy(plan)))?;
    fresh::feed(&mut sender, sink, offered, span.start, span.stop_at)
}

/// Receives until the sender closes, or until the end of the run.
fn receive(connection: &Connection, span: Span) -> anyhow::Result<Received> {
    let mut received = Received::default();
    loop {
        let left = span.stop_at.saturating_since(freshwire_io::now());
        if left.is_zero() {
            return Ok(received);
        }
        match connection.recv(left.min(WATCH)) {
            Ok(None) => {}
            Ok(Some(message)) => {
                let now = freshwire_io::now();
                received.count(message.data.len(), now, span.count_until);
                received.arrived(whole_record(&message.data)?, now)?;
            }
            // The sender aborts when its time is over.
            Err(Closed::Peer { .. }) => return Ok(received),
            Err(closed) => return Err(closed).context("the connection ended"),
        }
    }
}
