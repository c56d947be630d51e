//! The state that a node, its connections and its groups share: the driver of their core, with the system's pollers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use freshwire_io::poll::{Poller, Waker};
use freshwire_io::udp::UdpSocket;
use freshwire_record::Timestamp;

use super::core::Core;
use super::driver::{Driver, Interest, Platform, SOCKET};

pub(super) type Shared = Driver<Core, Pollers>;

/// The system's clock and pollers.
pub(super) struct Pollers {
    node: Arc<Poller>,
    node_waker: Waker,
    application: Poller,
    application_waker: Waker,
}

impl Pollers {
    /// Both watch this socket for datagrams from now on.
    pub(super) fn new(node: Arc<Poller>, socket: &UdpSocket) -> io::Result<Self> {
        let application = Poller::new()?;
        for poller in [&*node, &application] {
            poller.add_reader(socket, SOCKET)?;
        }
        let (node_waker, application_waker) = (node.waker(), application.waker());
        Ok(Self { node, node_waker, application, application_waker })
    }

    /// Waker of the node's thread.
    pub(super) fn node_waker(&self) -> &Waker {
        &self.node_waker
    }
}

impl Platform<UdpSocket> for Pollers {
    fn now(&self) -> Timestamp {
        freshwire_io::now()
    }

    fn wait_node(&self, timeout: Option<Duration>, readable: &mut Vec<u64>) -> io::Result<bool> {
        let mut ready = Vec::new();
        let is_woken = self.node.wait(timeout, &mut ready)?;
        readable.extend(
            ready
                .iter()
                .filter(|ready| ready.readable || ready.hung_up || ready.token != SOCKET)
                .map(|ready| ready.token),
        );
        Ok(is_woken)
    }

    fn wait_application(&self, timeout: Duration) -> io::Result<bool> {
        let mut ready = Vec::new();
        self.application.wait(Some(timeout), &mut ready)?;
        Ok(!ready.is_empty())
    }

    fn wake_node(&self) {
        self.node_waker.wake();
    }

    fn wake_application(&self) {
        self.application_waker.wake();
    }

    fn watch(&self, socket: &UdpSocket, interest: Interest) -> io::Result<()> {
        match interest {
            Interest { datagrams: true, room } => self.node.watch_reader(socket, SOCKET, room),
            Interest { datagrams: false, room } => self.node.watch(socket, SOCKET, room),
        }
    }
}
