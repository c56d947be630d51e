//! Changes of the quality of service while messages are under way, and at both ends at once.

use std::time::Duration;

use super::super::Event;
use super::lossy;
use super::pair::{Pair, payload, record};
use crate::wire::Qos;

fn pair(loss: f64, seed: u64) -> Pair {
    Pair::new(lossy(10_000, 20, loss, seed))
}

fn is_established(pair: &Pair) -> bool {
    pair.ends.iter().all(|end| end.events.iter().all(|event| !matches!(event, Event::Closed(_))))
}

fn agree(pair: &Pair) -> bool {
    let [near, far] = &pair.ends;
    near.connection.qos().mirrored() == *far.connection.qos()
}

//= spec/a1.md A1-FLOW-3
#[test]
fn messages_in_progress_arrive_although_the_limit_shrinks() {
    for seed in 0..50 {
        let mut pair = pair(0.2, seed);
        for seq in 0..8 {
            for end in 0..2 {
                pair.push(end, record(seq, pair.now, None), payload(seq, 100_000));
            }
        }
        pair.run_for(Duration::from_millis(100));
        let taken: Vec<usize> = pair.ends.iter().map(|end| 8 - end.queue.len()).collect();
        let small = Qos { max_send_message: 1000, max_receive_message: 1000, ..Qos::default() };
        pair.ends[usize::from(seed % 2 == 0)].connection.set_qos(small).expect("within the maximum");
        pair.run_for(Duration::from_secs(20));
        assert!(is_established(&pair), "seed {seed}");
        assert!(agree(&pair) && *pair.ends[0].connection.qos() == small, "seed {seed}");
        for (end, taken) in taken.into_iter().enumerate() {
            assert!(taken > 0 && pair.ends[1 - end].received.len() >= taken, "seed {seed}");
        }
    }
}

//= spec/a1.md A1-FLOW-2
#[test]
fn a_smaller_window_holds_once_granted_credit_is_consumed() {
    let mut pair = pair(0.0, 1);
    let fewer = Qos { outstanding: 4, ..Qos::default() };
    pair.ends[1].connection.set_qos(fewer).expect("within the maximum");
    pair.run_for(Duration::from_secs(1));
    for seq in 0..64 {
        pair.push(0, record(seq, pair.now, None), payload(seq, 100));
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[1].received.len(), 64);
    pair.consume(1, false);
    for seq in 64..128 {
        pair.push(0, record(seq, pair.now, None), payload(seq, 100));
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[0].queue.len(), 60, "four are outstanding");
}

/// What an end may ask for: everything differs from one to the next.
fn wish(step: u64) -> Qos {
    Qos {
        priority: 0,
        outstanding: 1 + (step % 64) as u32,
        max_send_message: 2000 + step as u32,
        max_receive_message: 3000 + step as u32,
        ..Qos::default()
    }
}

//= spec/a1.md A1-QOS-6
#[test]
fn changes_of_both_ends_that_cross_each_other_leave_them_agreed() {
    let mut crossed = 0;
    for seed in 0..200 {
        let mut pair = pair(if seed % 2 == 0 { 0.0 } else { 0.3 }, seed);
        for step in 0..20 {
            for end in 0..2 {
                // Refused while the end's last one is pending.
                let _ = pair.ends[end].connection.set_qos(wish(seed + 40 * step + end as u64));
            }
            crossed += u32::from(pair.ends.iter().all(|end| end.connection.is_qos_pending()));
            pair.run_for(Duration::from_millis(7 * (seed % 13) + 5 * step));
        }
        // A silence of 30 s would end it.
        pair.run_for(Duration::from_secs(25));
        assert!(is_established(&pair), "seed {seed}");
        assert!(pair.ends.iter().all(|end| !end.connection.is_qos_pending()), "seed {seed}");
        assert!(agree(&pair), "seed {seed}: {:?}", pair.ends.each_ref().map(|end| *end.connection.qos()));
    }
    assert!(crossed > 1000, "{crossed}");
}
