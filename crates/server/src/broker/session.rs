//! One protocol's side of a connection to a broker. Reads and writes bytes only; the connection itself, time and limits of time
//! are the caller's.

use std::time::Duration;

use super::error::BrokerError;
use crate::brokers::Publication;

/// How often a broker is asked whether it is there. Chosen: three times in what a broker of MQTT is promised.
pub(super) const PING_EVERY: Duration = Duration::from_secs(10);

/// Something that a broker says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It has taken the subscription, in this protocol.
    Ready(&'static str),
    /// The newest message of a key; `None` deletes the key.
    Message { key: String, payload: Option<Vec<u8>> },
    /// A message above the limit, which was not kept.
    TooLarge,
    /// A message whose topic is no text.
    BadKey,
    /// All keys that there were at the time of the subscription have been said.
    Whole,
    /// It has taken a publication, or refuses it for this reason.
    Answer { ticket: u64, result: Result<(), String> },
}

/// A connection's state.
pub(super) trait Session: Send {
    /// Writes what the client says first.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Takes what has come, and writes what has to be answered.
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<(), BrokerError>;

    /// Writes a publication. [`Event::Answer`] has the ticket.
    fn publish(&mut self, ticket: u64, publication: &Publication, out: &mut Vec<u8>, events: &mut Vec<Event>);

    /// Nobody waits for the answer to this publication any more.
    fn give_up(&mut self, ticket: u64);

    /// Writes a question that the broker has to answer.
    fn ping(&mut self, out: &mut Vec<u8>);

    /// How often to ask it, at least.
    fn ping_every(&self) -> Duration {
        PING_EVERY
    }
}
