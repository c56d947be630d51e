//! An A1 connection across an emulated link.

use std::time::Duration;

use anyhow::Context as _;
use freshwire::a1::{ConnectConfig, Connection, ConnectionConfig, Node, NodeConfig, Qos};
use freshwire_netns::Namespaces;

use super::link::TestLink;
use crate::scheme;

/// How long connecting may take: a lost packet of the handshake is repeated after a second and later.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(32);

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
            let config = config.connection(transport.clone().maximum(qos));
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
        transport.congestion = name.parse()?;
    }
    Ok(transport)
}
