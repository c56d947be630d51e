//! Datagrams in the program's memory, between the kernel's buffer and the program's call.
//!
//! The memory is one allocation of blocks with a free list, so it is bounded exactly, cannot fragment, and a datagram
//! can be dropped from the middle. Pages that no datagram has used cost nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use freshwire_record::Timestamp;

pub use crate::name::Name;
use crate::policy::{Classify, Drops, Policy, Reason, Waiting};
use crate::sys;

/// Bytes of a block. A datagram takes whole blocks: 1400 bytes take three. Chosen, not measured.
pub const BLOCK: usize = 512;

const NONE: u32 = u32::MAX;

/// A datagram as the kernel gave it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The payload, whole.
    pub payload: &'a [u8],
    /// Control messages as the kernel laid them out.
    pub control: &'a [u8],
    /// Source address.
    pub name: Name,
    /// The kernel's flags, without `MSG_TRUNC`.
    pub flags: i32,
    /// `CLOCK_MONOTONIC`.
    pub arrived: Timestamp,
}

/// The oldest datagram that waits, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Payload in bytes.
    pub len: usize,
    /// Control messages in bytes.
    pub control_len: usize,
    /// Source address.
    pub name: Name,
    /// The kernel's flags.
    pub flags: i32,
    /// `CLOCK_MONOTONIC`.
    pub arrived: Timestamp,
}

#[derive(Clone, Debug)]
struct Node {
    head: Head,
    expires: Timestamp,
    key: Option<u64>,
    first: u32,
    before: u32,
    after: u32,
}

/// What a datagram takes at most, in bytes.
pub const MESSAGE_MAX: usize = sys::DATAGRAM_MAX + sys::CONTROL_MAX;

/// What a message of coalesced datagrams takes at most, in bytes: each has control messages and a last block of its own. Their
/// number is `UDP_MAX_SEGMENTS` (linux/udp.h).
pub const COALESCED_MAX: usize = sys::DATAGRAM_MAX + 128 * (sys::CONTROL_MAX + BLOCK);

/// A bounded queue of datagrams with late choice. In order of arrival; one owner.
pub struct Queue {
    blocks: usize,
    /// Allocated when the first datagram comes.
    memory: Box<[u8]>,
    /// For each block the one that follows it in its datagram or on the free list.
    chain: Box<[u32]>,
    free: u32,
    /// Blocks from here on were never used and are on no list.
    unused: u32,
    free_blocks: usize,
    nodes: Vec<Node>,
    spare: Vec<u32>,
    oldest: u32,
    newest: u32,
    len: usize,
    bytes: usize,
    peak_blocks: usize,
    may_expire: usize,
    by_key: BTreeMap<u64, u32>,
    policy: Policy,
    classify: Option<Classify>,
    drops: Drops,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("len", &self.len)
            .field("bytes", &self.bytes)
            .field("capacity", &self.capacity())
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Queue {
    /// A queue of `capacity` bytes, rounded down to blocks, but at least 64 KiB, so that any datagram fits. It takes at
    /// most 1.3 times that, bookkeeping included.
    pub fn new(capacity: usize, policy: Policy, classify: Option<Classify>) -> Self {
        let blocks = (capacity / BLOCK).clamp(65536 / BLOCK + 2, NONE as usize - 1);
        Self {
            blocks,
            memory: Box::default(),
            chain: Box::default(),
            free: NONE,
            unused: 0,
            free_blocks: blocks,
            nodes: Vec::new(),
            spare: Vec::new(),
            oldest: NONE,
            newest: NONE,
            len: 0,
            bytes: 0,
            peak_blocks: 0,
            may_expire: 0,
            by_key: BTreeMap::new(),
            policy,
            classify,
            drops: Drops::default(),
        }
    }

    /// Datagrams that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Payload that waits, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory for datagrams, in bytes.
    pub fn capacity(&self) -> usize {
        self.blocks * BLOCK
    }

    /// Memory that datagrams occupy, in bytes, in whole blocks.
    pub fn occupied(&self) -> usize {
        (self.blocks - self.free_blocks) * BLOCK
    }

    /// The largest value of [`occupied`](Self::occupied) so far.
    pub fn peak(&self) -> usize {
        self.peak_blocks * BLOCK
    }

    /// Dropped datagrams, by reason.
    pub fn drops(&self) -> Drops {
        self.drops
    }

    /// How many more messages of at most `most` bytes fit, control messages and unused ends of blocks included; all if the policy
    /// makes room for them.
    pub fn certain_room(&self, most: usize) -> usize {
        if matches!(self.policy, Policy::Newest) { self.free_blocks * BLOCK / most } else { usize::MAX }
    }

    /// Whether the policy has to see a datagram before an older one is read.
    pub fn looks_ahead(&self) -> bool {
        matches!(self.policy, Policy::LatestByKey)
    }

    /// Whether a datagram that comes while nothing waits is returned whatever it is and however old.
    pub fn is_plain(&self) -> bool {
        self.classify.is_none() && matches!(self.policy, Policy::Newest | Policy::Oldest | Policy::Custom(_))
    }

    /// Takes a datagram in, and drops by policy what has to go for it. `false` if that is the datagram itself.
    pub fn push(&mut self, arrival: &Arrival<'_>, now: Timestamp) -> bool {
        let tag = self.classify.as_mut().map(|classify| classify(arrival.payload)).unwrap_or_default();
        let lifetime: Option<Duration> = tag.lifetime.or(self.policy.lifetime());
        let expires = lifetime.map_or(Timestamp::MAX, |lifetime| arrival.arrived + lifetime);
        let incoming =
            Waiting { arrived: arrival.arrived, expires, key: tag.key, len: arrival.payload.len() };
        if expires <= now {
            self.drops.count(Reason::Expired);
            return false;
        }
        if matches!(self.policy, Policy::LatestByKey)
            && let Some(older) = tag.key.and_then(|key| self.by_key.get(&key).copied())
        {
            self.remove(older);
            self.drops.count(Reason::Superseded);
        }
        let needed = blocks_of(arrival.payload.len() + arrival.control.len());
        if needed > self.free_blocks {
            self.expire(now);
        }
        while needed > self.free_blocks {
            if !self.make_room(&incoming) {
                return false;
            }
        }
        self.insert(arrival, expires, tag.key);
        true
    }

    /// Drops one datagram by policy; `false` if it is the incoming one.
    fn make_room(&mut self, incoming: &Waiting) -> bool {
        let (victim, reason) = match &mut self.policy {
            Policy::Newest => (NONE, Reason::Full),
            Policy::Oldest | Policy::Deadline(_) | Policy::LatestByKey => (self.oldest, Reason::Oldest),
            Policy::Custom(choose) => {
                let nodes = &self.nodes;
                let mut waiting = walk(nodes, self.oldest).map(|index| waiting(&nodes[index as usize]));
                let chosen = choose(incoming, &mut waiting);
                let victim = chosen.and_then(|chosen| walk(nodes, self.oldest).nth(chosen));
                (victim.unwrap_or(NONE), Reason::Chosen)
            }
        };
        self.drops.count(reason);
        if victim == NONE {
            return false;
        }
        self.remove(victim);
        true
    }

    fn insert(&mut self, arrival: &Arrival<'_>, expires: Timestamp, key: Option<u64>) {
        let head = Head {
            len: arrival.payload.len(),
            control_len: arrival.control.len(),
            name: arrival.name,
            flags: arrival.flags,
            arrived: arrival.arrived,
        };
        let first = self.store(arrival.payload, arrival.control);
        let node = Node { head, expires, key, first, before: self.newest, after: NONE };
        let index = if let Some(index) = self.spare.pop() {
            self.nodes[index as usize] = node;
            index
        } else {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).unwrap_or(NONE)
        };
        match self.newest {
            NONE => self.oldest = index,
            newest => self.nodes[newest as usize].after = index,
        }
        self.newest = index;
        self.len += 1;
        self.bytes += head.len;
        self.may_expire += usize::from(expires != Timestamp::MAX);
        if let Some(key) = key
            && matches!(self.policy, Policy::LatestByKey)
        {
            self.by_key.insert(key, index);
        }
    }

    fn store(&mut self, payload: &[u8], control: &[u8]) -> u32 {
        if self.memory.is_empty() {
            // Zeroed memory of this size comes from the kernel page by page, as it is touched.
            self.memory = vec![0; self.blocks * BLOCK].into_boxed_slice();
            self.chain = vec![0; self.blocks].into_boxed_slice();
        }
        let needed = blocks_of(payload.len() + control.len());
        let mut first = NONE;
        let mut last = NONE;
        for number in 0..needed {
            let block = self.allocate();
            let at = block as usize * BLOCK;
            fill(&mut self.memory[at..at + BLOCK], number * BLOCK, payload, control);
            self.chain[block as usize] = NONE;
            match last {
                NONE => first = block,
                last => self.chain[last as usize] = block,
            }
            last = block;
        }
        self.peak_blocks = self.peak_blocks.max(self.blocks - self.free_blocks);
        first
    }

    fn allocate(&mut self) -> u32 {
        self.free_blocks -= 1;
        if self.free == NONE {
            self.unused += 1;
            return self.unused - 1;
        }
        let block = self.free;
        self.free = self.chain[block as usize];
        block
    }

    /// The oldest datagram.
    pub fn head(&self) -> Option<Head> {
        self.nodes.get(self.oldest as usize).filter(|_| self.oldest != NONE).map(|node| node.head)
    }

    /// Copies from the oldest datagram's bytes, the payload and the control messages behind it, from `from` on into
    /// `out`. Returns how many there were.
    pub fn copy(&self, from: usize, out: &mut [u8]) -> usize {
        let Some(head) = self.head() else { return 0 };
        let all = head.len + head.control_len;
        let wanted = out.len().min(all.saturating_sub(from));
        let mut block = self.nodes[self.oldest as usize].first;
        for _ in 0..from / BLOCK {
            if block == NONE {
                return 0;
            }
            block = self.chain[block as usize];
        }
        let (mut within, mut done) = (from % BLOCK, 0);
        while done < wanted && block != NONE {
            let part = (BLOCK - within).min(wanted - done);
            let at = block as usize * BLOCK + within;
            out[done..done + part].copy_from_slice(&self.memory[at..at + part]);
            done += part;
            within = 0;
            block = self.chain[block as usize];
        }
        done
    }

    /// Removes the oldest datagram.
    pub fn pop(&mut self) {
        if self.oldest != NONE {
            self.remove(self.oldest);
            self.prefetch();
        }
    }

    /// Gives the memory back to the system if nothing waits.
    pub fn release(&mut self) {
        if self.len == 0 && !self.memory.is_empty() {
            self.memory = Box::default();
            self.chain = Box::default();
            (self.free, self.unused) = (NONE, 0);
            (self.nodes, self.spare) = (Vec::new(), Vec::new());
        }
    }

    /// Drops what has expired by `now`.
    pub fn expire(&mut self, now: Timestamp) {
        if self.may_expire == 0 {
            return;
        }
        let mut index = self.oldest;
        while index != NONE {
            let node = &self.nodes[index as usize];
            let after = node.after;
            if node.expires <= now {
                self.remove(index);
                self.drops.count(Reason::Expired);
            }
            index = after;
        }
    }

    /// Drops what is at the front and has expired by `now`, so that [`head`](Self::head) has not.
    pub fn expire_front(&mut self, now: Timestamp) {
        while self.may_expire > 0 && self.oldest != NONE && self.nodes[self.oldest as usize].expires <= now {
            self.remove(self.oldest);
            self.drops.count(Reason::Expired);
        }
    }

    /// Whether anything that waits can expire.
    pub fn may_expire(&self) -> bool {
        self.may_expire > 0
    }

    /// Asks for the bytes of the oldest datagram, which is read next.
    fn prefetch(&self) {
        let Some(node) = self.nodes.get(self.oldest as usize) else { return };
        let mut block = node.first;
        for _ in 0..3 {
            let Some(bytes) = self.memory.get(block as usize * BLOCK..) else { return };
            sys::prefetch(bytes.as_ptr());
            block = self.chain[block as usize];
        }
    }

    fn remove(&mut self, index: u32) {
        let node = self.nodes[index as usize].clone();
        match node.before {
            NONE => self.oldest = node.after,
            before => self.nodes[before as usize].after = node.after,
        }
        match node.after {
            NONE => self.newest = node.before,
            after => self.nodes[after as usize].before = node.before,
        }
        if let Some(key) = node.key
            && self.by_key.get(&key) == Some(&index)
        {
            self.by_key.remove(&key);
        }
        let mut block = node.first;
        while block != NONE {
            let next = self.chain[block as usize];
            self.chain[block as usize] = self.free;
            self.free = block;
            self.free_blocks += 1;
            block = next;
        }
        self.len -= 1;
        self.bytes -= node.head.len;
        self.may_expire -= usize::from(node.expires != Timestamp::MAX);
        self.spare.push(index);
    }
}

/// Blocks for this number of bytes: at least one, so that the number of datagrams is bounded as well.
fn blocks_of(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK).max(1)
}

/// Fills a block with the bytes from place `from` on of `payload` followed by `control`.
fn fill(block: &mut [u8], from: usize, payload: &[u8], control: &[u8]) {
    let mine = payload.get(from..).unwrap_or_default();
    let first = mine.len().min(block.len());
    block[..first].copy_from_slice(&mine[..first]);
    let rest = control.get(from.saturating_sub(payload.len())..).unwrap_or_default();
    let second = rest.len().min(block.len() - first);
    block[first..first + second].copy_from_slice(&rest[..second]);
}

fn walk(nodes: &[Node], oldest: u32) -> impl Iterator<Item = u32> + '_ {
    std::iter::successors(Some(oldest), |index| nodes.get(*index as usize).map(|node| node.after))
        .take_while(|index| *index != NONE)
}

fn waiting(node: &Node) -> Waiting {
    Waiting { arrived: node.head.arrived, expires: node.expires, key: node.key, len: node.head.len }
}
