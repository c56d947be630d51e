//! A1: the same ring and policies as over TCP, and a receiver of messages.

use std::time::Duration;

use anyhow::Context as _;
use freshwire::Sender;
use freshwire::a1::{Closed, Connection, Qos, SinkConfig};

use super::fresh;
use super::offer::OfferedRecord;
use super::pace::{Ends, LEAD, SenderAccount, Span};
use super::receive::{Received, whole_record};
use crate::scenario::{A1Path, TestLink, transport};
use crate::schema::Plan;

/// How long one look for a message waits at most.
const WATCH: Duration = Duration::from_millis(100);

/// Sends the offered records across the link and receives them.
pub(super) fn run(link: &TestLink, plan: &Plan, offered: &[OfferedRecord]) -> anyhow::Result<Ends> {
    let transport = transport(&plan.scheme)?;
    let path = A1Path::connect(link, &transport, Qos::default())?;
    let span = Span::of(plan, link.start_after(LEAD)?);
    let (paced, received) = std::thread::scope(|scope| {
        // The connection outlives both: dropping it would end it before the sender does.
        let reader = scope.spawn(|| receive(&path.receiving, span));
        let paced = send(&path.sending, plan, offered, span);
        let received = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        anyhow::Ok((paced.context("the sender failed")?, received.context("the receiver failed")?))
    })?;
    Ok(Ends { span, paced, received })
}

fn send(
    connection: &Connection,
    plan: &Plan,
    offered: &[OfferedRecord],
    span: Span,
) -> anyhow::Result<SenderAccount> {
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
