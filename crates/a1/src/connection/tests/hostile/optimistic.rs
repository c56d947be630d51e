//! A receiver that acknowledges what has not come, so that it is sent more than the path carries.

use std::time::Duration;

use super::{Ack, Closed, Frame, Liar, Ranges, payload, record};
use crate::ranges::RangeSet;

fn acknowledge(liar: &mut Liar, heard: &RangeSet) {
    let ranges = Ranges::newest(heard);
    liar.tell(&Frame::Ack(Ack { ranges, delay_us: 0, at_us: 0, ce: 0 }));
}

/// The number of packets that are sent until the victim ends the connection. From the `honest`th on, missing
/// packets are acknowledged as well: all of them, or one after the other.
fn packets_until_found_out(honest: u64, one_by_one: bool, seed: u8) -> u64 {
    let mut liar = Liar::new();
    let connection = &mut liar.victim().connection;
    connection.skips = crate::connection::skips::Skips::new([seed; 32]);
    liar.tell(&Frame::Credit { messages: 1 << 40, bytes: 1 << 40 });
    let mut acknowledged = 0;
    for seq in 0..40_000 {
        let record = record(seq, liar.pair.now, None);
        liar.pair.push(0, record, payload(seq, 1000));
        liar.listen(Duration::from_micros(500));
        let next = liar.heard.iter().next_back().map_or(0, |newest| newest.end);
        if next <= honest {
            let heard = liar.heard.clone();
            acknowledge(&mut liar, &heard);
            liar.heard.remove(&(0..next.saturating_sub(100)));
        } else {
            let step = if one_by_one { 1 } else { next - acknowledged };
            for first in (acknowledged..next).step_by(step.max(1) as usize) {
                let mut heard = RangeSet::default();
                heard.insert(first..first + step);
                acknowledge(&mut liar, &heard);
            }
        }
        acknowledged = next;
        match liar.closed() {
            None => {}
            Some(Closed::Violation(what)) => {
                assert!(next > honest && what.to_string().contains("was never sent"), "{what}");
                return next - honest;
            }
            Some(other) => panic!("{other}"),
        }
    }
    panic!("it is not found out");
}

#[test]
fn a_receiver_that_acknowledges_what_has_not_come_is_found_out() {
    for seed in 0..8 {
        for one_by_one in [false, true] {
            let at_first = packets_until_found_out(0, one_by_one, seed);
            assert!(at_first <= 70, "{at_first} packets");
            let later = packets_until_found_out(20_000, one_by_one, seed);
            assert!(later <= 2100, "{later} packets");
        }
    }
}
