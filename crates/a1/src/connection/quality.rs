use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use crate::wire::{Qos, QosError};

/// The agreed quality of service, changes of it, and the rate that it allows (Mapp 1997, "QoS support in A1").
#[derive(Debug)]
pub(super) struct Quality {
    maximum: Qos,
    /// What of it the other end allows too.
    common: Qos,
    current: Qos,
    /// Where both ends ask for a change at once, this one's is the first.
    is_first: bool,
    serial: u64,
    proposed: Option<Qos>,
    to_propose: bool,
    /// When the proposal goes again if it was not answered, and the pause after that.
    again: (Timestamp, Duration),
    to_answer: Option<u64>,
    /// The largest change of the peer's that was answered.
    answered: u64,
    bucket: Bucket,
    exceeded: bool,
}

/// Credits of an average rate with a burst, in bytes.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Negative is a debt: the packet that empties the bucket goes whole.
    bytes: i64,
    at: Timestamp,
}

impl Quality {
    /// `theirs` is the other end's maximum, as that sees it.
    pub(super) fn new(now: Timestamp, maximum: Qos, theirs: &Qos, current: Qos, is_first: bool) -> Self {
        Self {
            maximum,
            common: maximum.within(&theirs.mirrored()),
            current,
            is_first,
            serial: 0,
            proposed: None,
            to_propose: false,
            again: (Timestamp::MAX, Duration::ZERO),
            to_answer: None,
            answered: 0,
            bucket: Bucket { bytes: i64::from(current.send_burst), at: now },
            exceeded: false,
        }
    }

    pub(super) fn current(&self) -> &Qos {
        &self.current
    }

    pub(super) fn maximum(&self) -> &Qos {
        &self.maximum
    }

    pub(super) fn common(&self) -> &Qos {
        &self.common
    }

    pub(super) fn is_pending(&self) -> bool {
        self.proposed.is_some()
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded
    }

    pub(super) fn propose(&mut self, qos: Qos) -> Result<(), QosError> {
        if self.proposed.is_some() {
            return Err(QosError::Pending);
        }
        qos.check(&self.common)?;
        self.proposed = Some(qos);
        self.ask();
        Ok(())
    }

    pub(super) fn has_pending(&self) -> bool {
        self.to_propose || self.to_answer.is_some()
    }

    /// A change to ask for, with its number. It goes again after `pause`, and then more and more rarely,
    /// until it is answered. Its acknowledgement does not mean that the answer arrives: that may have gone to
    /// an address that this end does not have any more.
    //= spec/a1.md A1-QOS-3, A1-QOS-7
    pub(super) fn take_proposal(&mut self, now: Timestamp, pause: Duration) -> Option<(u64, Qos)> {
        let proposed = self.proposed.filter(|_| self.to_propose)?;
        self.to_propose = false;
        let pause = self.again.1.max(pause);
        self.again = (now + pause, (pause * 2).min(RAREST));
        Some((self.serial, proposed))
    }

    /// When an answer is overdue.
    pub(super) fn timeout(&self) -> Option<Timestamp> {
        (self.is_pending() && !self.to_propose).then_some(self.again.0)
    }

    pub(super) fn on_timeout(&mut self, now: Timestamp) {
        self.to_propose |= self.timeout().is_some_and(|at| at <= now);
    }

    /// An answer to give: what this end agrees to, as the peer sees it.
    pub(super) fn take_answer(&mut self) -> Option<(u64, Qos)> {
        self.to_answer.take().map(|serial| (serial, self.current.mirrored()))
    }

    pub(super) fn on_lost(&mut self, proposal: bool, answer: bool) {
        self.to_propose |= proposal && self.proposed.is_some();
        if answer {
            self.to_answer = Some(self.answered);
        }
    }

    /// The peer asks for `qos`, as it sees it; whether the quality changes by that.
    //= spec/a1.md A1-QOS-3, A1-QOS-6
    pub(super) fn on_proposal(&mut self, serial: u64, qos: &Qos) -> bool {
        if serial < self.answered || self.is_first && self.is_pending() {
            // Asked again after this end's change, it holds.
            return false;
        }
        self.to_answer = Some(serial);
        if serial == std::mem::replace(&mut self.answered, serial) {
            return false;
        }
        if self.is_pending() {
            // The peer may have answered it before it asked, in a packet that was overtaken: then its change is the later one.
            self.ask();
        }
        let before = std::mem::replace(&mut self.current, qos.mirrored().within(&self.maximum));
        before != self.current
    }

    /// The peer answers; whether the change is done by this.
    pub(super) fn on_answer(&mut self, serial: u64, qos: &Qos) -> bool {
        let Some(proposed) = self.proposed.take_if(|_| serial == self.serial) else { return false };
        self.to_propose = false;
        self.current = qos.within(&proposed);
        true
    }

    /// With a number of its own each time, so that no earlier answer is taken for its.
    fn ask(&mut self) {
        self.serial += 1;
        self.to_propose = true;
        self.again = (Timestamp::MAX, Duration::ZERO);
    }

    /// Until when data has to wait for the agreed rate; `None` if a packet may go.
    //= spec/a1.md A1-QOS-4
    pub(super) fn wait(&mut self, now: Timestamp) -> Option<Timestamp> {
        let Some(rate) = self.current.send_average else {
            self.exceeded = false;
            // What leaves without a limit is no debt once there is one.
            self.bucket = Bucket { bytes: i64::from(self.current.send_burst), at: now };
            return None;
        };
        self.bucket.fill(now, rate, self.current.send_burst);
        self.exceeded = self.bucket.bytes <= 0;
        let debt = self.bucket.bytes.unsigned_abs() + 1;
        self.exceeded.then(|| now + rate.time_for(debt).max(SHORTEST_WAIT))
    }

    /// The agreed rate and the bytes that may go at once before it counts; `None` if no rate was agreed.
    pub(super) fn credit(&self, now: Timestamp) -> Option<(Rate, i64)> {
        let rate = self.current.send_average?;
        let mut bucket = self.bucket;
        bucket.fill(now, rate, self.current.send_burst);
        Some((rate, bucket.bytes))
    }

    /// Bytes that a packet has at most: no more than may leave at once, where a rate was agreed.
    pub(super) fn most_in_packet(&self) -> u16 {
        let burst = i64::from(self.current.send_burst).max(PACKET);
        match self.current.send_average {
            Some(_) => u16::try_from(burst).unwrap_or(u16::MAX),
            None => u16::MAX,
        }
    }

    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.bucket.bytes = self.bucket.bytes.saturating_sub_unsigned(bytes);
    }
}

impl Bucket {
    //= spec/a1.md A1-QOS-8
    fn fill(&mut self, now: Timestamp, rate: Rate, burst: u32) {
        let more = rate.bytes_in(now.saturating_since(self.at));
        let most = i64::from(burst).max(PACKET);
        let bytes = self.bytes.saturating_add_unsigned(more);
        // A caller that looks often does not lose the parts of a byte.
        self.at = if bytes < most { (self.at + rate.time_for(more)).min(now) } else { now };
        self.bytes = bytes.min(most);
    }
}

/// The longest pause between two proposals of the same change, unless the path itself is slower (A1-QOS-7).
const RAREST: Duration = Duration::from_secs(10);
/// About a packet: the bucket holds at least this.
const PACKET: i64 = 1500;
/// The shortest wait for the bucket. Chosen, not measured.
const SHORTEST_WAIT: Duration = Duration::from_micros(100);
