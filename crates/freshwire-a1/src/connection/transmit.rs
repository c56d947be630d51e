//! From records to datagrams.

use std::net::SocketAddr;

use freshwire_choice::Record;
use freshwire_units::Timestamp;

use super::{Closed, Connection, Contents, Event, State};
use crate::fec;
use crate::outbox::{Chosen, Fec, Piece};
use crate::recovery::{Allowance, Sent};
use crate::source::Source;
use crate::wire::{DATA_HEADER, DataHeader, Echo, Frame, Message, PARITY_HEAD, Parity};

/// Datagrams that leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transmit {
    /// Where they go.
    pub to: SocketAddr,
    /// Bytes that were appended to the buffer.
    pub bytes: usize,
    /// Length of each datagram but the last, which may be shorter; all of `bytes` if there is one.
    pub segment: usize,
    /// Whether routers may mark them instead of dropping them.
    pub ecn: bool,
}

/// A packet while it is made. Frames are in the connection's own buffer.
#[derive(Default)]
struct Draft {
    contents: Contents,
    eliciting: bool,
    retransmitted: bool,
    control: bool,
    ack_now: bool,
    mtu_probe: bool,
}

impl Connection {
    /// Appends the next datagrams to `out`, as many as may leave at once. Called until it gives nothing.
    pub fn poll_transmit(
        &mut self,
        now: Timestamp,
        source: &mut dyn Source,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.outbox.settle(now, source);
        if let Some(transmit) = self.transmit_aside(now, out) {
            return Some(transmit);
        }
        if !matches!(self.state, State::Open) {
            return None;
        }
        let begin = out.len();
        let mut segment = 0;
        let most = usize::try_from(self.recovery.burst()).unwrap_or(usize::MAX).clamp(1, MAX_BURST);
        loop {
            let mtu = usize::from(self.recovery.mtu());
            let made = self.packet(now, source, mtu, out);
            // A probe is longer than the others, so it goes alone.
            let made = if segment == 0 { made.or_else(|| self.mtu_probe(now, out)) } else { made };
            let Some(len) = made else { break };
            if segment == 0 {
                segment = len;
            }
            // Only the last of a burst may be shorter, and none longer.
            if len != mtu || segment != mtu || out.len() - begin + mtu > most {
                break;
            }
        }
        self.outbox.settle(now, source);
        let bytes = out.len() - begin;
        (bytes > 0).then(|| self.leaving(self.path.remote(), bytes, segment))
    }

    /// What does not go the usual way: CLOSE, and proofs of addresses.
    fn transmit_aside(&mut self, now: Timestamp, out: &mut Vec<u8>) -> Option<Transmit> {
        self.plain.clear();
        let to = match &mut self.state {
            State::Ended => return None,
            State::Closing { code, reason, to_send, .. } => {
                if !std::mem::take(to_send) {
                    return None;
                }
                Frame::Close { code: *code, reason }.put(&mut self.plain);
                self.path.remote()
            }
            State::Open => {
                if let Some((token, to)) = self.path.to_answer.take() {
                    Frame::PathResponse(token).put(&mut self.plain);
                    to
                } else {
                    let (token, to) = self.path.challenge(now)?;
                    Frame::PathChallenge(token).put(&mut self.plain);
                    to
                }
            }
        };
        let draft = Draft { control: true, ..Draft::default() };
        let bytes = self.seal(now, draft, out)?;
        Some(self.leaving(to, bytes, bytes))
    }

    fn leaving(&self, to: SocketAddr, bytes: usize, segment: usize) -> Transmit {
        Transmit { to, bytes, segment, ecn: self.recovery.ecn() }
    }

    /// Makes one packet of at most `mtu` bytes; its length.
    fn packet(
        &mut self,
        now: Timestamp,
        source: &mut dyn Source,
        mtu: usize,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let room = mtu.checked_sub(self.room_taken())?;
        self.groups.report(now);
        let chosen = self.choose(now, source);
        let in_flight = self.recovery.view().in_flight > 0;
        let sync = self.syncs.is_due(now, in_flight) || chosen.is_some() && self.syncs.wants_along(now);
        let mut draft = Draft::default();
        self.plain.clear();
        let is_due = self.acks.is_due(now);
        let is_silent = chosen.is_none() && !sync && !is_due && !self.has_control();
        if is_silent {
            return None;
        }
        if is_due || self.acks.is_waiting() {
            self.put_ack(now, &mut draft);
        }
        self.put_control(now, room, &mut draft);
        if sync {
            draft.ack_now |= self.syncs.is_probing() || chosen.is_none();
            let micros = self.clock.micros(now);
            Frame::Sync { sent_us: micros }.put(&mut self.plain);
            self.syncs.on_sent(now, micros);
            draft.eliciting = true;
        }
        draft.control = !sync;
        if let Some(chosen) = chosen {
            self.put_blocks(now, chosen, source, room, &mut draft);
        }
        if self.plain.is_empty() {
            return None;
        }
        self.seal(now, draft, out)
    }

    /// Names the block that goes next, if data may go now.
    fn choose(&mut self, now: Timestamp, source: &mut dyn Source) -> Option<Chosen> {
        self.blocked_until = None;
        self.outbox.forget_wait();
        self.is_window_shut = false;
        match self.recovery.allowance(now) {
            Allowance::Bytes(_) => {}
            _ if self.probes > 0 => self.probes -= 1,
            Allowance::At(at) => {
                self.blocked_until = Some(at);
                return None;
            }
            Allowance::Blocked => {
                self.is_window_shut = true;
                return None;
            }
        }
        if let Some(at) = self.quality.wait(now) {
            self.blocked_until = Some(at);
            return None;
        }
        if self.groups.has_repairs() {
            return Some(Chosen::GroupRepair);
        }
        let link = self.link(now);
        let shard = usize::from(self.recovery.mtu()).saturating_sub(self.room_taken() + PARITY_HEAD) & !1;
        let fec = Fec { layers: self.config.fec_layers, shard: shard as u32 };
        let is_wanted = self.config.fec && fec::is_worth_it(link.loss);
        self.outbox.set_fec(is_wanted.then_some(fec));
        let chosen = self.outbox.choose(now, source, &link, self.quality.current());
        if chosen.is_none() {
            self.recovery.on_app_limited();
        }
        chosen
    }

    fn has_control(&self) -> bool {
        self.syncs.to_echo.is_some()
            || self.credit_to_send
            || self.quality.has_to_say()
            || self.outbox.has_announcements()
            || self.groups.has_to_say()
            || !self.whole_to_say.is_empty()
    }

    fn put_ack(&mut self, now: Timestamp, draft: &mut Draft) {
        let clock = &self.clock;
        let Some((ack, nack)) = self.acks.report(now, |at| clock.micros(at)) else { return };
        draft.contents.acknowledged = ack.ranges.0.first().map(|newest| *newest.end());
        Frame::Ack(ack).put(&mut self.plain);
        if let Some(missing) = nack {
            Frame::Nack(missing).put(&mut self.plain);
        }
    }

    fn put_control(&mut self, now: Timestamp, room: usize, draft: &mut Draft) {
        if let Some((sent_us, came)) = self.syncs.to_echo.take() {
            let held_us = now.saturating_since(came).as_micros() as u64;
            let arrived_us = self.clock.micros(came);
            Frame::SyncEcho(Echo { sent_us, arrived_us, held_us }).put(&mut self.plain);
        }
        if std::mem::take(&mut self.credit_to_send) {
            let credit = self.inbox.announce();
            Frame::Credit { messages: credit.messages, bytes: credit.bytes }.put(&mut self.plain);
            draft.contents.credit = true;
            draft.eliciting = true;
        }
        if let Some((serial, qos)) = self.quality.take_proposal(now, self.recovery.view().pto * 3) {
            Frame::Qos { serial, qos }.put(&mut self.plain);
            draft.contents.qos = true;
            draft.eliciting = true;
        }
        if let Some((serial, qos)) = self.quality.take_answer() {
            Frame::QosAck { serial, qos }.put(&mut self.plain);
            draft.contents.qos_ack = true;
            draft.eliciting = true;
        }
        while self.plain.len() + ANNOUNCEMENT < room
            && let Some(gone) = self.outbox.next_gone()
        {
            Frame::Gone { id: gone.id, len: gone.len, reason: gone.reason }.put(&mut self.plain);
            draft.contents.gone.push(gone);
            draft.eliciting = true;
        }
        while self.plain.len() + ANNOUNCEMENT < room
            && let Some(id) = self.whole_to_say.pop()
        {
            Frame::Whole { id }.put(&mut self.plain);
            draft.contents.whole.push(id);
            draft.eliciting = true;
        }
        while self.plain.len() + SAID < room
            && let Some(said) = self.groups.say()
        {
            said.put(&mut self.plain);
            draft.contents.said.push(said);
            draft.eliciting = true;
        }
        while self.plain.len() + ANNOUNCEMENT < room
            && let Some(dropped) = self.outbox.next_dropped()
        {
            Frame::Dropped { first: dropped.first, count: dropped.count, reason: dropped.reason }
                .put(&mut self.plain);
            draft.eliciting = true;
        }
    }

    fn put_blocks(
        &mut self,
        now: Timestamp,
        chosen: Chosen,
        source: &mut dyn Source,
        room: usize,
        draft: &mut Draft,
    ) {
        draft.retransmitted = matches!(chosen, Chosen::Again(_));
        let mut next = Some(chosen);
        while let Some(chosen) = next.filter(|next| matches!(next, Chosen::Again(_)) == draft.retransmitted) {
            let left = room.saturating_sub(self.plain.len());
            if chosen == Chosen::GroupRepair {
                let repair = self.groups.put_repair(now, left, &mut self.plain);
                draft.eliciting |= repair.is_some();
                draft.control &= repair.is_none();
                draft.contents.repairs.extend(repair);
                break;
            }
            if chosen == Chosen::Parity {
                let parity = self.put_parity(left);
                draft.eliciting |= parity;
                draft.control &= !parity;
                break;
            }
            let clock = &self.clock;
            let Some(piece) = self.outbox.cut(chosen, left, |record| describe(clock, record)) else { break };
            self.put_piece(&piece, source, room);
            let bytes = u64::from(piece.bytes);
            if draft.retransmitted {
                self.stats.payload_resent += bytes;
            } else {
                self.stats.payload_sent += bytes;
            }
            let link = self.link(now);
            if piece.head.end && !draft.retransmitted {
                self.outbox.protect(now, piece.part.id, source, &link);
            }
            draft.contents.parts.push(piece.part);
            draft.control = false;
            draft.eliciting = true;
            if self.plain.len() + WORTH_A_BLOCK > room {
                break;
            }
            next = self.outbox.choose(now, source, &link, self.quality.current());
        }
        draft.retransmitted &= !draft.contents.parts.is_empty();
        let more = self.outbox.has_begun_work();
        draft.contents.busy = more;
        draft.ack_now |= !more || self.packets_until_ack() == 0;
    }

    fn put_piece(&mut self, piece: &Piece, source: &dyn Source, room: usize) {
        let begin = self.plain.len();
        piece.head.put(None, &mut self.plain);
        let left = room.saturating_sub(self.plain.len() + piece.bytes as usize);
        // With a length something can follow it.
        if left >= WORTH_A_BLOCK {
            self.plain.truncate(begin);
            piece.head.put(Some(piece.bytes), &mut self.plain);
        }
        let at = self.plain.len();
        self.plain.resize(at + piece.bytes as usize, 0);
        if let Some(place) = self.plain.get_mut(at..) {
            source.read(piece.token, piece.head.offset, place);
        }
    }

    /// Puts the next parity shard; false if the room is too small. One that is too large for any packet is left out.
    fn put_parity(&mut self, room: usize) -> bool {
        let Some(shard) = self.outbox.take_parity() else { return false };
        let message = describe(&self.clock, &shard.record);
        let (index, count) = (shard.index, shard.count);
        let parity = Parity { id: shard.id, message, index, count, bytes: &shard.bytes };
        if parity.len() > room {
            if !self.plain.is_empty() {
                self.outbox.return_parity(shard);
            }
            return false;
        }
        Frame::Repair(parity).put(&mut self.plain);
        self.stats.parity_sent += shard.bytes.len() as u64;
        true
    }

    /// A receiver works least if it acknowledges when it is asked to: a few times for each window.
    fn packets_until_ack(&self) -> u64 {
        let view = self.recovery.view();
        let window = view.cwnd / u64::from(self.recovery.mtu()).max(1);
        let every = (window / 4).clamp(1, 16);
        (self.next_number + 1) % every
    }

    fn mtu_probe(&mut self, now: Timestamp, out: &mut Vec<u8>) -> Option<usize> {
        let size = self.recovery.mtu_probe(now)?;
        let room = usize::from(size).checked_sub(self.room_taken())?;
        self.plain.clear();
        Frame::Ping.put(&mut self.plain);
        self.plain.resize(room, 0);
        let draft = Draft { eliciting: true, ack_now: true, mtu_probe: true, ..Draft::default() };
        self.seal(now, draft, out)
    }

    fn seal(&mut self, now: Timestamp, draft: Draft, out: &mut Vec<u8>) -> Option<usize> {
        let number = self.next_number;
        let begin = out.len();
        let mut header = DataHeader {
            to: self.path.peer_id(),
            number: number as u32,
            phase: false,
            retransmitted: draft.retransmitted,
            control: draft.control,
            ack_now: draft.ack_now,
        };
        header.put(out);
        let Ok(phase) = self.keys.seal(number, &self.plain, out) else {
            out.truncate(begin);
            self.events.push_back(Event::Closed(Closed::KeysExhausted));
            self.finish();
            return None;
        };
        header.phase = phase;
        header.put_flags(out.get_mut(begin..begin + DATA_HEADER)?);
        self.next_number += 1;
        let len = out.len() - begin;
        self.account(now, number, len, draft);
        Some(len)
    }

    fn account(&mut self, now: Timestamp, number: u64, len: usize, draft: Draft) {
        let (has_data, busy) = (!draft.contents.parts.is_empty(), draft.contents.busy);
        self.recovery.on_sent(
            now,
            Sent {
                number,
                bytes: len as u32,
                eliciting: draft.eliciting,
                ack_now: draft.ack_now,
                app_limited: false,
                mtu_probe: draft.mtu_probe,
                content: draft.contents,
            },
        );
        if has_data {
            self.quality.on_sent(len as u64);
            self.syncs.on_data(now, self.recovery.view().srtt, busy);
        }
        self.sent_at = now;
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += len as u64;
    }
}

pub(crate) fn describe(clock: &super::clock::Clock, record: &Record) -> Message {
    let generated_us = clock.micros(record.generated);
    let lifetime_us = (record.deadline != Timestamp::MAX)
        .then(|| clock.micros(record.deadline).saturating_sub(generated_us));
    Message {
        len: record.len,
        seq: record.seq,
        layer: record.layer,
        group: record.group,
        key: record.key,
        refs: record.refs,
        generated_us,
        lifetime_us,
    }
}

/// The most bytes that leave in one burst, which is what a datagram's length field and the kernel allow.
const MAX_BURST: usize = 60_000;
/// A rest of a packet that is smaller is left empty rather than filled with a block.
const WORTH_A_BLOCK: usize = 96;
/// Room for an announcement.
const ANNOUNCEMENT: usize = 24;
/// Room for what is said of a group: a NACK with all its ranges.
const SAID: usize = 300;
