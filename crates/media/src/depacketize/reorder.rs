use std::collections::VecDeque;
use std::time::Duration;

use freshwire_record::Timestamp;

/// The RTP packets of one track in the order they were sent in, where datagrams overtake each other.
///
/// A packet waits for those before it for [`PATIENCE`](Self::PATIENCE), and at most [`MAX_WAITING`](Self::MAX_WAITING) wait at once.
/// What comes behind its place goes on at once, for the [`Depacketizer`](super::Depacketizer) to count. After each
/// [`push`](Self::push), and at each [`deadline`](Self::deadline), take packets until there are none.
#[derive(Debug, Default)]
pub struct Reorder {
    /// By sequence number, all of them ahead of the next.
    waiting: VecDeque<Waiting>,
    ready: VecDeque<Vec<u8>>,
    next: Option<u16>,
}

#[derive(Debug)]
struct Waiting {
    number: u16,
    since: Timestamp,
    packet: Vec<u8>,
}

/// A packet further away than this is of another sequence: its source started anew. RFC 3550, A.1, allows
/// 3000. Chosen, not measured.
const NEAR: i16 = 1000;

impl Reorder {
    /// The longest time that a packet waits for those before it. Chosen, not measured.
    pub const PATIENCE: Duration = Duration::from_millis(50);
    /// Most packets that wait. Chosen, not measured.
    pub const MAX_WAITING: usize = 128;

    /// Takes what came at `now`. A packet too short for a sequence number is passed on as it is.
    pub fn push(&mut self, packet: Vec<u8>, now: Timestamp) {
        let Some(&[high, low]) = packet.get(2..4) else {
            self.ready.push_back(packet);
            return;
        };
        let number = u16::from_be_bytes([high, low]);
        match self.ahead(number) {
            0 => self.take(number, packet),
            1..=NEAR => self.wait(Waiting { number, since: now, packet }),
            // Too late.
            behind if behind >= -NEAR => self.ready.push_back(packet),
            _ => {
                self.ready.extend(self.waiting.drain(..).map(|waiting| waiting.packet));
                self.take(number, packet);
            }
        }
    }

    /// The next packet, if those before it have come or are given up at `now`.
    pub fn pop(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if self.ready.is_empty() && self.deadline().is_some_and(|deadline| deadline <= now) {
            self.give_up();
        }
        self.ready.pop_front()
    }

    /// When what is missing is given up, if anything waits for it.
    pub fn deadline(&self) -> Option<Timestamp> {
        Some(self.waiting.iter().map(|waiting| waiting.since).min()? + Self::PATIENCE)
    }

    fn ahead(&self, number: u16) -> i16 {
        number.wrapping_sub(self.next.unwrap_or(number)).cast_signed()
    }

    /// Takes the next packet, and the waiting ones that follow it without a gap.
    fn take(&mut self, number: u16, packet: Vec<u8>) {
        self.ready.push_back(packet);
        self.next = Some(number.wrapping_add(1));
        while self.waiting.front().is_some_and(|first| self.next == Some(first.number)) {
            let Some(follows) = self.waiting.pop_front() else { return };
            self.next = Some(follows.number.wrapping_add(1));
            self.ready.push_back(follows.packet);
        }
    }

    fn wait(&mut self, arrived: Waiting) {
        let ahead = self.ahead(arrived.number);
        let place = self.waiting.partition_point(|waiting| self.ahead(waiting.number) < ahead);
        if self.waiting.get(place).is_some_and(|waiting| waiting.number == arrived.number) {
            return;
        }
        self.waiting.insert(place, arrived);
        if self.waiting.len() > Self::MAX_WAITING {
            self.give_up();
        }
    }

    /// Goes on with the first that waits.
    fn give_up(&mut self) {
        if let Some(first) = self.waiting.pop_front() {
            self.take(first.number, first.packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u16) -> Vec<u8> {
        let [high, low] = number.to_be_bytes();
        vec![0x80, 96, high, low, 0]
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn numbers(order: &mut Reorder, now: Timestamp) -> Vec<u16> {
        let packets = std::iter::from_fn(|| order.pop(now));
        packets.map(|packet| u16::from_be_bytes([packet[2], packet[3]])).collect()
    }

    #[test]
    fn an_overtaken_packet_is_waited_for() {
        let mut order = Reorder::default();
        for number in [65_534, 0, 1, 1, 65_535] {
            order.push(packet(number), at(0));
        }
        assert_eq!(numbers(&mut order, at(0)), [65_534, 65_535, 0, 1]);
        assert_eq!(order.deadline(), None);
    }

    #[test]
    fn a_lost_packet_is_given_up_and_a_late_one_goes_on() {
        let mut order = Reorder::default();
        for (number, millis) in [(5, 0), (7, 10), (9, 30)] {
            order.push(packet(number), at(millis));
        }
        assert_eq!(numbers(&mut order, at(59)), [5]);
        assert_eq!(order.deadline(), Some(at(60)));
        assert_eq!(numbers(&mut order, at(60)), [7]);
        order.push(packet(6), at(61));
        assert_eq!(numbers(&mut order, at(61)), [6]);
        assert_eq!(numbers(&mut order, at(80)), [9]);
    }

    #[test]
    fn the_number_of_waiting_packets_is_bounded() {
        let mut order = Reorder::default();
        order.push(packet(0), at(0));
        for number in 2..=Reorder::MAX_WAITING as u16 + 2 {
            order.push(packet(number), at(0));
        }
        assert_eq!(numbers(&mut order, at(0)).len(), 2 + Reorder::MAX_WAITING);
    }

    #[test]
    fn a_source_that_begins_anew_is_followed() {
        let mut order = Reorder::default();
        for number in [100, 102, 40_000, 40_001] {
            order.push(packet(number), at(0));
        }
        assert_eq!(numbers(&mut order, at(0)), [100, 102, 40_000, 40_001]);
    }

    /// Whatever comes: nothing but what came twice is kept back for longer than it may be.
    #[test]
    fn any_packets() {
        bolero::check!().with_type::<Vec<(Vec<u8>, u8)>>().for_each(|packets| {
            let mut order = Reorder::default();
            let mut now = Timestamp::ZERO;
            let (mut came, mut went) = (packets.len(), 0);
            for (packet, millis) in packets {
                now += Duration::from_millis(u64::from(*millis));
                let before = order.waiting.len() + order.ready.len();
                order.push(packet.clone(), now);
                came -= usize::from(order.waiting.len() + order.ready.len() == before);
                went += std::iter::from_fn(|| order.pop(now)).count();
                assert!(order.deadline().is_none_or(|deadline| deadline > now));
                assert!(order.waiting.len() <= Reorder::MAX_WAITING);
            }
            went += std::iter::from_fn(|| order.pop(now + Reorder::PATIENCE)).count();
            assert_eq!((came, order.deadline()), (went, None));
        });
    }
}
