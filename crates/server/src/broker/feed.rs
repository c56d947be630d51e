//! What a broker says becomes the values of a stream.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::inbox::{Inbox, Put};
use crate::brokers::{BrokerStatus, Refusal};
use crate::values::{Content, Topic, ValueError, check_key};

/// A bucket's keys are remembered while they are listed, up to this number of times `hub.max_keys`. In a larger bucket, keys that were
/// deleted while it was away stay.
const MOST_SAID: usize = 16;

/// The way of messages to a stream's readers.
pub(super) struct Feed {
    topic: Arc<Topic>,
    status: Arc<BrokerStatus>,
    inbox: Inbox,
    /// Keys that a bucket has said so far, until it has said all; `None` if they are too many.
    said: Option<BTreeSet<String>>,
    /// The refusals that the log has: one of each kind.
    reported: BTreeSet<Refusal>,
}

impl Feed {
    pub(super) fn new(topic: Arc<Topic>, status: Arc<BrokerStatus>) -> Self {
        Self { topic, status, inbox: Inbox::default(), said: None, reported: BTreeSet::new() }
    }

    /// A connection begins.
    pub(super) fn begin(&mut self) {
        self.said = Some(BTreeSet::new());
    }

    /// Takes a message. `remembers`: whether the keys are compared with those that there were before.
    pub(super) fn put(&mut self, key: &str, payload: Option<Vec<u8>>, remembers: bool) {
        self.status.count(|counts| counts.received += 1);
        let limits = self.topic.limits();
        let refused = if check_key(key).is_err() {
            Some(Refusal::Key)
        } else if payload.as_ref().is_some_and(|payload| payload.len() > limits.max_value_bytes) {
            Some(Refusal::TooLarge)
        } else {
            None
        };
        if let Some(refusal) = refused {
            return self.refuse(refusal, key);
        }
        if remembers && let Some(said) = &mut self.said {
            said.insert(key.to_owned());
            if said.len() > MOST_SAID * limits.max_keys {
                self.said = None;
            }
        }
        // Deletions of as many keys may wait beside values.
        match self.inbox.put(key, payload, limits.max_keys.saturating_mul(2)) {
            Put::Waits => {}
            Put::Replaces => self.status.count(|counts| counts.superseded += 1),
            Put::Full => self.refuse(Refusal::TooManyKeys, key),
        }
    }

    /// Counts a message that the connection has not kept.
    pub(super) fn pass_over(&mut self, refusal: Refusal) {
        self.status.count(|counts| counts.received += 1);
        self.refuse(refusal, "");
    }

    /// Deletes the keys that a bucket does not have any more.
    pub(super) fn whole(&mut self) {
        let Some(said) = self.said.take() else { return };
        for key in self.topic.keys() {
            if !said.contains(&key) {
                self.inbox.put(&key, None, usize::MAX);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Reports how many messages wait.
    pub(super) fn report(&self) {
        let waiting = self.inbox.len();
        self.status.count(|counts| {
            counts.waiting = waiting;
            counts.most_waiting = counts.most_waiting.max(waiting);
        });
    }

    /// Offers the readers the message that has waited longest. Returns `false` once the stream was removed.
    pub(super) fn offer_next(&mut self) -> bool {
        let Some((key, payload)) = self.inbox.take() else { return true };
        let result = match payload {
            None => self.topic.delete(&key),
            Some(payload) => content(payload).and_then(|content| self.topic.set(&key, &content)),
        };
        match result {
            // Deleting what is not there is no mistake.
            Ok(()) | Err(ValueError::NoKey(_)) => {}
            Err(ValueError::Removed) => return false,
            Err(ValueError::TooManyKeys(_)) => self.refuse(Refusal::TooManyKeys, &key),
            Err(ValueError::TooLarge { .. }) => self.refuse(Refusal::TooLarge, &key),
            Err(ValueError::TooDeep) => self.refuse(Refusal::TooDeep, &key),
            Err(_) => self.refuse(Refusal::Key, &key),
        }
        true
    }

    /// Counts a message that does not become a value. The log has the first of each kind.
    fn refuse(&mut self, refusal: Refusal, key: &str) {
        self.status.count(|counts| *counts.refused.entry(refusal).or_default() += 1);
        if self.reported.insert(refusal) {
            let stream = self.topic.name();
            let key: String = key.chars().filter(|c| !c.is_control()).take(64).collect();
            let reason = refusal.name();
            tracing::warn!(
                stream,
                key,
                reason,
                "a broker's message is no value; further ones are counted: {}",
                refusal.remedy()
            );
        }
    }
}

/// JSON stays JSON, other text becomes a string, and all else stays bytes.
fn content(payload: Vec<u8>) -> Result<Content, ValueError> {
    match Content::of_body(None, &payload) {
        Err(ValueError::NotText) => Ok(Content::Bytes(payload)),
        result => result,
    }
}
