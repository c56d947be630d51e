use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use freshwire_record::Timestamp;

use crate::connection::Connection;
use crate::crypto::{Random, Responder};
use crate::remote::Remote;
use crate::shard::Shard;
use crate::wire::Parameters;

use super::ConnectionHandle;
use super::initiating::Initiating;
use super::timers::{Timer, Timers};

/// All connections by the numbers that peers put into their packets, with their timers and turns. The numbers are random:
/// who is not on the path cannot guess one.
#[derive(Default)]
pub(super) struct Table {
    entries: BTreeMap<u32, Entry>,
    timers: Timers,
    /// Connections that want a turn, by priority.
    ready: BTreeMap<u8, VecDeque<ConnectionHandle>>,
    in_turn: Option<ConnectionHandle>,
    /// Turns that others waited for who have a lower priority.
    overtaking: u32,
    next_serial: u64,
    /// Open connections by the numbers that their peers have for them, then by ours.
    by_peer: BTreeSet<(u32, u32)>,
}

pub(super) struct Entry {
    pub(super) state: State,
    /// The local address that the peer sends to.
    pub(super) local: Option<IpAddr>,
    serial: u64,
    timer: Timer,
    /// It is in the queue of those that want a turn.
    is_queued: bool,
    /// The application knows that it has ended.
    pub(super) is_reported: bool,
    /// By what the peer began it; `None` if this end began it.
    pub(super) initiation: Option<Initiation>,
}

pub(super) enum State {
    Initiating(Box<Initiating>),
    PendingRequest(Box<PendingRequest>),
    Refused(Box<Response>),
    Open(Box<Open>),
}

/// An initiator that waits for the application's decision.
pub(super) struct PendingRequest {
    /// Taken when it is answered.
    pub(super) noise: Option<Responder>,
    pub(super) peer: Parameters,
    pub(super) came: Timestamp,
    pub(super) expires: Timestamp,
}

/// The packet by which somebody begins a connection.
#[derive(Clone, Copy)]
pub(super) struct Initiation {
    pub(super) from: Remote,
    /// The initiator's number for the connection.
    pub(super) id: u32,
    /// By what it is known when it comes again: the SHA-256 of its handshake message, which is good for one cookie only.
    pub(super) digest: [u8; 32],
}

/// What an initiator was answered, for when it asks again.
pub(super) struct Response {
    pub(super) bytes: Vec<u8>,
    pub(super) expires: Timestamp,
}

pub(super) struct Open {
    pub(super) connection: Connection,
    /// Until the initiator has shown that it has got the response.
    pub(super) response: Option<Response>,
}

impl State {
    fn timeout(&self) -> Option<Timestamp> {
        match self {
            Self::Initiating(initiating) => Some(initiating.timeout()),
            Self::PendingRequest(asked) => Some(asked.expires),
            Self::Refused(response) => Some(response.expires),
            Self::Open(open) => {
                let expires = open.response.as_ref().map(|response| response.expires);
                [open.connection.poll_timeout(), expires].into_iter().flatten().min()
            }
        }
    }
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A handle for a new connection.
    //= spec/a1.md A1-RST-4
    pub(super) fn reserve(&mut self, random: &mut Random, shard: Option<Shard>) -> ConnectionHandle {
        let id = std::iter::repeat_with(|| random.next_u32())
            .find(|id| shard.is_none_or(|shard| shard.owns(*id)) && !self.entries.contains_key(id))
            .expect("there are fewer connections than numbers");
        self.next_serial += 1;
        ConnectionHandle { id, serial: self.next_serial }
    }

    /// Takes in a connection that this end begins.
    pub(super) fn insert_ours(&mut self, handle: ConnectionHandle, initiating: Initiating) {
        self.insert(handle, State::Initiating(Box::new(initiating)), None, None);
    }

    /// Takes in a connection that the peer begins.
    pub(super) fn insert_theirs(
        &mut self,
        handle: ConnectionHandle,
        initiation: Initiation,
        asked: PendingRequest,
        local: Option<IpAddr>,
    ) {
        self.insert(handle, State::PendingRequest(Box::new(asked)), local, Some(initiation));
    }

    fn insert(
        &mut self,
        handle: ConnectionHandle,
        state: State,
        local: Option<IpAddr>,
        initiation: Option<Initiation>,
    ) {
        let entry = Entry {
            state,
            local,
            initiation,
            serial: handle.serial,
            timer: Timer::new(),
            is_queued: false,
            is_reported: false,
        };
        self.entries.insert(handle.id, entry);
        self.set_timer(handle.id);
    }

    /// The handshake of this connection is over.
    pub(super) fn open(&mut self, handle: ConnectionHandle, open: Open) {
        let peer_id = open.connection.peer_id();
        if let Some(entry) = self.get_mut(handle) {
            entry.state = State::Open(Box::new(open));
            self.by_peer.insert((peer_id, handle.id));
        }
    }

    /// The open connection that the peer at `remote` knows by this number. Numbers are random: that many peers have chosen
    /// the same one is their own doing, and not all of them are looked at.
    pub(super) fn by_peer(&mut self, peer_id: u32, remote: Remote) -> Option<(ConnectionHandle, &mut Open)> {
        let mut same = self.by_peer.range((peer_id, 0)..=(peer_id, u32::MAX)).take(NAMESAKES);
        let is_there = |id: &u32| match self.entries.get(id) {
            Some(Entry { state: State::Open(open), .. }) => open.connection.remote() == remote,
            _ => false,
        };
        let (_, id) = *same.find(|(_, id)| is_there(id))?;
        match self.by_id(id)? {
            (handle, Entry { state: State::Open(open), .. }) => Some((handle, open)),
            _ => None,
        }
    }

    /// The connection of this number, whatever its handle.
    pub(super) fn by_id(&mut self, id: u32) -> Option<(ConnectionHandle, &mut Entry)> {
        let entry = self.entries.get_mut(&id)?;
        Some((ConnectionHandle { id, serial: entry.serial }, entry))
    }

    /// The connection that this end has started under this number, if it goes to `from`.
    //= spec/a1.md A1-HS-7
    pub(super) fn initiating(
        &mut self,
        id: u32,
        from: Remote,
    ) -> Option<(ConnectionHandle, &mut Initiating)> {
        match self.by_id(id)? {
            (handle, Entry { state: State::Initiating(initiating), .. }) if initiating.goes_to(from) => {
                Some((handle, initiating))
            }
            _ => None,
        }
    }

    pub(super) fn get(&self, handle: ConnectionHandle) -> Option<&Entry> {
        self.entries.get(&handle.id).filter(|entry| entry.serial == handle.serial)
    }

    pub(super) fn get_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Entry> {
        self.entries.get_mut(&handle.id).filter(|entry| entry.serial == handle.serial)
    }

    pub(super) fn remove(&mut self, handle: ConnectionHandle) -> Option<Entry> {
        self.get(handle)?;
        let mut entry = self.entries.remove(&handle.id)?;
        self.timers.remove(handle.id, &mut entry.timer);
        if let State::Open(open) = &entry.state {
            self.by_peer.remove(&(open.connection.peer_id(), handle.id));
        }
        Some(entry)
    }

    /// Sets the connection's timer to what its state wants.
    pub(super) fn set_timer(&mut self, id: u32) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.timers.set(id, &mut entry.timer, entry.state.timeout());
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// The next connection whose timer fires.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<ConnectionHandle> {
        while let Some(id) = self.timers.due(now) {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if self.timers.fires(now, id, &mut entry.timer) {
                return Some(ConnectionHandle { id, serial: entry.serial });
            }
        }
        None
    }

    /// Queues the connection for a turn, if it does not wait for one.
    pub(super) fn queue(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.get_mut(handle)
            && !entry.is_queued
        {
            entry.is_queued = true;
            // An entry without a connection has nothing to send in turns.
            let priority = match &entry.state {
                State::Open(open) => open.connection.qos().priority,
                _ => 0,
            };
            self.ready.entry(priority).or_default().push_back(handle);
        }
    }

    /// As [`Self::queue`], unless it has the turn now.
    pub(super) fn queue_unless_in_turn(&mut self, handle: ConnectionHandle) {
        if self.in_turn != Some(handle) {
            self.queue(handle);
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        self.ready.values().any(|level| !level.is_empty())
    }

    /// Gives the turn to the connection that waits longest among the highest priority. Once in a while it
    /// goes to the lowest priority, so that these connections do not seem dead.
    //= spec/a1.md A1-QOS-5, A1-QOS-7
    pub(super) fn next_turn(&mut self) -> Option<ConnectionHandle> {
        self.end_turn();
        while self.in_turn.is_none() {
            let handle = self.first_waiting()?;
            if let Some(entry) = self.get_mut(handle) {
                entry.is_queued = false;
                self.in_turn = Some(handle);
            }
        }
        self.in_turn
    }

    pub(super) fn end_turn(&mut self) {
        self.in_turn = None;
    }

    fn first_waiting(&mut self) -> Option<ConnectionHandle> {
        let mut levels = self.ready.values_mut().filter(|level| !level.is_empty());
        let lowest = levels.next()?;
        let Some(highest) = levels.next_back() else { return lowest.pop_front() };
        self.overtaking = (self.overtaking + 1) % LOWEST_EVERY;
        if self.overtaking == 0 { lowest.pop_front() } else { highest.pop_front() }
    }
}

/// One turn in this number goes to the longest waiting connection of the lowest priority (A1-QOS-7).
const LOWEST_EVERY: u32 = 16;

/// Connections with the same number of the peer that are looked at. Ids are random, so more are an attack.
/// Chosen, not measured.
const NAMESAKES: usize = 8;
