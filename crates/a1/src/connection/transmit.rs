//! From records to datagrams.

use freshwire_choice::Record;
use freshwire_record::Timestamp;

use super::{Closed, Connection, Contents, Event, State};
use crate::fec;
use crate::outbox::{Fec, LastBlock, Pick, Piece, Shape};
use crate::recovery::{Allowance, Sent};
use crate::remote::Remote;
use crate::source::{Source, read_all};
use crate::wire::{DATA_HEADER, DataHeader, Echo, Frame, Message, OpenRun, PARITY_HEAD, Parity};

/// Datagrams that leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transmit {
    /// Where they go.
    pub to: Remote,
    /// Bytes that were appended to the buffer.
    pub bytes: usize,
    /// Length of each datagram but the last, which may be shorter; all of `bytes` if there is one.
    pub segment: usize,
    /// Whether routers may mark them instead of dropping them.
    pub ecn: bool,
}

/// A packet while it is made. Its frames are at the end of the buffer in which it leaves, where it is sealed.
#[derive(Default)]
struct Draft {
    /// Where the frames begin, behind the room for the header.
    begin: usize,
    /// Up to where they may go.
    end: usize,
    contents: Contents,
    /// It has a block, of a message or for a member of a group, or parity.
    has_blocks: bool,
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
        let mtu = self.packet_size();
        loop {
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
        let proof = self.proof_len();
        let mut frame = |frame: Frame<'_>| {
            let draft = Draft { control: true, ..Draft::begin(out, 0) };
            frame.put(out);
            draft
        };
        let (to, draft) = match &mut self.state {
            State::Ended => return None,
            State::Closing { to_send, .. } => {
                if !std::mem::take(to_send) {
                    return None;
                }
                (self.path.remote(), self.put_close(now, out))
            }
            State::Open => {
                if let Some((token, to)) = self.path.answer(proof) {
                    (to, frame(Frame::PathResponse(token)))
                } else {
                    let (token, to) = self.path.challenge(now, proof)?;
                    (to, frame(Frame::PathChallenge(token)))
                }
            }
        };
        let bytes = self.seal(now, draft, out)?;
        Some(self.leaving(to, bytes, bytes))
    }

    /// The end, behind the last word of what came before it: the peer would take that for lost.
    //= spec/a1.md A1-END-1
    fn put_close(&mut self, now: Timestamp, out: &mut Vec<u8>) -> Draft {
        let mut draft = Draft { control: true, ..Draft::begin(out, 0) };
        self.put_ack(now, &mut draft, out);
        if let State::Closing { code, reason, .. } = &self.state {
            Frame::Close { code: *code, reason }.put(out);
        }
        draft
    }

    fn leaving(&self, to: Remote, bytes: usize, segment: usize) -> Transmit {
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
        self.groups.report(now);
        // Before anything is chosen: what has nothing to put into a packet must not be.
        self.groups.forget_repairs(now);
        let mut chosen = self.choose(now, source);
        let in_flight = self.recovery.in_flight() > 0;
        let sync = self.syncs.is_due(now, in_flight) || chosen.is_some() && self.syncs.wants_along(now);
        let is_due = self.acks.is_due(now);
        let can_send_control = sync || self.can_send_control();
        let has_to_go = self.syncs.to_echo.is_some() || can_send_control && self.has_pending();
        let is_silent = chosen.is_none() && !sync && !is_due && !has_to_go;
        if is_silent {
            return None;
        }
        let mtu = if chosen.is_some() || self.has_room() { mtu } else { mtu.min(LARGEST_OVER_WINDOW) };
        let room = mtu.checked_sub(self.room_taken())?;
        let mut draft = Draft::begin(out, room);
        if is_due || self.acks.is_waiting() {
            self.put_ack(now, &mut draft, out);
        }
        self.put_echo(now, out);
        if can_send_control {
            self.put_control(now, &mut draft, out);
        }
        if sync {
            draft.ack_now |= self.syncs.is_probing() || chosen.is_none();
            let micros = self.clock.micros(now);
            Frame::Sync { sent_us: micros }.put(out);
            self.syncs.on_sent(now, micros);
            draft.eliciting = true;
        }
        draft.control = !sync;
        while let Some(next) = chosen {
            self.put_blocks(now, next, source, &mut draft, out);
            // Parity that no packet has room for was left out: something else goes.
            let is_left_out = next == Pick::Parity && out.len() == draft.begin;
            chosen = if is_left_out { self.choose(now, source) } else { None };
        }
        if out.len() == draft.begin {
            out.truncate(draft.begin - DATA_HEADER);
            return None;
        }
        self.seal(now, draft, out)
    }

    /// Names the block that goes next, if data may go now.
    fn choose(&mut self, now: Timestamp, source: &mut dyn Source) -> Option<Pick> {
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
                if self.is_outage() {
                    let link = self.link(now);
                    self.outbox.drop_stale(now, source, &link);
                }
                return None;
            }
        }
        if let Some(at) = self.quality.wait(now) {
            self.blocked_until = Some(at);
            return None;
        }
        if self.groups.has_repairs() {
            return Some(Pick::GroupRepair);
        }
        let link = self.link(now);
        let is_wanted = self.config.fec && fec::is_worth_it(link.loss);
        let fec = is_wanted.then(|| self.fec());
        self.outbox.set_path(fec, self.recovery.is_rate_settled(), self.recovery.rate());
        let chosen = self.outbox.choose(now, source, &link, self.quality.current(), &|_, _| true);
        if chosen.is_none() {
            self.recovery.on_app_limited();
        }
        chosen
    }

    fn fec(&self) -> Fec {
        let shard = self.packet_size().saturating_sub(self.room_taken() + PARITY_HEAD) & !1;
        Fec { layers: self.config.fec_layers, shard: shard as u32, run: self.recovery.loss_run() }
    }

    /// Bytes of a packet that is full.
    fn packet_size(&self) -> usize {
        self.recovery.packet_size().min(self.quality.most_in_packet()).into()
    }

    /// Whether the congestion window is not full.
    fn has_room(&self) -> bool {
        self.recovery.in_flight() < self.recovery.window()
    }

    /// Whether what is no block may leave: the peer may wait for it, so a little of it may although the window is full.
    fn can_send_control(&self) -> bool {
        self.has_room() || self.over_window_bytes < MAX_OVER_WINDOW
    }

    fn has_pending(&self) -> bool {
        self.credit_to_send
            || self.quality.has_pending()
            || self.outbox.has_announcements() && !self.is_outage()
            || self.groups.has_pending()
            || !self.whole_pending.is_empty()
    }

    fn put_ack(&mut self, now: Timestamp, draft: &mut Draft, out: &mut Vec<u8>) {
        let clock = &self.clock;
        let Some((ack, nack)) = self.acks.report(now, |at| clock.micros(at)) else { return };
        draft.contents.acknowledged = ack.ranges.0.first().map(|newest| *newest.end());
        Frame::Ack(ack).put(out);
        if let Some(missing) = nack {
            Frame::Nack(missing).put(out);
        }
    }

    fn put_echo(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        if let Some((sent_us, came)) = self.syncs.to_echo.take() {
            let held_us = now.saturating_since(came).as_micros() as u64;
            let arrived_us = self.clock.micros(came);
            Frame::SyncEcho(Echo { sent_us, arrived_us, held_us }).put(out);
        }
    }

    fn put_control(&mut self, now: Timestamp, draft: &mut Draft, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.credit_to_send) {
            let credit = self.inbox.announce();
            Frame::Credit { messages: credit.messages, bytes: credit.bytes }.put(out);
            draft.contents.credit = true;
            draft.eliciting = true;
        }
        if let Some((serial, qos)) = self.quality.take_proposal(now, self.recovery.pto() * 3) {
            Frame::Qos { serial, qos }.put(out);
            draft.contents.qos = true;
            draft.eliciting = true;
        }
        if let Some((serial, qos)) = self.quality.take_answer() {
            Frame::QosAck { serial, qos }.put(out);
            draft.contents.qos_ack = true;
            draft.eliciting = true;
        }
        while out.len() + ANNOUNCEMENT < draft.end
            && let Some(gone) = self.outbox.next_gone()
        {
            Frame::Gone { id: gone.id, len: gone.len, reason: gone.reason }.put(out);
            draft.contents.uncommon().gone.push(gone);
            self.gone_in_flight += 1;
            draft.eliciting = true;
        }
        while out.len() + ANNOUNCEMENT < draft.end
            && let Some(id) = self.whole_pending.pop()
        {
            Frame::Whole { id }.put(out);
            draft.contents.uncommon().whole.push(id);
            draft.eliciting = true;
        }
        while out.len() + CONTROL_FRAME < draft.end
            && let Some(control) = self.groups.next_frame()
        {
            control.put(out);
            draft.contents.uncommon().control.push(control);
            draft.eliciting = true;
        }
        // A path in outage gets its reports when it delivers again.
        let is_outage = self.is_outage();
        while !is_outage
            && out.len() + ANNOUNCEMENT < draft.end
            && let Some(dropped) = self.outbox.next_dropped()
        {
            Frame::Dropped { first: dropped.first, count: dropped.count, reason: dropped.reason }.put(out);
            draft.contents.uncommon().dropped.push(dropped);
            draft.eliciting = true;
        }
    }

    fn put_blocks(
        &mut self,
        now: Timestamp,
        chosen: Pick,
        source: &mut dyn Source,
        draft: &mut Draft,
        out: &mut Vec<u8>,
    ) {
        draft.retransmitted = matches!(chosen, Pick::Again(_) | Pick::Duplicate);
        let first = chosen;
        let mut next = Some(chosen);
        let mut behind = LastBlock::Nothing;
        let now_us = self.clock.signed_micros(now);
        while let Some(chosen) = next.filter(|next| next.may_share(first)) {
            let left = draft.end.saturating_sub(out.len());
            if chosen == Pick::GroupRepair {
                let repair = self.groups.put_repair(left, out);
                draft.has_blocks |= repair.is_some();
                if let Some(repair) = repair {
                    draft.contents.uncommon().repairs.push(repair);
                }
                break;
            }
            if chosen == Pick::Parity {
                if let Some(left) = left.checked_sub(behind.closing_len()) {
                    behind.close(out);
                    draft.has_blocks |= self.put_parity(left, out.len() == draft.begin, out);
                }
                break;
            }
            let clock = &self.clock;
            let say = |record: &Record| describe(clock, record);
            let Some(piece) = self.outbox.cut(chosen, left, &behind, now_us, say) else { break };
            behind = put_piece(&piece, behind, source, (draft.end, now_us), out);
            let bytes = u64::from(piece.bytes);
            if draft.retransmitted {
                self.stats.payload_resent += bytes;
            } else {
                self.stats.payload_sent += bytes;
            }
            if matches!(chosen, Pick::First(_)) && piece.head.end {
                source.ends_in(piece.token, draft.begin - DATA_HEADER);
            }
            let link = self.link(now);
            match chosen {
                Pick::Again(_) => self.outbox.protect_repair(now, &piece.part, &link),
                Pick::First(id) if piece.head.end => self.outbox.protect(now, id, source, &link),
                _ => {}
            }
            draft.contents.parts.push(piece.part);
            draft.has_blocks = true;
            let left = draft.end.saturating_sub(out.len());
            if !behind.has_use_for(left) {
                break;
            }
            let clock = &self.clock;
            let fits = |id, record: &Record| behind.takes(id, &describe(clock, record), left);
            next = self.outbox.choose(now, source, &link, self.quality.current(), &fits);
        }
        draft.retransmitted &= !draft.contents.parts.is_empty();
        draft.control &= !draft.has_blocks;
        draft.eliciting |= draft.has_blocks;
        let more = self.outbox.has_work_in_progress();
        draft.contents.busy = more;
        draft.ack_now |= !more || (self.next_number + 1).is_multiple_of(self.recovery.packets_per_ack());
    }

    /// Puts the next parity shard; false if the room is too small. One that is too large for any packet is left out.
    fn put_parity(&mut self, room: usize, is_first: bool, out: &mut Vec<u8>) -> bool {
        let Some(shard) = self.outbox.take_parity() else { return false };
        let message = describe(&self.clock, &shard.record);
        let (index, count) = (shard.index, shard.count);
        let parity = Parity { id: shard.id, message, index, count, bytes: &shard.bytes };
        if parity.len() > room {
            if !is_first {
                self.outbox.return_parity(shard);
            }
            return false;
        }
        Frame::Repair(parity).put(out);
        self.stats.parity_sent += shard.bytes.len() as u64;
        true
    }

    fn mtu_probe(&mut self, now: Timestamp, out: &mut Vec<u8>) -> Option<usize> {
        let size = self.recovery.mtu_probe(now)?;
        let room = usize::from(size).checked_sub(self.room_taken())?;
        let draft = Draft { eliciting: true, ack_now: true, mtu_probe: true, ..Draft::begin(out, room) };
        Frame::Ping.put(out);
        out.resize(draft.end, 0);
        self.seal(now, draft, out)
    }

    //= spec/a1.md A1-PKT-2
    fn seal(&mut self, now: Timestamp, draft: Draft, out: &mut Vec<u8>) -> Option<usize> {
        let number = self.skips.number(self.next_number, draft.eliciting);
        let begin = draft.begin - DATA_HEADER;
        let mut header = DataHeader {
            to: self.path.peer_id(),
            number: number as u32,
            phase: false,
            retransmitted: draft.retransmitted,
            control: draft.control,
            ack_now: draft.ack_now,
        };
        let Ok(phase) = self.keys.seal(number, out, draft.begin) else {
            out.truncate(begin);
            self.events.push_back(Event::Closed(Closed::KeysExhausted));
            self.finish();
            return None;
        };
        header.phase = phase;
        out.get_mut(begin..draft.begin)?.copy_from_slice(&header.bytes());
        self.next_number = number + 1;
        let len = out.len() - begin;
        self.account(now, number, len, draft);
        Some(len)
    }

    fn account(&mut self, now: Timestamp, number: u64, len: usize, mut draft: Draft) {
        if draft.eliciting && !draft.has_blocks && !draft.mtu_probe && !self.has_room() {
            draft.contents.over_window_bytes = len as u32;
            self.over_window_bytes += len as u64;
        }
        let (has_blocks, busy) = (draft.has_blocks, draft.contents.busy);
        let has_news = draft.contents.has_news();
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
        if has_blocks {
            self.quality.on_sent(len as u64);
        }
        if has_news {
            self.syncs.on_data(now, self.recovery.rtt().srtt(), busy);
        }
        self.sent_at = now;
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += len as u64;
    }
}

impl Draft {
    /// Leaves room for the header at the end of `out`, and `room` bytes for frames.
    fn begin(out: &mut Vec<u8>, room: usize) -> Self {
        out.extend([0; DATA_HEADER]);
        Self { begin: out.len(), end: out.len() + room, ..Self::default() }
    }
}

/// Puts a block of which the last byte goes no further than `end`, behind what is in the packet.
fn put_piece(
    piece: &Piece,
    behind: LastBlock,
    source: &dyn Source,
    (end, now_us): (usize, i64),
    out: &mut Vec<u8>,
) -> LastBlock {
    let (head, bytes) = (&piece.head, piece.bytes as usize);
    let run = match (&piece.shape, behind) {
        (Shape::More(message), LastBlock::Run(mut run)) => {
            run.add(head.id, message, out);
            Some(run)
        }
        (Shape::Next(next), _) => {
            next.put(out);
            None
        }
        (shape, behind) => {
            behind.close(out);
            if let Shape::Run(message) = shape {
                Some(OpenRun::begin(head.id, head.offset, message, now_us, out))
            } else {
                let left = end.saturating_sub(out.len() + head.len() + bytes);
                // With a length something can follow it.
                head.put(LastBlock::Block(*head).has_use_for(left).then_some(piece.bytes), out);
                None
            }
        }
    };
    read_all(source, piece.token, head.offset, bytes, out);
    match run {
        Some(run) => LastBlock::Run(run.with(bytes)),
        None => LastBlock::Block(*head),
    }
}

pub(crate) fn describe(clock: &super::clock::Clock, record: &Record) -> Message {
    let generated_us = clock.signed_micros(record.generated);
    let lifetime_us = (record.deadline != Timestamp::MAX)
        .then(|| (clock.signed_micros(record.deadline) - generated_us).max(0).unsigned_abs());
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
/// Bytes in flight of packets that left although the window was full, from which on no other one does
/// (A1-CC-1).
const MAX_OVER_WINDOW: u64 = 4 * LARGEST_OVER_WINDOW as u64;
/// The most bytes of such a packet, which every path carries (A1-CC-1).
const LARGEST_OVER_WINDOW: usize = 1200;
/// Room for an announcement.
const ANNOUNCEMENT: usize = 24;
/// Room for a control frame of a group: a NACK with all its ranges.
const CONTROL_FRAME: usize = 300;
