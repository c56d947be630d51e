//! Connections and groups as sinks of a [`Sender`].

use super::config::SinkConfig;
use super::connection::Connection;
use super::group::Group;
use crate::error::SenderError;
use crate::sender::Sender;
use crate::sink::handle::Sink;

/// Sinks over A1.
impl Sender {
    /// Serves the other end of an A1 connection from a free ring. The connection can still receive; closing
    /// the sink closes it.
    ///
    /// # Errors
    ///
    /// If no ring is free, the connection has ended, or it already has a sink.
    pub fn add_a1_sink(&mut self, connection: &Connection, config: SinkConfig) -> Result<Sink, SenderError> {
        self.attach(|consumer| Ok((connection.serve(consumer, config)?, Box::new(connection.notifier()))))
    }

    /// Serves a multicast group from a free ring. The ring needs space for the records that the group keeps
    /// for repairs; see [`GroupTransportConfig::repair_for`](super::GroupTransportConfig::repair_for).
    ///
    /// # Errors
    ///
    /// If no ring is free, or the group already has a sink.
    pub fn add_a1_group(&mut self, group: &Group, config: SinkConfig) -> Result<Sink, SenderError> {
        self.attach(|consumer| Ok((group.serve(consumer, config)?, Box::new(group.notifier()))))
    }
}
