//! What each field of the quality of service does to what is sent. The checksum and the priority are the endpoint's tests.

use std::time::Duration;

use freshwire_choice::{Outcome, Reason};
use freshwire_record::Rate;

use super::super::{Event, Message, Missing};
use super::pair::{Pair, payload, record};
use super::{check_payloads, lossy};
use crate::config::ConnectionConfig;
use crate::wire::Qos;

/// 50,000 bytes a second.
const AVERAGE: Option<Rate> = Some(Rate::from_bits_per_sec(400_000));

fn quick(qos: Qos) -> Pair {
    let configs = [ConnectionConfig::default(), ConnectionConfig::default()];
    Pair::with(lossy(100_000, 5, 0.0, 1), configs, qos)
}

/// An end asks for something else, and the other one agrees.
fn change(pair: &mut Pair, end: usize, change: impl FnOnce(&mut Qos)) {
    let mut qos = *pair.ends[end].connection.qos();
    change(&mut qos);
    pair.ends[end].connection.set_qos(qos).expect("within the maximum");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(*pair.ends[end].connection.qos(), qos);
    assert_eq!(*pair.ends[1 - end].connection.qos(), qos.mirrored());
}

/// Pushes `messages` of 1000 bytes at `from`. Returns how many bytes of them are at the other end after
/// `time`.
fn arrive(pair: &mut Pair, from: usize, messages: u64, time: Duration) -> usize {
    let before = pair.ends[1 - from].received.len();
    for seq in 0..messages {
        pair.push(from, record(seq, pair.now, None), payload(seq, 1000));
    }
    pair.run_for(time);
    pair.ends[1 - from].received[before..].iter().map(|(_, message)| message.data.len()).sum()
}

fn at_once(pair: &mut Pair, from: usize) -> usize {
    arrive(pair, from, 60, Duration::from_millis(50))
}

//= spec/a1.md A1-QOS-8
#[test]
fn bytes_sent_without_a_limit_are_no_debt_to_a_later_one() {
    let mut pair = quick(Qos { send_burst: 10_000, ..Qos::default() });
    assert_eq!(arrive(&mut pair, 0, 10_000, Duration::from_secs(3)), 10_000_000);
    change(&mut pair, 0, |qos| qos.send_average = AVERAGE);
    let bytes = arrive(&mut pair, 0, 300, Duration::from_secs(2));
    // The burst, and 50,000 bytes a second, with heads.
    assert!((95_000..=110_000).contains(&bytes), "{bytes}");
}

//= spec/a1.md A1-MSG-3
#[test]
fn without_retransmission_nothing_that_is_lost_is_sent_again() {
    for agreed in [true, false] {
        let configs = [ConnectionConfig::default(), ConnectionConfig::default()];
        let mut pair = Pair::with(lossy(10_000, 20, 0.1, 1), configs, Qos::default());
        pair.run_for(Duration::from_secs(1));
        // The receiver does not want repairs: it need not be the sender that asks.
        change(&mut pair, 1, |qos| qos.retransmission = agreed);
        for seq in 0..200 {
            pair.push(0, record(seq, pair.now, None), payload(seq, 3000));
            pair.run_for(Duration::from_millis(10));
        }
        pair.run_for(Duration::from_secs(2));
        check_payloads(&pair, 1);
        let given_up = |fate: &Outcome| matches!(fate, Outcome::Dropped(Reason::Abandoned));
        let abandoned = pair.ends[0].fates.iter().filter(|(_, fate)| given_up(fate)).count();
        let mut missing = 0;
        while let Some(report) = pair.ends[1].connection.poll_missing() {
            assert!(matches!(report, Missing::Committed { reason: Reason::Abandoned, .. }), "{report:?}");
            missing += 1;
        }
        let stats = pair.ends[0].connection.stats();
        assert_eq!(pair.ends[1].received.len() + abandoned, 200);
        assert_eq!((missing, stats.payload_resent > 0), (abandoned, agreed), "{stats:?}");
        // Three packets each, of which one in ten is lost.
        assert_eq!((30..80).contains(&abandoned), !agreed, "{abandoned} of 200 are given up");
        assert!(pair.ends[0].connection.is_settled());
    }
}

//= spec/a1.md A1-QOS-1, A1-QOS-4
#[test]
fn the_average_and_the_burst_of_the_receiver_are_the_senders() {
    let receives = Qos { receive_average: AVERAGE, receive_burst: 10_000, ..Qos::default() };
    let mut pair = quick(receives.mirrored());
    assert_eq!(*pair.ends[1].connection.qos(), receives);
    pair.run_for(Duration::from_secs(1));
    let burst = at_once(&mut pair, 0);
    assert!((9_000..=14_000).contains(&burst), "{burst} bytes at once");
    assert!(pair.ends[0].connection.is_rate_exceeded());
    let rest = arrive(&mut pair, 0, 200, Duration::from_secs(2));
    assert!((85_000..=105_000).contains(&rest), "{rest} bytes in 2 s at 50,000 a second");
    let other_way = at_once(&mut pair, 1);
    assert_eq!(other_way, 60_000, "what it receives is not what it sends");
}

//= spec/a1.md A1-QOS-3, A1-QOS-4
#[test]
fn a_receiver_that_asks_for_less_throttles_the_sender() {
    let mut pair = quick(Qos::default());
    change(&mut pair, 1, |qos| qos.receive_average = AVERAGE);
    let second = Duration::from_secs(1);
    let all = arrive(&mut pair, 0, 200, second);
    assert!((100_000..=125_000).contains(&all), "{all} bytes: a burst of 64 KiB and 50,000");
    pair.run_for(second * 10);
    change(&mut pair, 1, |qos| qos.receive_burst = 10_000);
    let burst = at_once(&mut pair, 0);
    assert!((9_000..=14_000).contains(&burst), "{burst} bytes at once");
    pair.run_for(second * 10);
    change(&mut pair, 1, |qos| qos.receive_average = None);
    assert_eq!(arrive(&mut pair, 0, 200, second), 200_000, "no limit any more");
}

//= spec/a1.md A1-QOS-4
#[test]
fn the_burst_of_the_sender_is_what_goes_at_once() {
    for (send_burst, least, most) in [(1500, 1000, 5_500), (10_000, 9_000, 14_000), (40_000, 36_000, 44_000)]
    {
        let mut pair = quick(Qos { send_average: AVERAGE, ..Qos::default() });
        change(&mut pair, 0, |qos| qos.send_burst = send_burst);
        let burst = at_once(&mut pair, 0);
        assert!((least..=most).contains(&burst), "{burst} bytes at once, {send_burst} agreed");
        pair.run_for(Duration::from_secs(5));
        let again = at_once(&mut pair, 0);
        assert!((least..=most).contains(&again), "{again} bytes at once after a pause, {send_burst} agreed");
    }
}

#[test]
fn an_end_sends_no_message_that_is_larger_than_either_allows() {
    for end in [0, 1] {
        let mut pair = quick(Qos::default());
        change(&mut pair, end, |qos| match end {
            0 => qos.max_send_message = 2000,
            _ => qos.max_receive_message = 2000,
        });
        for (seq, len) in [2000, 2001, 50_000, 1999].into_iter().enumerate() {
            for from in 0..2 {
                pair.push(from, record(seq as u64, pair.now, None), payload(seq as u64, len));
            }
        }
        pair.run_for(Duration::from_secs(1));
        let lens = |end: usize| -> Vec<usize> {
            pair.ends[end].received.iter().map(|(_, message)| message.data.len()).collect()
        };
        assert_eq!(lens(1), [2000, 1999], "end {end} has asked");
        assert_eq!(lens(0), [2000, 2001, 50_000, 1999], "the other direction is as it was");
        let missing = pair.ends[1].connection.poll_missing();
        assert_eq!(missing, Some(Missing::NeverCommitted { first: 1, count: 2, reason: Reason::Invalid }));
        assert!(pair.ends.iter().all(|end| !end.events.iter().any(|e| matches!(e, Event::Closed(_)))));
    }
}

//= spec/a1.md A1-FLOW-1, A1-FLOW-2
#[test]
fn as_many_messages_are_outstanding_as_the_receiver_allows() {
    let maximum = Qos { outstanding: 16, ..Qos::default() };
    for outstanding in [1, 4, 16] {
        let mut pair = quick(Qos { outstanding, ..maximum });
        pair.consume(1, false);
        arrive(&mut pair, 0, 40, Duration::from_secs(1));
        assert_eq!(pair.ends[0].queue.len(), 40 - outstanding as usize);
        assert!(pair.ends[0].connection.is_window_full());
        pair.consume(1, true);
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.ends[1].received.len(), 40);
    }
}

//= spec/a1.md A1-FLOW-5
#[test]
fn a_slow_application_gets_data_as_fresh_as_its_pace() {
    let mut pair = quick(Qos::default());
    pair.ends[0].connection.set_policy(Box::new(freshwire_choice::expiring()));
    pair.consume(1, false);
    let lifetime = Some(Duration::from_millis(100));
    let mut taken = Vec::new();
    for step in 0..400 {
        for part in 0..5 {
            let seq = 5 * step + part;
            pair.push(0, record(seq, pair.now, lifetime), payload(seq, 1000));
            pair.run_for(Duration::from_millis(10));
        }
        // Twenty a second of a hundred; from the tenth second on, all.
        let most = if step < 200 { 1 } else { usize::MAX };
        let now = pair.now;
        taken.extend(std::iter::from_fn(|| pair.ends[1].connection.recv(now)).take(most));
    }
    let oldest = |part: &[Message]| part.iter().map(|message| message.age).max();
    let oldest = [&taken[100..200], &taken[300..]].map(oldest);
    let expected = [300, 60].map(|ms| Some(Duration::from_millis(ms)));
    assert!(
        oldest.iter().zip(&expected).all(|(oldest, most)| oldest < most),
        "{oldest:?}: four messages wait, at 50 ms each; then none"
    );
    assert!(taken.len() >= 1190, "once it is fast it gets all: {}", taken.len());
}
