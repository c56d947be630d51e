//! One stream to many receivers by IP multicast.

use std::time::Duration;

use anyhow::Context as _;
use freshwire::a1::{Connection, Group, GroupConfig, Node};

use freshwire_record::Timestamp;

use super::timing::WATCH;
use crate::a1::name_of;
use crate::output::say;

/// A group and everybody who gets it.
pub(super) struct GroupSession {
    node: Node,
    group: Group,
    members: Vec<Connection>,
    /// When it was last looked who has gone.
    looked_at: Timestamp,
}

impl GroupSession {
    /// Waits until as many receivers as that are there.
    pub(super) fn gather(node: Node, config: &GroupConfig, least: usize) -> anyhow::Result<Self> {
        let group =
            node.group(config).with_context(|| format!("cannot send to {}", config.transport.address))?;
        let mut session = Self { node, group, members: Vec::new(), looked_at: Timestamp::ZERO };
        while session.members.len() < least {
            session.look(WATCH)?;
        }
        Ok(session)
    }

    /// The group.
    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    /// Invites who has come, for whom it waits at most `patience`, and forgets who has gone.
    pub(super) fn look(&mut self, patience: Duration) -> anyhow::Result<()> {
        let mut patience = patience;
        while let Some(connection) = self.node.accept(std::mem::take(&mut patience))? {
            let peer = name_of(&connection);
            match self.group.invite(&connection) {
                Ok(()) => {
                    self.members.push(connection);
                    say(&format!("{peer} gets it too: {} receivers", self.members.len()));
                }
                Err(error) => say(&format!("{peer} does not get it: {error}")),
            }
        }
        let now = freshwire_io::now();
        if now < self.looked_at + WATCH {
            return Ok(());
        }
        self.looked_at = now;
        let before = self.members.len();
        self.members.retain(|member| member.closed().is_none());
        if self.members.len() < before {
            say(&format!("{} have left: {} receivers", before - self.members.len(), self.members.len()));
        }
        Ok(())
    }

    /// Tells everybody that it is over, and why.
    pub(super) fn end(&self, code: u64, why: &str) {
        for member in &self.members {
            member.close(code, why);
        }
    }
}
