use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

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
    /// When the latest acknowledgement came; `None` where the carrier does not know.
    #[cfg_attr(feature = "serde", serde(default))]
    pub acked_at: Option<Timestamp>,
    /// The average rate that was agreed on, which is known rather than measured; `None` if there is no such limit.
    #[cfg_attr(feature = "serde", serde(default, with = "crate::serde_units::rate"))]
    pub agreed: Option<Rate>,
    /// Bytes that may go at once before the agreed rate counts; below zero, bytes that have to be earned before the next one goes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub credit: i64,
}

impl LinkView {
    /// When the last of `len` more bytes would arrive if they were committed now; `None` while no rate is known.
    ///
    /// Two bounds hold, and the later one counts. If the pipe is full, the last byte is acknowledged once
    /// everything before it has been acknowledged at the delivery rate. The byte itself arrived half a round
    /// trip before. If the pipe is not full, the bytes leave one after another at that rate and then travel
    /// half a round trip. Without this bound an empty pipe would be credited with time that it cannot use.
    /// The smallest round-trip time is taken because queueing is already counted in `in_flight`. Where a rate
    /// was agreed on, the bytes cannot leave before they are earned.
    //= spec/choice.md 8, 9
    pub fn arrival(&self, now: Timestamp, len: u64) -> Option<Timestamp> {
        let one_way = self.min_rtt / 2;
        let committed = self.unsent.saturating_add(len);
        let measured = self.rate.map(|rate| {
            let acknowledged = now + rate.time_for(self.in_flight.saturating_add(committed));
            let serialised = now + rate.time_for(committed) + one_way;
            (acknowledged - one_way).max(serialised)
        });
        let earned = self.agreed.map(|rate| {
            let missing = i128::from(committed) - i128::from(self.credit);
            now + rate.time_for(u64::try_from(missing.max(0)).unwrap_or(u64::MAX)) + one_way
        });
        measured.max(earned)
    }

    /// The rate at which much goes: the path's or the one that was agreed on, whichever is lower; `None` while neither is known.
    pub fn sustained(&self) -> Option<Rate> {
        self.rate.into_iter().chain(self.agreed).min()
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
            ..LinkView::default()
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
    fn an_agreed_rate_holds_back_what_is_beyond_its_credit() {
        let agreed = |rate, credit| LinkView {
            agreed: Some(Rate::from_bytes_per_sec(rate)),
            credit,
            rate: None,
            ..link(0, 500)
        };
        let ms = |ms: u64| Some(Timestamp::from_nanos(ms * 1_000_000));
        assert_eq!(agreed(100, 2000).arrival(Timestamp::ZERO, 1000), ms(100));
        assert_eq!(agreed(100, 1000).arrival(Timestamp::ZERO, 1000), ms(5100));
        assert_eq!(agreed(100, -300).arrival(Timestamp::ZERO, 1000), ms(18_100));
        let both = LinkView { rate: link(0, 0).rate, ..agreed(100, 2000) };
        assert_eq!(both.arrival(Timestamp::ZERO, 1000), ms(1600), "the path takes its time, too");
        assert_eq!(both.sustained(), Some(Rate::from_bytes_per_sec(100)));
        assert_eq!(agreed(0, i64::MIN).arrival(Timestamp::MAX, u64::MAX), Some(Timestamp::MAX));
    }

    #[test]
    fn no_rate_no_prediction_and_no_panic_at_the_ends() {
        assert_eq!(LinkView::default().arrival(Timestamp::ZERO, 1), None);
        let stalled = LinkView { rate: Some(Rate::default()), ..link(u64::MAX, u64::MAX) };
        assert_eq!(stalled.arrival(Timestamp::MAX, u64::MAX), Some(Timestamp::MAX));
    }
}
