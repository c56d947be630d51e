//! A path that carries nothing for a while.

use super::*;

const EVERY: Duration = Duration::from_millis(20);
const LIFETIME: Duration = Duration::from_millis(100);

/// A connection over which nothing goes from 1 s on for `length`.
fn interrupted(length: Duration) -> Pair {
    let link = Config::builder()
        .rate(Rate::from_bits_per_sec(10_000_000))
        .delay(Duration::from_millis(20))
        .outage(Duration::from_secs(1), length)
        .build()
        .expect("a link");
    let config = ConnectionConfig { fec: false, ..ConnectionConfig::default() };
    let mut pair = Pair::with(link, [config.clone(), config], Qos::default());
    pair.ends[0].connection.set_policy(Box::new(freshwire_choice::expiring()));
    pair
}

/// Records come at their pace for `time`; the most that were queued at once.
fn offer(pair: &mut Pair, first: u64, time: Duration) -> (u64, usize) {
    let (mut seq, mut most) = (first, 0);
    let end = pair.now + time;
    while pair.now < end {
        pair.push(0, record(seq, pair.now, Some(LIFETIME)), payload(seq, 500));
        seq += 1;
        pair.run_for(EVERY);
        most = most.max(pair.ends[0].queue.len());
    }
    (seq, most)
}

#[test]
fn messages_that_expire_in_an_outage_are_dropped_at_once() {
    let mut pair = interrupted(Duration::from_secs(5));
    let (next, most) = offer(&mut pair, 0, Duration::from_secs(6));
    assert!(most <= 2 * (LIFETIME.as_nanos() / EVERY.as_nanos()) as usize, "{most} records are queued");
    let sent = pair.ends[0].connection.stats().packets_sent;
    let (end, _) = offer(&mut pair, next, Duration::from_secs(1));
    assert!(pair.ends[0].connection.stats().packets_sent > sent + 40, "it goes on");
    pair.run_for(Duration::from_secs(1));
    let mut reports = 0;
    while let Some(missing) = pair.ends[1].connection.poll_missing() {
        reports += match missing {
            Missing::Committed { .. } => 1,
            Missing::NeverCommitted { count, .. } => count,
            Missing::OfGroup { .. } => panic!("there is no group"),
        };
    }
    assert_eq!(pair.ends[1].received.len() as u64 + reports, end, "the receiver knows of all");
}
