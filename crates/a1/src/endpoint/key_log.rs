use std::fmt::{self, Write};
use std::sync::Arc;

use crate::crypto::{Protection, Secrets};

/// Where an endpoint's secrets are written to, so that captures of its packets can be read with
/// `packaging/wireshark`. Their holder can read the connections and forge their packets. They are for tests
/// and for looking into one's own traffic.
///
/// A connection gives two lines when its keys are agreed on, before its first data packet is sealed or opened:
/// ```text
/// A1 <initiator's id> <responder's id> <I or R, who sends> <generation> <secret>
/// ```
/// The ids and the secret are hexadecimal; the generation is 0, since later keys follow from this one. A connection that
/// is not encrypted gives none.
#[derive(Clone)]
pub struct KeyLog(Arc<dyn Fn(&str) + Send + Sync>);

impl KeyLog {
    /// Calls `write` with each line, without the newline. It should not block.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// `is_initiator` says whose view `secrets` are.
    pub(crate) fn write(&self, ids: Ids, is_initiator: bool, protection: Protection, secrets: &Secrets) {
        if protection != Protection::Aead {
            return;
        }
        let own = (if is_initiator { 'I' } else { 'R' }, &secrets.send);
        let peers = (if is_initiator { 'R' } else { 'I' }, &secrets.receive);
        for (sender, secret) in [own, peers] {
            let mut line = format!("A1 {:08x} {:08x} {sender} 0 ", ids.initiator, ids.responder);
            for byte in secret.iter() {
                write!(line, "{byte:02x}").expect("a string takes all");
            }
            (self.0)(&line);
        }
    }
}

impl fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLog").finish_non_exhaustive()
    }
}

/// Both ends' numbers for a connection.
#[derive(Clone, Copy)]
pub(crate) struct Ids {
    pub(crate) initiator: u32,
    pub(crate) responder: u32,
}
