//! From datagrams to messages.

use std::time::Duration;

use freshwire_record::Timestamp;

use super::{Closed, Connection, Event, State};
use crate::acks::Arrival;
use crate::crypto::{Freshness, Opening};
use crate::outbox::Credit;
use crate::recovery::AckInfo;
use crate::remote::Remote;
use crate::truncated::ahead;
use crate::violation::Violation;
use crate::wire::{Ack, Block, DataHeader, Echo, Frame, Frames};

impl Connection {
    /// A data packet for this connection came. False: it did not open or came before, and changes nothing.
    pub(crate) fn handle_packet(
        &mut self,
        now: Timestamp,
        from: Remote,
        congestion: bool,
        header: DataHeader,
        sealed: &mut [u8],
    ) -> bool {
        let number = self.replay.expand(header.number);
        let bytes = sealed.len() + crate::wire::DATA_HEADER;
        let opened = match self.replay.check(number) {
            Freshness::New => self.keys.open(now, number, header.phase, sealed),
            Freshness::Repeated | Freshness::TooOld => Err(Opening::Unauthentic),
        };
        match opened {
            Ok(opened) => {
                let is_newest = self.replay.is_newest(number);
                self.replay.record(number);
                self.stats.packets_received += 1;
                self.stats.bytes_received += bytes as u64;
                self.recovery.on_heard(now.saturating_since(self.heard_at));
                self.heard_at = now;
                self.path.on_packet(now, from, bytes as u64, is_newest);
                self.handle_frames(now, from, congestion, header, number, opened);
                true
            }
            Err(error) => {
                self.stats.packets_refused += 1;
                if error == Opening::Exhausted {
                    self.end(now, CODE_KEYS, "keys used up", Closed::KeysExhausted);
                }
                false
            }
        }
    }

    //= spec/a1.md A1-FRM-1
    fn handle_frames(
        &mut self,
        now: Timestamp,
        from: Remote,
        congestion: bool,
        header: DataHeader,
        number: u64,
        plain: &[u8],
    ) {
        if let State::Closing { to_send, .. } = &mut self.state {
            // The peer has not heard of the end yet. What it sends is not acknowledged, so it must not count here either.
            *to_send = true;
            if Frames::new(plain).any(|frame| matches!(frame, Ok(Frame::Close { .. }))) {
                self.finish();
            }
            return;
        }
        let was_ready = self.inbox.is_ready();
        let mut eliciting = false;
        let mut acks = 0;
        for frame in Frames::new(plain) {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return self.violated(now, error.into()),
            };
            acks += usize::from(matches!(frame, Frame::Ack(_) | Frame::Nack(_)));
            if acks > MAX_ACKS {
                return self.violated(now, Violation::TooManyAcknowledgements);
            }
            eliciting |= !matches!(
                frame,
                Frame::Padding | Frame::Ack(_) | Frame::Nack(_) | Frame::Close { .. } | Frame::SyncEcho(_)
            );
            if let Err(error) = self.handle_frame(now, from, frame) {
                return self.violated(now, error);
            }
            if matches!(self.state, State::Ended) {
                return;
            }
        }
        while let Some(id) = self.inbox.pop_made_whole() {
            self.stats.messages_made_whole += 1;
            // A peer without this report sends the rest of it again, if it is worth it.
            if self.whole_pending.len() < MAX_WHOLE {
                self.whole_pending.push(id);
            }
        }
        if matches!(self.state, State::Open) {
            self.acks.on_packet(now, number, Arrival { eliciting, ack_now: header.ack_now, ce: congestion });
        }
        if self.inbox.is_ready() && !was_ready {
            self.events.push_back(Event::Readable);
        }
    }

    fn handle_frame(&mut self, now: Timestamp, from: Remote, frame: Frame<'_>) -> Result<(), Violation> {
        match frame {
            Frame::Padding | Frame::Ping => {}
            Frame::Ack(ack) => self.on_ack(now, &ack)?,
            Frame::Nack(ranges) => {
                self.recovery.on_nack(now, &ranges.0, &mut self.outcomes);
                self.settle_outcomes(now);
            }
            Frame::Sync { sent_us } => {
                self.syncs.to_echo = Some((sent_us, now));
                self.clock.on_sync(now, sent_us);
            }
            Frame::SyncEcho(echo) => self.on_echo(now, echo),
            Frame::Block(block) => self.on_blocks([block])?,
            Frame::Run(run) => {
                let peer_us = self.clock.peer_micros(now);
                let id = self.inbox.full_number(run.id);
                self.on_blocks(run.blocks(id, full_time(peer_us, run.generated)))?;
            }
            Frame::Repair(parity) => {
                let qos = self.quality.maximum();
                let whole = self.inbox.on_parity(&parity, qos)?;
                self.stats.messages_received += u64::from(whole);
            }
            Frame::Whole { id } => self.outbox.on_whole(id)?,
            Frame::Gone { id, len, reason } => {
                self.inbox.on_gone(id, len, reason)?;
                self.credit_to_send |= self.inbox.credit_due();
                self.events.push_back(Event::Readable);
            }
            Frame::Dropped { first, count, reason } => {
                self.inbox.on_dropped(first, count, reason);
                self.events.push_back(Event::Readable);
            }
            Frame::Credit { messages, bytes } => self.outbox.on_credit(Credit { messages, bytes }),
            Frame::Qos { serial, qos } => {
                if self.quality.on_proposal(serial, &qos) {
                    self.events.push_back(Event::QosPending);
                    self.quality_changed();
                }
            }
            Frame::QosAck { serial, qos } => {
                if self.quality.on_answer(serial, &qos) {
                    self.quality_changed();
                }
            }
            Frame::Close { code, reason } => {
                let closed = Closed::Peer { code, reason: reason.to_owned() };
                if matches!(self.state, State::Open) {
                    self.events.push_back(Event::Closed(closed));
                }
                self.finish();
            }
            Frame::Group(_)
            | Frame::GroupNack { .. }
            | Frame::GroupBlock { .. }
            | Frame::GroupGone { .. }
            | Frame::GroupAt { .. } => {
                self.on_group_frame(now, frame)?;
            }
            Frame::PathChallenge(token) => self.path.on_challenge(token, from),
            Frame::PathResponse(token) => {
                if let Some(remote) = self.path.on_response(token) {
                    self.recovery.on_path_change(now, remote.is_tcp, &mut self.outcomes);
                    self.settle_outcomes(now);
                    self.syncs.on_path_change();
                    self.events.push_back(Event::Migrated(remote));
                }
            }
        }
        Ok(())
    }

    fn on_blocks<'a>(&mut self, blocks: impl IntoIterator<Item = Block<'a>>) -> Result<(), Violation> {
        let qos = self.quality.maximum();
        for block in blocks {
            let whole = self.inbox.on_block(&block, qos)?;
            self.stats.messages_received += u64::from(whole);
        }
        Ok(())
    }

    fn on_ack(&mut self, now: Timestamp, ack: &Ack) -> Result<(), Violation> {
        let Some(newest) = ack.ranges.0.first() else { return Ok(()) };
        let info = AckInfo {
            largest: *newest.end(),
            ranges: &ack.ranges.0,
            delay: Duration::from_micros(ack.delay_us),
            receiver_time_us: ack.at_us,
            ce_count: ack.ce,
        };
        self.recovery.on_ack(now, &info, &mut self.outcomes)?;
        self.keys.set_retention(self.recovery.pto() * 3);
        self.settle_outcomes(now);
        Ok(())
    }

    fn on_echo(&mut self, now: Timestamp, echo: Echo) {
        if !self.syncs.is_answer(echo.sent_us) {
            return;
        }
        let sent_at = self.clock.instant(echo.sent_us);
        let held = Duration::from_micros(echo.held_us);
        let round_trip = now.saturating_since(sent_at).saturating_sub(held);
        self.recovery.on_sync_echo(now, sent_at, held);
        self.clock.on_echo(now, echo.arrived_us, held, round_trip);
    }

    fn quality_changed(&mut self) {
        let after = *self.quality.current();
        self.inbox.set_window(&after);
        self.keys.set_checksum(after.checksum);
        self.credit_to_send = true;
        self.events.push_back(Event::QosChanged);
    }

    fn violated(&mut self, now: Timestamp, violation: Violation) {
        self.end(now, Violation::CODE, &violation.to_string(), Closed::Violation(violation));
    }
}

/// The time, in microseconds of the peer's clock, that is nearest to `peer_us` and has these low 24 bits.
//= spec/a1.md A1-FRM-5
fn full_time(peer_us: u64, low: u32) -> i64 {
    (peer_us as i64).wrapping_add(ahead(peer_us, low))
}

/// Codes of the protocol in CLOSE; an application's own begin at 256.
const CODE_KEYS: u64 = 2;

/// Messages made whole by parity whose report waits, at most. Chosen, not measured.
const MAX_WHOLE: usize = 1024;

/// ACK and NACK frames of a packet. Each costs a look at what is in flight, and one of each says all.
//= spec/a1.md A1-ACK-5
const MAX_ACKS: usize = 4;
