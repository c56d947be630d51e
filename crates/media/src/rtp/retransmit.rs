//! Retransmission of packets that a receiver reports as missing (RFC 4588, SSRC-multiplexed), chosen late.
//!
//! ```text
//!  retransmission packet  ┌─────────────────────────┬──────────────────┬───────────────────────┐
//!                         │ RTP header, own stream  │ original number  │ payload, as first sent│
//!                         └─────────────────────────┴──────────────────┴───────────────────────┘
//!                         0                         12                 14
//! ```
//!
//! A packet is sent again only while its picture can be of use: see [`Refusal`].

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_record::Timestamp;

use super::HEADER_BYTES;
use crate::unit::Kind;

/// Payload type of a track's retransmitted packets, in [`sdp`](crate::sdp) and in the packets.
pub const fn retransmission_payload_type(kind: Kind) -> u8 {
    match kind {
        Kind::Video => 98,
        Kind::Audio => 99,
    }
}

/// Time for which packets are kept: `rtx-time` in the description (RFC 4588). Chosen, not measured.
pub const RETRANSMISSION_TIME: Duration = Duration::from_secs(1);
/// Bytes of packets that are kept, at most: a second of 8 Mbit/s.
pub const MAX_RETRANSMISSION_BYTES: usize = 1 << 20;

/// One byte may be sent again for this number of sent bytes: at a tenth lost, twice the need. Chosen, not
/// measured.
const SENT_PER_REPEATED: u64 = 4;
/// Bytes that may be sent again at once: most of a keyframe. Chosen, not measured.
const MAX_ALLOWANCE: u64 = 64 << 10;
/// Requests that wait for the pace. Chosen, not measured.
const MAX_QUEUE: usize = 256;
/// Time that a receiver may take, besides the round trip, to notice and report a loss. The packet after the
/// gap comes within 40 ms at 25 pictures per second. Early feedback has a delay (RFC 4585, section 3.4).
/// GStreamer delays by up to 250 ms at 2.4 kbit/s for reports, so by about 60 ms at the 10 kbit/s of the
/// description.
const REPORTING: Duration = Duration::from_millis(100);
/// A receiver may request this number of packets more than twice its reported losses. Beyond that it requests
/// packets that it only expects, as GStreamer 1.22 does in some sessions for every seventh packet. A lost
/// packet is requested again, another one is not. The number is about that of one item of a request (17, RFC
/// 4585, 6.2.1): one burst of losses before the first report.
const UNREPORTED: u64 = 16;
/// One in this number of the packets since the last report may be lost besides: reports come up to seven
/// seconds apart. 6 % is above the losses at which live pictures are of use, and less than half of
/// GStreamer's every seventh.
const SENT_PER_UNREPORTED: u64 = 16;
/// Half of the sequence numbers: as far back a number names one packet.
const MAX_BEHIND: usize = 1 << 15;
/// Packets that are kept, at most: [`MAX_RETRANSMISSION_BYTES`] of 256 bytes each. Smaller ones cost more than their bytes.
const MAX_PACKETS: usize = 1 << 12;

/// The picture or audio frame that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureInfo {
    /// Its number.
    pub seq: u64,
    /// Pictures that are decodable together; the same for all audio frames.
    pub group: u32,
    /// When it has to be at the receiver; [`Timestamp::MAX`] is never.
    pub deadline: Timestamp,
}

/// Why a packet is not sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was never sent.
    Unknown,
    /// It was requested for the first time, by a receiver that requests far more than it reports as lost.
    Unconfirmed,
    /// It was sent within the last round trip, for the first time or again, or is about to be. Some players request packets that
    /// they only expect.
    Recent,
    /// It is of no use any more. It would arrive after the deadline of its picture, or after the keyframe of the next group. Or another
    /// packet of its picture was given up, or it is not kept any more.
    Late,
    /// Too much was sent again in proportion to what is sent.
    TooMuch,
}

/// How long a packet and the answer to it take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The mean.
    pub mean: Duration,
    /// The smallest that was seen lately.
    pub least: Duration,
}

/// Requests and their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetransmissionCounts {
    /// Packets sent again.
    pub repaired: u64,
    /// Bytes of these packets, RTP header included.
    pub repaired_bytes: u64,
    /// Requests refused as [late](Refusal::Late).
    pub late: u64,
    /// Requests refused as [too much](Refusal::TooMuch).
    pub too_much: u64,
}

/// The packets of one track that can be sent again to one receiver. Sans-IO.
///
/// Bounds: [`MAX_RETRANSMISSION_BYTES`] and [`RETRANSMISSION_TIME`] of packets, 4096 packets, 256 waiting requests. Records of
/// packets and pictures take 0.4 MiB more at most, so that it allocates less than 1.5 MiB. At most a quarter of the bytes that were
/// sent are sent again, and 64 KiB at once.
#[derive(Clone, Debug)]
pub struct Retransmitter {
    payload_type: u8,
    ssrc: u32,
    /// Sequence number of the next retransmission packet.
    seq: u16,
    /// The kept packets, headers included, one after the other.
    bytes: VecDeque<u8>,
    /// Bytes of all packets that are not kept any more: where `bytes` begins.
    forgotten: u64,
    packets: VecDeque<KeptPacket>,
    /// Number of the next packet, counted on beyond 16 bits; `None` before the first one.
    next: Option<u64>,
    /// Number of the first packet ever.
    first: u64,
    pictures: VecDeque<Picture>,
    /// Packets that were requested, and lost packets by the receiver's reports.
    requested: u64,
    lost: u64,
    /// Packets that were sent since the last report.
    since_report: u64,
    queue: VecDeque<u64>,
    queued_bytes: u64,
    allowance: u64,
    counts: RetransmissionCounts,
}

#[derive(Clone, Copy, Debug)]
struct KeptPacket {
    /// Its first byte, counted from the first of all packets.
    begin: u64,
    len: u16,
    at: Timestamp,
    /// When it was sent again last.
    repeated: Option<Timestamp>,
    is_requested: bool,
    is_queued: bool,
}

#[derive(Clone, Copy, Debug)]
struct Picture {
    info: PictureInfo,
    /// Number of its first packet.
    first: u64,
    /// When the first picture of the next group had left completely.
    over: Option<Timestamp>,
    is_given_up: bool,
}

impl Retransmitter {
    /// Keeps nothing yet. `ssrc` and `seq` are those of the retransmission stream, random like every stream's.
    pub fn new(kind: Kind, ssrc: u32, seq: u16) -> Self {
        Self {
            payload_type: retransmission_payload_type(kind),
            ssrc,
            seq,
            bytes: VecDeque::new(),
            forgotten: 0,
            packets: VecDeque::new(),
            next: None,
            first: 0,
            pictures: VecDeque::new(),
            requested: 0,
            lost: 0,
            since_report: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            allowance: MAX_ALLOWANCE / 2,
            counts: RetransmissionCounts::default(),
        }
    }

    /// Source identifier of the retransmission stream.
    pub fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// The requests so far, and their results.
    pub fn counts(&self) -> RetransmissionCounts {
        self.counts
    }

    /// Bytes of packets that wait to be sent again.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Bytes that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Keeps a packet that is sent now. `packet` has no contributing sources and no extension, as all of [`Stream`](super::Stream).
    /// `picture` is `None` for one that takes the place of dropped pictures.
    pub fn keep(&mut self, now: Timestamp, picture: Option<PictureInfo>, packet: &[u8]) {
        self.keep_parts(now, picture, packet, &[]);
    }

    /// The same, with a packet in two parts, of which the first has the RTP header.
    pub fn keep_parts(&mut self, now: Timestamp, picture: Option<PictureInfo>, head: &[u8], body: &[u8]) {
        let bytes = head.len() + body.len();
        let (Some(&[high, low]), Ok(len)) =
            (head.get(2..4).and_then(<[u8]>::first_chunk), u16::try_from(bytes))
        else {
            return;
        };
        if head.len() < HEADER_BYTES {
            return;
        }
        let seq = u16::from_be_bytes([high, low]);
        let number = match self.next {
            Some(next) if next as u16 == seq => next,
            // A stream that has started anew: numbers of the old one name nothing.
            _ => {
                self.forget_all();
                self.first = u64::from(seq) + (1 << 16);
                self.first
            }
        };
        self.make_room(now, bytes);
        self.begin_picture(now, picture, number);
        self.packets.push_back(KeptPacket {
            begin: self.forgotten + self.bytes.len() as u64,
            len,
            at: now,
            repeated: None,
            is_requested: false,
            is_queued: false,
        });
        self.bytes.extend(head);
        self.bytes.extend(body);
        self.next = Some(number + 1);
        self.since_report += 1;
        self.allowance = (self.allowance + u64::from(len) / SENT_PER_REPEATED).min(MAX_ALLOWANCE);
    }

    /// Takes in the number of packets that the receiver reports as lost in all (RFC 3550, 6.4.1).
    pub fn reported(&mut self, lost: u64) {
        (self.lost, self.since_report) = (lost, 0);
    }

    /// Asks for the packet with this sequence number to be sent again.
    ///
    /// # Errors
    ///
    /// If it is not going to be.
    pub fn request(&mut self, now: Timestamp, round_trip: RoundTrip, missing: u16) -> Result<(), Refusal> {
        self.forget(now);
        let number = self.number_of(missing).ok_or(Refusal::Unknown)?;
        let result = self.enqueue(now, round_trip, number);
        self.count(result);
        result
    }

    /// The sender report of the retransmission stream, made from that of the original stream. Times and canonical name are the same: by
    /// the name receivers bring both together (RFC 4588, section 5.3). `None` if nothing was sent again, or `report` is none of
    /// [`Stream::write_report`](super::Stream::write_report).
    pub fn report(&self, report: &[u8]) -> Option<Vec<u8>> {
        let RetransmissionCounts { repaired, repaired_bytes, .. } = self.counts;
        let mut out = Some(report.to_vec()).filter(|_| repaired > 0)?;
        // The payload has the original number, and no header.
        let octets = repaired_bytes - (HEADER_BYTES as u64 - 2) * repaired;
        let fields = [(4, self.ssrc), (20, repaired as u32), (24, octets as u32), (32, self.ssrc)];
        for (at, value) in fields {
            out.get_mut(at..at + 4)?.copy_from_slice(&value.to_be_bytes());
        }
        Some(out)
    }

    /// Adds the next retransmission packet to `out`. Returns `false` if none waits, or all that did have become late.
    pub fn next_packet(&mut self, now: Timestamp, round_trip: RoundTrip, out: &mut Vec<u8>) -> bool {
        self.forget(now);
        while let Some(number) = self.queue.pop_front() {
            let Some(place) = self.place_of(number) else { continue };
            let Some(kept) = self.packets.get_mut(place) else { continue };
            kept.is_queued = false;
            self.queued_bytes = self.queued_bytes.saturating_sub(kept.bytes());
            if self.check_use(now, round_trip, number).is_err() {
                self.count(Err(Refusal::Late));
                continue;
            }
            self.write(now, place, out);
            return true;
        }
        false
    }

    fn enqueue(&mut self, now: Timestamp, round_trip: RoundTrip, number: u64) -> Result<(), Refusal> {
        let place = self.place_of(number).ok_or(Refusal::Late)?;
        let kept = *self.packets.get(place).ok_or(Refusal::Late)?;
        let is_on_its_way = now < kept.at + round_trip.least
            || kept.repeated.is_some_and(|repeated| now < repeated + round_trip.mean);
        if kept.is_queued || is_on_its_way {
            return Err(Refusal::Recent);
        }
        self.check_use(now, round_trip, number)?;
        if !kept.is_requested {
            self.requested += 1;
            if let Some(kept) = self.packets.get_mut(place) {
                kept.is_requested = true;
            }
            let plausible = 2 * self.lost + UNREPORTED + self.since_report / SENT_PER_UNREPORTED;
            if self.requested > plausible {
                return Err(Refusal::Unconfirmed);
            }
        }
        let is_over = self.queued_bytes + kept.bytes() > self.allowance || self.queue.len() >= MAX_QUEUE;
        if is_over {
            return Err(Refusal::TooMuch);
        }
        self.queue.push_back(number);
        self.queued_bytes += kept.bytes();
        if let Some(kept) = self.packets.get_mut(place) {
            kept.is_queued = true;
        }
        Ok(())
    }

    /// Whether the packet's picture can still be of use; if not, all of the picture is given up.
    fn check_use(&mut self, now: Timestamp, round_trip: RoundTrip, number: u64) -> Result<(), Refusal> {
        let behind = self.pictures.partition_point(|picture| picture.first <= number);
        let picture = behind.checked_sub(1).and_then(|at| self.pictures.get_mut(at)).ok_or(Refusal::Late)?;
        // The request for the last packet of a group comes so much after it.
        let is_over = picture.over.is_some_and(|over| now >= over + round_trip.mean + REPORTING);
        let is_late = picture.info.deadline < now + round_trip.mean / 2;
        picture.is_given_up |= is_over || is_late;
        if picture.is_given_up { Err(Refusal::Late) } else { Ok(()) }
    }

    fn write(&mut self, now: Timestamp, place: usize, out: &mut Vec<u8>) {
        let Some(kept) = self.packets.get_mut(place) else { return };
        kept.repeated = Some(now);
        let (begin, bytes) = ((kept.begin - self.forgotten) as usize, kept.bytes());
        let mut packet = self.bytes.range(begin..begin + usize::from(kept.len)).copied();
        let at = out.len();
        out.extend(packet.by_ref().take(HEADER_BYTES));
        if let Some(header) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<HEADER_BYTES>) {
            let original = [header[2], header[3]];
            header[1] = header[1] & MARKER | self.payload_type;
            header[2..4].copy_from_slice(&self.seq.to_be_bytes());
            header[8..].copy_from_slice(&self.ssrc.to_be_bytes());
            // RFC 4588, section 4.
            out.extend(original);
        }
        out.extend(packet);
        self.seq = self.seq.wrapping_add(1);
        self.allowance = self.allowance.saturating_sub(bytes);
        self.counts.repaired += 1;
        self.counts.repaired_bytes += bytes;
    }

    fn count(&mut self, result: Result<(), Refusal>) {
        match result {
            Err(Refusal::Late) => self.counts.late += 1,
            Err(Refusal::TooMuch) => self.counts.too_much += 1,
            Ok(()) | Err(Refusal::Unknown | Refusal::Unconfirmed | Refusal::Recent) => {}
        }
    }

    /// The number, beyond 16 bits, of a packet that was sent.
    fn number_of(&self, seq: u16) -> Option<u64> {
        let next = self.next?;
        let behind = (next as u16).wrapping_sub(1).wrapping_sub(seq);
        let number = (next - 1).checked_sub(u64::from(behind))?;
        (usize::from(behind) < MAX_BEHIND && number >= self.first).then_some(number)
    }

    /// Where a packet is among those that are kept.
    fn place_of(&self, number: u64) -> Option<usize> {
        let oldest = self.next? - self.packets.len() as u64;
        usize::try_from(number.checked_sub(oldest)?).ok()
    }

    fn begin_picture(&mut self, now: Timestamp, picture: Option<PictureInfo>, number: u64) {
        let last = self.pictures.back().map(|last| last.info);
        let info = match (picture, last) {
            (Some(info), Some(last)) if info.seq == last.seq => return,
            (Some(info), _) => info,
            // A repetition belongs to the group in progress.
            (None, Some(last)) => PictureInfo { seq: u64::MAX, ..last },
            (None, None) => PictureInfo { seq: u64::MAX, group: 0, deadline: Timestamp::MAX },
        };
        // The last picture is complete. If it was the first of its group, those before it are not needed any more.
        if let Some(last) = last {
            let of_older =
                |picture: &&mut Picture| picture.info.group != last.group && picture.over.is_none();
            let earlier =
                self.pictures.iter_mut().rev().skip_while(|picture| picture.info.group == last.group);
            for picture in earlier.take_while(of_older) {
                picture.over = Some(now);
            }
        }
        self.pictures.push_back(Picture { info, first: number, over: None, is_given_up: false });
    }

    /// Forgets what is too old, and what a packet of `len` bytes makes too much.
    fn make_room(&mut self, now: Timestamp, len: usize) {
        self.forget_down_to(now, MAX_RETRANSMISSION_BYTES.saturating_sub(len), MAX_PACKETS - 1);
        let needed = self.bytes.len() + len;
        if needed > self.bytes.capacity() {
            // Doubled as usual, but not beyond what is ever needed.
            let capacity = (2 * self.bytes.capacity()).clamp(needed, MAX_RETRANSMISSION_BYTES.max(needed));
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }

    /// Forgets packets that are too old.
    fn forget(&mut self, now: Timestamp) {
        self.forget_down_to(now, MAX_RETRANSMISSION_BYTES, MAX_PACKETS);
    }

    fn forget_down_to(&mut self, now: Timestamp, bytes: usize, packets: usize) {
        let mut was_queued = false;
        while let Some(&kept) = self.packets.front() {
            let is_old = kept.at + RETRANSMISSION_TIME < now;
            let is_excess = self.bytes.len() > bytes || self.packets.len() > packets;
            if !is_old && !is_excess {
                break;
            }
            self.packets.pop_front();
            self.bytes.drain(..usize::from(kept.len));
            self.forgotten += kept.bytes();
            if kept.is_queued {
                self.queued_bytes = self.queued_bytes.saturating_sub(kept.bytes());
                was_queued = true;
            }
        }
        let Some(next) = self.next else { return };
        let oldest = next - self.packets.len() as u64;
        if was_queued {
            // A queue of zero bytes is never emptied, so its places would stay taken.
            let waiting = self.queue.len();
            self.queue.retain(|&number| number >= oldest);
            self.counts.late += (waiting - self.queue.len()) as u64;
        }
        // The newest picture stays: more of its packets may follow.
        while self.pictures.get(1).is_some_and(|second| second.first <= oldest) {
            self.pictures.pop_front();
        }
    }

    fn forget_all(&mut self) {
        self.forgotten += self.bytes.len() as u64;
        self.bytes.clear();
        self.packets.clear();
        self.pictures.clear();
        self.queue.clear();
        self.queued_bytes = 0;
    }
}

impl KeptPacket {
    fn bytes(&self) -> u64 {
        u64::from(self.len)
    }
}

const MARKER: u8 = 0x80;

// What the documentation of `Retransmitter` says.
const _: () = assert!(MAX_PACKETS * (size_of::<KeptPacket>() + size_of::<Picture>()) <= 400 << 10);

#[cfg(test)]
mod tests;
