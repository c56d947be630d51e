use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::session::Session;

/// Addresses of one session that are remembered: a client has a few, and each proves that it knows the session's password.
const MOST_ADDRESSES: usize = 8;

/// The sessions by what finds them.
#[derive(Default)]
pub(super) struct Sessions {
    by_id: BTreeMap<String, Entry>,
    by_ufrag: BTreeMap<String, Arc<Session>>,
    by_address: BTreeMap<SocketAddr, Arc<Session>>,
}

struct Entry {
    session: Arc<Session>,
    addresses: Vec<SocketAddr>,
}

impl Sessions {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn add(&mut self, session: Arc<Session>) {
        self.by_ufrag.insert(session.ufrag().to_owned(), Arc::clone(&session));
        self.by_id.insert(session.id().to_owned(), Entry { session, addresses: Vec::new() });
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<Arc<Session>> {
        let Entry { session, addresses } = self.by_id.remove(id)?;
        self.by_ufrag.remove(session.ufrag());
        for address in addresses {
            self.by_address.remove(&address);
        }
        Some(session)
    }

    /// The session of this identifier.
    pub(super) fn find(&self, id: &str) -> Option<Arc<Session>> {
        self.by_id.get(id).map(|entry| Arc::clone(&entry.session))
    }

    /// The session that has this address.
    pub(super) fn at(&self, address: SocketAddr) -> Option<Arc<Session>> {
        self.by_address.get(&address).map(Arc::clone)
    }

    /// The session of this ICE user fragment.
    pub(super) fn of_ufrag(&self, ufrag: &str) -> Option<Arc<Session>> {
        self.by_ufrag.get(ufrag).map(Arc::clone)
    }

    /// The session has proved that it has this address; another one that had it has it no more.
    pub(super) fn learn(&mut self, session: &Arc<Session>, address: SocketAddr) {
        let Some(entry) = self.by_id.get_mut(session.id()) else { return };
        let had = self.by_address.insert(address, Arc::clone(session));
        if had.as_ref().is_none_or(|had| had.id() != session.id()) {
            entry.addresses.push(address);
        }
        let forgotten = (entry.addresses.len() > MOST_ADDRESSES).then(|| entry.addresses.remove(0));
        let other = had.filter(|had| had.id() != session.id());
        if let Some(other) = other.and_then(|other| self.by_id.get_mut(other.id())) {
            other.addresses.retain(|&known| known != address);
        }
        if let Some(forgotten) = forgotten {
            self.by_address.remove(&forgotten);
        }
    }
}
