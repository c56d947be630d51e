use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

/// What the carrier knows of its path at the instant of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LinkView {
    /// Delivery rate as seen in the acknowledgements; `None` while unknown.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_units::rate"))]
    pub rate: Option<Rate>,
    /// Smoothed round-trip time.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_units::duration"))]
    pub rtt: Duration,
    /// Smallest round-trip time seen: the path without queues.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_units::duration"))]
    pub min_rtt: Duration,
    /// Bytes on the wire and not acknowledged.
    pub in_flight: u64,
    /// Bytes committed and not yet on the wire: the horizon as it is now.
    pub unsent: u64,
    /// Share of the bytes sent that were retransmissions, 0 to 1.
    pub loss: f64,
}

impl LinkView {
    /// When the last of `len` more bytes would arrive if they were committed now; `None` while the rate is unknown.
    ///
    /// Two bounds hold, and the later one counts. If the pipe is full, the acknowledgement of the last byte comes once
    /// everything before it has been acknowledged at the delivery rate, and the byte itself was there half a round
    /// trip before. If the pipe is not full, the bytes leave one after another at that rate and then travel half a
    /// round trip; without this bound an empty pipe would be credited with time that it cannot use. The smallest
    /// round-trip time is taken because queueing is already counted in `in_flight`.
    //= spec/choice.md 8, 9
    pub fn arrival(&self, now: Timestamp, len: u64) -> Option<Timestamp> {
        let rate = self.rate?;
        let one_way = self.min_rtt / 2;
        let committed = self.unsent.saturating_add(len);
        let acknowledged = now + rate.time_for(self.in_flight.saturating_add(committed));
        let serialised = now + rate.time_for(committed) + one_way;
        Some((acknowledged - one_way).max(serialised))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(in_flight: u64, unsent: u64) -> LinkView {
        LinkView {
            rate: Some(Rate::from_bytes_per_sec(1000)),
            rtt: Duration::from_millis(300),
            min_rtt: Duration::from_millis(200),
            in_flight,
            unsent,
            loss: 0.0,
        }
    }

    #[test]
    fn an_empty_pipe_serialises_and_travels() {
        assert_eq!(link(0, 500).arrival(Timestamp::ZERO, 1000), Some(Timestamp::from_nanos(1_600_000_000)));
    }

    #[test]
    fn a_full_pipe_follows_its_acknowledgements() {
        assert_eq!(link(2000, 0).arrival(Timestamp::ZERO, 1000), Some(Timestamp::from_nanos(2_900_000_000)));
    }

    #[test]
    fn no_rate_no_prediction_and_no_panic_at_the_ends() {
        assert_eq!(LinkView::default().arrival(Timestamp::ZERO, 1), None);
        let stalled = LinkView { rate: Some(Rate::default()), ..link(u64::MAX, u64::MAX) };
        assert_eq!(stalled.arrival(Timestamp::MAX, u64::MAX), Some(Timestamp::MAX));
    }
}
