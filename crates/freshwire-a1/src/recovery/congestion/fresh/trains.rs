//! What a bottleneck carries for all, from packets that left back to back.

use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

use super::super::Ack;

/// Packet trains: packets that leave at once stay together in the bottleneck's queue, whoever else is in it, and come out of it as
/// fast as it carries them (Dovrolis and others, "Packet-dispersion techniques and a capacity-estimation methodology", 2004). Each of
/// them is acknowledged with the time at which it came.
///
/// A path that delivers in bunches, as some wireless ones do, looks faster than it is.
#[derive(Debug, Default)]
pub(super) struct Trains {
    under_way: Option<Train>,
    /// Bits per second, the oldest first, and their median.
    samples: Vec<u64>,
    capacity: Option<Rate>,
    is_measuring: bool,
    /// Rounds since it was measured last.
    rounds: u32,
}

#[derive(Debug)]
struct Train {
    sent_at: Timestamp,
    /// When the first packet came, and the last, on the receiver's clock.
    first_us: u32,
    last_us: u32,
    packets: u32,
    /// Of all packets but the first.
    bytes: u64,
}

impl Trains {
    /// `None` before there are some samples.
    pub(super) fn capacity(&self) -> Option<Rate> {
        self.capacity
    }

    pub(super) fn is_measuring(&self) -> bool {
        self.is_measuring
    }

    pub(super) fn measure(&mut self) {
        self.is_measuring = true;
        self.rounds = 0;
    }

    pub(super) fn pause(&mut self) {
        self.is_measuring = false;
    }

    /// One more round in which it has to be known: it is measured from time to time, as trains fill a queue more than single packets.
    pub(super) fn on_round(&mut self) {
        self.rounds += 1;
        if self.capacity.is_none() || self.rounds >= PAUSE_ROUNDS {
            self.measure();
        } else {
            self.pause();
        }
    }

    //= spec/a1.md A1-CC-2
    pub(super) fn on_ack(&mut self, ack: &Ack<'_>) {
        let Some(receiver_us) = ack.receiver_us else { return };
        if let Some(train) = &mut self.under_way
            && ack.newest_sent_at.saturating_since(train.sent_at) <= TOGETHER
        {
            train.last_us = receiver_us;
            train.bytes += ack.bytes;
            train.packets += 1;
            return;
        }
        let began = Train {
            sent_at: ack.newest_sent_at,
            first_us: receiver_us,
            last_us: receiver_us,
            packets: 1,
            bytes: 0,
        };
        if let Some(sample) = self.under_way.replace(began).and_then(|ended| ended.rate()) {
            self.add(sample);
        }
    }

    fn add(&mut self, sample: u64) {
        if self.samples.len() == SAMPLES {
            self.samples.remove(0);
        }
        self.samples.push(sample);
        if self.samples.len() >= MIN_SAMPLES {
            let mut sorted = self.samples.clone();
            sorted.sort_unstable();
            self.capacity = sorted.get(sorted.len() / 2).map(|&bits| Rate::from_bits_per_sec(bits));
        }
    }
}

impl Train {
    fn rate(&self) -> Option<u64> {
        let micros = u64::from(self.last_us.wrapping_sub(self.first_us));
        if self.packets < MIN_PACKETS {
            return None;
        }
        (self.bytes * 8_000_000).checked_div(micros)
    }
}

/// Bytes of a train: some packets, but not much of what the window or the queue holds.
pub(super) fn length(window: u64, max_burst: u64, mtu: u64) -> u64 {
    let packets = u64::from(MIN_PACKETS)..=16;
    (window / 4).min(max_burst).clamp(packets.start() * mtu, packets.end() * mtu).min(window)
}

/// A batch leaves in less.
const TOGETHER: Duration = Duration::from_micros(50);
const MIN_PACKETS: u32 = 2;
const MIN_SAMPLES: usize = 4;
const SAMPLES: usize = 9;
const PAUSE_ROUNDS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::super::super::super::Rtt;
    use super::*;

    fn ack(trains: &mut Trains, sent_ms: u64, receiver_us: u32) {
        let rtt = Rtt::new(Duration::from_millis(100));
        let at = Timestamp::from_nanos(sent_ms * 1_000_000);
        trains.on_ack(&Ack {
            now: at,
            bytes: 1250,
            in_flight_before: 0,
            in_flight: 0,
            newest_sent_at: at,
            marked: 0,
            sample: None,
            rate: None,
            receiver_us: Some(receiver_us),
            queue: None,
            rtt: &rtt,
        });
    }

    /// Trains of four packets that come one after the other in these times.
    fn trains(spacings_us: &[u32], origin_us: u32) -> Trains {
        let mut trains = Trains::default();
        for (at, spacing) in (0..).zip(spacings_us) {
            for packet in 0..4 {
                let came = origin_us.wrapping_add(at * 100_000 + packet * spacing);
                ack(&mut trains, u64::from(at) * 100, came);
            }
        }
        ack(&mut trains, 100_000, 0);
        trains
    }

    #[test]
    fn packets_come_out_of_a_bottleneck_as_fast_as_it_carries_them() {
        let carried = trains(&[1000; 4], 0).capacity().unwrap();
        assert_eq!(carried, Rate::from_bits_per_sec(10_000_000));
        assert_eq!(trains(&[1000; 3], 0).capacity(), None, "too few");
    }

    #[test]
    fn a_few_strange_trains_do_not_matter() {
        let carried = trains(&[1000, 1, 1000, 5000, 1000, 0, 1000, 1000, 20], 0).capacity().unwrap();
        assert_eq!(carried, Rate::from_bits_per_sec(10_000_000));
    }

    #[test]
    fn the_receivers_clock_wraps() {
        let carried = trains(&[1000; 5], u32::MAX - 201_500).capacity().unwrap();
        assert_eq!(carried, Rate::from_bits_per_sec(10_000_000));
    }

    #[test]
    fn packets_that_left_apart_or_came_at_once_say_nothing() {
        let mut single = Trains::default();
        for at in 0..50 {
            ack(&mut single, u64::from(at), at * 1000);
        }
        assert_eq!(single.capacity(), None);
        assert_eq!(trains(&[0; 9], 0).capacity(), None);
    }

    #[test]
    fn a_train_is_neither_longer_than_the_window_nor_much_of_the_queue() {
        assert_eq!(length(100_000, u64::MAX, 1000), 16_000);
        assert_eq!(length(100_000, 5000, 1000), 5000);
        assert_eq!(length(20_000, u64::MAX, 1000), 5000);
        assert_eq!(length(3000, 100, 1000), 2000);
        assert_eq!(length(1000, u64::MAX, 1000), 1000);
    }
}
