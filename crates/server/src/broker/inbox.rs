//! The newest message of each key, between a broker and the readers of a stream.

use std::collections::{BTreeMap, VecDeque};

/// Messages that wait to be offered to readers: for each key the newest, in the order in which the keys began to wait. A broker may
/// send faster than the server can offer; what is replaced here costs a few hundred nanoseconds.
#[derive(Default)]
pub(super) struct Inbox {
    newest: BTreeMap<String, Option<Vec<u8>>>,
    turns: VecDeque<String>,
}

/// What a message does in the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It waits.
    Waits,
    /// It has replaced an older one of its key.
    Replaces,
    /// There is no room for a further key.
    Full,
}

impl Inbox {
    /// Takes the newest message of a key; `None` deletes the key. At most `most` keys wait.
    pub(super) fn put(&mut self, key: &str, payload: Option<Vec<u8>>, most: usize) -> Put {
        if let Some(waiting) = self.newest.get_mut(key) {
            *waiting = payload;
            return Put::Replaces;
        }
        if self.newest.len() >= most {
            return Put::Full;
        }
        self.newest.insert(key.to_owned(), payload);
        self.turns.push_back(key.to_owned());
        Put::Waits
    }

    /// The key that has waited longest, with its newest message.
    pub(super) fn take(&mut self) -> Option<(String, Option<Vec<u8>>)> {
        let key = self.turns.pop_front()?;
        let payload = self.newest.remove(&key)?;
        Some((key, payload))
    }

    /// Keys that wait.
    pub(super) fn len(&self) -> usize {
        self.newest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_message_of_each_key_waits_once() {
        let mut inbox = Inbox::default();
        let value = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(inbox.put("a", value("1"), 2), Put::Waits);
        assert_eq!(inbox.put("b", value("1"), 2), Put::Waits);
        assert_eq!(inbox.put("a", value("2"), 2), Put::Replaces);
        assert_eq!(inbox.put("c", value("1"), 2), Put::Full);
        assert_eq!(inbox.put("a", None, 2), Put::Replaces);
        assert_eq!(inbox.len(), 2);
        assert_eq!(inbox.take(), Some(("a".to_owned(), None)), "it keeps its turn");
        assert_eq!(inbox.put("a", value("3"), 2), Put::Waits);
        assert_eq!(inbox.take(), Some(("b".to_owned(), value("1"))));
        assert_eq!(inbox.take(), Some(("a".to_owned(), value("3"))));
        assert!(inbox.take().is_none() && inbox.is_empty());
    }

    #[test]
    fn any_messages_keep_the_inbox_bounded() {
        bolero::check!().with_type::<Vec<(u8, Option<u8>, bool)>>().for_each(|messages| {
            let (mut inbox, mut model) = (Inbox::default(), BTreeMap::new());
            for (key, value, takes) in messages {
                if *takes {
                    let taken = inbox.take();
                    assert_eq!(taken.is_some(), !model.is_empty());
                    if let Some((key, payload)) = taken {
                        assert_eq!(model.remove(&key), Some(payload));
                    }
                } else {
                    let (key, payload) = (key.to_string(), value.map(|value| vec![value]));
                    if inbox.put(&key, payload.clone(), 8) != Put::Full {
                        model.insert(key, payload);
                    }
                }
                assert!(inbox.len() <= 8 && inbox.len() == model.len() && inbox.turns.len() == model.len());
            }
        });
    }
}
