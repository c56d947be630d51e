//! The queue rule of OBS before a blocking socket (`check_to_drop_frames`, `drop_frames` and `add_video_packet` in
//! plugins/obs-outputs/rtmp-stream.c of obs-studio, commit f86e9c1d59c9).
//!
//! ```text
//!  encoder ─► queue: pictures are dropped when it spans more than 700 ms or 900 ms ─► thread ─► blocking socket ─► kernel's buffer
//! ```

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context as _;

use super::flv::{self, Tag};
use super::rtmp::Client;

/// Above this span of the queue OBS drops what no picture but a B picture may need (`drop_threshold_ms`).
const DROP_MS: u32 = 700;
/// Above this span it drops all but key pictures (`pframe_drop_threshold_ms`).
const DROP_ALL_MS: u32 = 900;
/// With fewer packets in the queue it drops nothing.
const LEAST_PACKETS: usize = 5;

/// Ranks of pictures, from `nal_ref_idc`: B pictures that nothing refers to are 0 (`OBS_NAL_PRIORITY_*` in libobs/obs-nal.h).
const HIGH: u8 = 2;
const HIGHEST: u8 = 3;

/// A packet in the queue.
#[derive(Debug)]
struct Packet {
    tag: Tag,
    /// `None` is sound, which is never dropped.
    rank: Option<u8>,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    packets: VecDeque<Packet>,
    /// Pictures below this are dropped until one is not.
    least_rank: u8,
    newest_ms: u32,
    dropped: u64,
}

impl Queue {
    /// Takes what the encoder made.
    pub(super) fn push(&mut self, tag: Tag) {
        if tag.kind != flv::VIDEO {
            self.packets.push_back(Packet { tag, rank: None });
            return;
        }
        self.drop_if_above(DROP_MS, HIGH);
        self.drop_if_above(DROP_ALL_MS, HIGHEST);
        let rank =
            tag.units().iter().filter_map(|unit| unit.first()).map(|head| head >> 5).max().unwrap_or(0);
        if rank < self.least_rank {
            self.dropped += 1;
            return;
        }
        self.least_rank = 0;
        self.newest_ms = tag.dts_ms;
        self.packets.push_back(Packet { tag, rank: Some(rank) });
    }

    /// The next packet to send.
    pub(super) fn pop(&mut self) -> Option<Tag> {
        self.packets.pop_front().map(|packet| packet.tag)
    }

    fn drop_if_above(&mut self, limit_ms: u32, least_rank: u8) {
        if self.packets.len() < LEAST_PACKETS {
            return;
        }
        let is_measure = |packet: &&Packet| packet.rank.is_some() && !packet.tag.is_key();
        let Some(first) = self.packets.iter().find(is_measure) else { return };
        if self.newest_ms.saturating_sub(first.tag.dts_ms) <= limit_ms {
            return;
        }
        let before = self.packets.len();
        self.packets.retain(|packet| packet.rank.is_none_or(|rank| rank >= least_rank));
        self.dropped += (before - self.packets.len()) as u64;
        self.least_rank = self.least_rank.max(least_rank);
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: Queue,
    has_ended: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a packet; `None` at the end.
    fn wait(&self) -> Option<Tag> {
        let mut state = self.state();
        loop {
            if state.has_ended {
                return None;
            }
            if let Some(tag) = state.queue.pop() {
                return Some(tag);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A publisher with such a queue.
pub(super) struct Publisher {
    shared: Arc<Shared>,
    socket: TcpStream,
    sender: JoinHandle<anyhow::Result<()>>,
    /// Reads what the server says, so that it never waits for that.
    listener: JoinHandle<()>,
}

impl Publisher {
    /// Starts to send over a connection that publishes.
    pub(super) fn start(mut client: Client) -> anyhow::Result<Self> {
        client.wait_without_limit()?;
        let (socket, mut said) = (client.socket()?, client.socket()?);
        let shared = Arc::new(Shared::default());
        let queue = Arc::clone(&shared);
        let sender = std::thread::spawn(move || {
            while let Some(tag) = queue.wait() {
                client.send(tag.kind, tag.dts_ms, tag.body)?;
            }
            Ok(())
        });
        let listener = std::thread::spawn(move || {
            // Its end is that of the connection, which the sender reports.
            let _ = std::io::copy(&mut said, &mut std::io::sink());
        });
        Ok(Self { shared, socket, sender, listener })
    }

    /// Takes what the encoder made.
    pub(super) fn push(&self, tag: Tag) {
        self.shared.state().queue.push(tag);
        self.shared.changed.notify_one();
    }

    /// Ends the connection, with what waits; returns how many pictures the rule dropped.
    ///
    /// # Errors
    ///
    /// If the connection had ended before.
    pub(super) fn stop(self) -> anyhow::Result<u64> {
        let was_sending = !self.sender.is_finished();
        self.shared.state().has_ended = true;
        self.shared.changed.notify_one();
        // Fails only when the server has closed already, which the sender tells.
        let _ = self.socket.shutdown(Shutdown::Both);
        let sent = self.sender.join().map_err(|_| anyhow::anyhow!("the rule's sender panicked"))?;
        // It has nothing to say.
        let _ = self.listener.join();
        if !was_sending {
            sent.context("the server ended the rule's connection")?;
        }
        Ok(self.shared.state().queue.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::super::flv::tests::picture;
    use super::*;

    const KEY: (u8, u8) = (0x17, 0x65);
    const P: (u8, u8) = (0x27, 0x41);
    const B: (u8, u8) = (0x27, 0x01);

    fn coded((first, head): (u8, u8), dts_ms: u32) -> Tag {
        Tag { dts_ms, ..picture(first, 0, &[&[6, 1], &[head, 7]]) }
    }

    fn sound(dts_ms: u32) -> Tag {
        Tag { kind: flv::AUDIO, dts_ms, body: bytes::Bytes::from_static(&[0xaf, 1, 0]) }
    }

    /// A queue of which nothing is sent: P and B in turn, each 100 ms, and sound.
    fn queue(until_ms: u32) -> Queue {
        let mut queue = Queue::default();
        queue.push(coded(KEY, 0));
        for place in 1..=until_ms / 100 {
            queue.push(sound(place * 100 - 50));
            queue.push(coded(if place % 2 == 1 { P } else { B }, place * 100));
        }
        queue
    }

    fn left(queue: &mut Queue) -> Vec<(u8, u32)> {
        std::iter::from_fn(|| queue.pop()).map(|tag| (tag.kind, tag.dts_ms)).collect()
    }

    #[test]
    fn nothing_is_dropped_up_to_the_first_limit() {
        let mut queue = queue(900);
        // 100 to 800 ms: the span counts before the newest is added, and from the first that is no key picture.
        assert_eq!((queue.dropped, left(&mut queue).len()), (0, 19));
    }

    #[test]
    fn first_those_nothing_refers_to_then_all_but_key_pictures() {
        let mut queue = queue(1000);
        assert_eq!(queue.dropped, 5, "the B pictures, when that of 1000 ms comes");
        queue.push(coded(B, 1100));
        queue.push(coded(P, 1200));
        assert_eq!(queue.dropped, 6, "and the next");
        queue.push(coded(P, 1300));
        let pictures = |queue: &Queue| queue.packets.iter().filter(|packet| packet.rank.is_some()).count();
        assert_eq!((queue.dropped, pictures(&queue)), (13, 1), "from 100 to 1200 ms is more than 900 ms");
        queue.push(coded(P, 1400));
        assert_eq!(queue.dropped, 14, "until a key picture comes");
        queue.push(coded(KEY, 1500));
        queue.push(coded(B, 1600));
        assert_eq!((queue.dropped, pictures(&queue)), (14, 3));
        let left = left(&mut queue);
        assert_eq!(left.iter().filter(|(kind, _)| *kind == flv::AUDIO).count(), 10, "sound is never dropped");
    }

    #[test]
    fn a_short_queue_is_never_too_long() {
        let mut queue = Queue::default();
        for dts_ms in [0, 1000, 2000, 3000, 4000] {
            queue.push(coded(P, dts_ms));
        }
        assert_eq!(queue.dropped, 0);
        queue.push(coded(P, 5000));
        assert_eq!(queue.dropped, 6);
    }
}
