use std::collections::{BTreeMap, BTreeSet};

use super::backlog::Member;

/// The watchers of a topic. A change of a key costs nothing for those that asked for other keys.
#[derive(Default)]
pub(super) struct Members {
    /// They get every key. Ids ascend, here and below.
    of_all: Vec<Member>,
    /// They asked for some keys.
    of_some: Vec<Member>,
    /// Ids of these, by the names that they asked for, at most 64 each (`MAX_KEYS_ASKED`).
    by_key: BTreeMap<String, Vec<u64>>,
}

impl Members {
    /// Adds one whose id is the largest so far.
    pub(super) fn push(&mut self, member: Member) {
        let Some(names) = member.names() else { return self.of_all.push(member) };
        for name in names {
            self.by_key.entry(name.clone()).or_default().push(member.id);
        }
        self.of_some.push(member);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Member> {
        if let Some(at) = position(&self.of_all, id) {
            return Some(self.of_all.remove(at));
        }
        let member = self.of_some.remove(position(&self.of_some, id)?);
        for name in member.names().into_iter().flat_map(BTreeSet::iter) {
            let Some(ids) = self.by_key.get_mut(name) else { continue };
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_key.remove(name);
            }
        }
        Some(member)
    }

    pub(super) fn get(&self, id: u64) -> Option<&Member> {
        match position(&self.of_all, id) {
            Some(at) => self.of_all.get(at),
            None => position(&self.of_some, id).and_then(|at| self.of_some.get(at)),
        }
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Member> {
        match position(&self.of_all, id) {
            Some(at) => self.of_all.get_mut(at),
            None => position(&self.of_some, id).and_then(|at| self.of_some.get_mut(at)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.of_all.iter().chain(&self.of_some)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.of_all.iter_mut().chain(&mut self.of_some)
    }

    /// Calls `offer` for all that want this key.
    pub(super) fn of_key(&mut self, key: &str, mut offer: impl FnMut(&mut Member)) {
        self.of_all.iter_mut().for_each(&mut offer);
        for id in self.by_key.get(key).into_iter().flatten() {
            if let Some(at) = position(&self.of_some, *id) {
                offer(&mut self.of_some[at]);
            }
        }
    }
}

fn position(members: &[Member], id: u64) -> Option<usize> {
    members.binary_search_by_key(&id, |member| member.id).ok()
}
