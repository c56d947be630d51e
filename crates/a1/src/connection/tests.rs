pub(crate) mod capture;
mod changes;
pub(crate) mod dissector;
mod hostile;
mod layers;
mod model;
mod outage;
pub(crate) mod pair;
mod quality;
mod sharing;

use std::time::Duration;

use freshwire_choice::{Outcome, Record};
use freshwire_link::{Config, Loss};
use freshwire_record::Rate;

use super::*;
use crate::recovery::Sent;
use crate::wire::{BlockHead, is_urgent};
use pair::{Pair, payload, record};

pub(crate) fn lossy(kbit: u64, delay_ms: u64, share: f64, seed: u64) -> Config {
    Config::builder()
        .rate(Rate::from_bits_per_sec(kbit * 1000))
        .delay(Duration::from_millis(delay_ms))
        .loss(if share > 0.0 { Loss::Random { share } } else { Loss::None })
        .seed(seed)
        .build()
        .expect("a link")
}

fn check_payloads(pair: &Pair, end: usize) {
    for (_, message) in &pair.ends[end].received {
        assert_eq!(message.data, payload(message.seq, message.data.len()), "message {}", message.seq);
    }
}

#[test]
fn messages_of_all_sizes_arrive_as_they_were() {
    let mut pair = Pair::new(lossy(100_000, 5, 0.0, 1));
    let sizes = [0, 1, 2, 100, 1199, 1200, 1400, 1472, 16_384, 100_000];
    for (seq, size) in sizes.into_iter().enumerate() {
        pair.push(0, record(seq as u64, pair.now, None), payload(seq as u64, size));
    }
    pair.run_for(Duration::from_secs(1));
    let lens: Vec<_> = pair.ends[1].received.iter().map(|(_, message)| message.data.len()).collect();
    assert_eq!(lens, sizes);
    check_payloads(&pair, 1);
    assert_eq!(pair.ends[0].fates.len(), sizes.len());
    assert!(pair.ends[0].fates.iter().all(|(_, fate)| *fate == Outcome::Acked));
}

#[test]
fn small_similar_messages_cost_little_more_than_their_bytes() {
    for loss in [0.0, 0.1] {
        let mut pair = Pair::new(lossy(10_000, 5, loss, 1));
        pair.run_for(Duration::from_millis(50));
        let before = pair.ends[0].connection.stats();
        for seq in 0..1000 {
            pair.now += Duration::from_nanos(700);
            pair.push(0, record(seq, pair.now, Some(Duration::from_secs(9))), payload(seq, 64));
        }
        pair.run_for(Duration::from_secs(2));
        let after = pair.ends[0].connection.stats();
        assert_eq!(pair.ends[1].received.len(), 1000);
        check_payloads(&pair, 1);
        assert!(pair.ends[1].received.iter().all(|(_, message)| message.refs == [0; 2] && !message.late));
        let payload = after.payload_sent + after.payload_resent;
        let overhead = (after.bytes_sent - before.bytes_sent) as f64 / payload as f64;
        let most = if loss == 0.0 { 1.06 } else { 1.15 };
        assert!(overhead < most, "{overhead} with a loss of {loss}");
    }
}

#[test]
fn a_path_with_too_high_an_estimate_is_not_flooded() {
    // A small packet takes a millisecond, a full one twelve. If the first full ones are lost, the measured
    // time is far too short for the queue that follows.
    for seed in 1..=60 {
        let link = Config::builder()
            .rate(Rate::from_bits_per_sec(1_024_000))
            .loss(Loss::Burst { share: 0.05, mean_packets: 4.0 })
            .seed(seed);
        let mut pair = Pair::new(link.build().expect("a link"));
        pair.run_for(Duration::from_millis(300));
        for seq in 0..8 {
            pair.push(0, record(seq, pair.now, None), payload(seq, 16_384));
        }
        pair.run_for(Duration::from_secs(4));
        let stats = pair.ends[0].connection.stats();
        assert_eq!(pair.ends[1].received.len(), 8, "seed {seed}: {stats:?}");
        check_payloads(&pair, 1);
        assert!(stats.payload_resent < 4 * 16_384, "seed {seed}: {stats:?}");
    }
}

#[test]
fn nothing_reliable_is_lost_whatever_the_link_loses() {
    for seed in 1..=5 {
        for share in [0.05, 0.3] {
            let mut pair = Pair::new(lossy(5_000, 20, share, seed));
            for seq in 0..200 {
                pair.push(0, record(seq, pair.now, None), payload(seq, 3000));
                pair.push(1, record(seq, pair.now, None), payload(seq, 100));
            }
            pair.run_for(Duration::from_secs(60));
            for end in 0..2 {
                let mut seqs: Vec<_> = pair.ends[end].received.iter().map(|(_, m)| m.seq).collect();
                seqs.sort_unstable();
                assert_eq!(seqs, (0..200).collect::<Vec<_>>(), "seed {seed}, loss {share}, end {end}");
                check_payloads(&pair, end);
                assert!(pair.ends[end].connection.is_settled());
            }
        }
    }
}

//= spec/a1.md A1-MSG-5
#[test]
fn numbers_that_are_passed_over_are_no_losses() {
    // So few that the slow start does not fill the queue.
    let qos = Qos { outstanding: 64, ..Qos::default() };
    let configs = [ConnectionConfig::default(), ConnectionConfig::default()];
    let mut pair = Pair::with(lossy(100_000, 5, 0.0, 1), configs, qos);
    for seq in 0..5000 {
        pair.push(0, record(seq, pair.now, None), payload(seq, 1000));
        if seq % 4 == 0 {
            pair.push(1, record(seq, pair.now, None), payload(seq, 100));
        }
        pair.run_for(Duration::from_micros(200));
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!((pair.ends[1].received.len(), pair.ends[0].received.len()), (5000, 1250));
    for end in &pair.ends {
        let stats = end.connection.stats();
        assert!(end.connection.next_number > stats.packets_sent, "some were passed over");
        let lost = (stats.packets_lost, stats.spurious_losses, stats.payload_resent, stats.parity_sent);
        assert_eq!(lost, (0, 0, 0, 0));
        assert_eq!(end.connection.link(pair.now).loss, 0.0);
    }
    // Nor do they delay anything once the window is large enough: the way is 5 ms, and a packet takes a tenth of one.
    let latest = pair.ends[1].received.iter().skip(1000).map(|(_, message)| message.age).max();
    assert!(latest < Some(Duration::from_millis(7)), "{latest:?}");
}

#[test]
fn acknowledgements_reports_and_repairs_are_handled_first() {
    let mut pair = Pair::new(lossy(10_000, 20, 0.1, 1));
    pair.run_for(Duration::from_millis(100));
    pair.log = Some(Vec::new());
    for seq in 0..100 {
        pair.push(0, record(seq, pair.now, None), payload(seq, 3000));
    }
    pair.run_for(Duration::from_secs(2));
    let log = pair.log.take().unwrap_or_default();
    let marked = |port: u16| {
        let from = log.iter().filter(|sent| sent.from.port() == port);
        let (urgent, others): (Vec<_>, Vec<_>) = from.partition(|sent| is_urgent(&sent.bytes));
        (urgent.len(), others.len())
    };
    let (repairs, data) = marked(1);
    assert!((15..120).contains(&repairs) && data >= 200, "{repairs} and {data}");
    let (acknowledgements, others) = marked(2);
    assert!(acknowledgements >= 20 && others <= 2, "{acknowledgements} and {others}");
}

#[test]
fn in_order_a_lost_message_holds_back_those_behind_it() {
    let in_order = ConnectionConfig { in_order: true, ..ConnectionConfig::default() };
    let mut pair = Pair::with(lossy(5_000, 20, 0.1, 3), [in_order.clone(), in_order], Qos::default());
    for seq in 0..300 {
        pair.push(0, record(seq, pair.now, None), payload(seq, 2000));
    }
    pair.run_for(Duration::from_secs(10));
    let seqs: Vec<_> = pair.ends[1].received.iter().map(|(_, m)| m.seq).collect();
    assert_eq!(seqs, (0..300).collect::<Vec<_>>());
}

//= spec/a1.md A1-MSG-3, A1-MSG-4
#[test]
fn a_late_message_is_not_repaired_but_reported() {
    let config = ConnectionConfig { fec: false, ..ConnectionConfig::default() };
    let mut pair = Pair::with(lossy(1_000, 100, 0.2, 4), [config.clone(), config], Qos::default());
    pair.ends[0].connection.set_policy(Box::new(freshwire_choice::deadline(Duration::ZERO)));
    for seq in 0..200 {
        pair.push(0, record(seq, pair.now, Some(Duration::from_millis(250))), payload(seq, 4000));
        pair.run_for(Duration::from_millis(40));
    }
    pair.run_for(Duration::from_secs(2));
    let abandoned = pair.ends[0].fates.iter().filter(|(_, fate)| matches!(fate, Outcome::Dropped(_))).count();
    assert!(abandoned > 10, "{abandoned}");
    let (mut committed, mut never_committed) = (0, 0);
    while let Some(missing) = pair.ends[1].connection.poll_missing() {
        match missing {
            Missing::Committed { .. } => committed += 1,
            Missing::NeverCommitted { count, .. } => never_committed += count,
            Missing::OfGroup { .. } => panic!("there is no group"),
        }
    }
    let received = pair.ends[1].received.len();
    assert_eq!(committed, abandoned);
    assert!(received + abandoned + never_committed as usize <= 200);
    assert!(pair.ends[1].received.iter().all(|(_, m)| m.late == (m.age > Duration::from_millis(250))));
    assert!(pair.ends[0].connection.is_settled());
}

#[test]
fn dropped_messages_are_reported_once_despite_losses() {
    for seed in 0..20 {
        let mut pair = Pair::new(lossy(1_000, 20, 0.3, seed));
        pair.ends[0].connection.set_policy(Box::new(freshwire_choice::expiring()));
        for seq in 0..100 {
            let begin = pair.now - Duration::from_millis(10);
            pair.push(0, record(seq, begin, Some(Duration::from_millis(1))), payload(seq, 100));
            pair.run_for(Duration::from_millis(10));
        }
        pair.run_for(Duration::from_secs(3));
        let connection = &mut pair.ends[1].connection;
        let missing = std::iter::from_fn(|| connection.poll_missing());
        let numbers = missing.flat_map(|missing| match missing {
            Missing::NeverCommitted { first, count, .. } => first..first + count,
            other => panic!("{other:?}"),
        });
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn parity_saves_messages_that_leave_no_time_for_a_repair() {
    let delivered = |fec_layers: u8| {
        let config = ConnectionConfig { fec: fec_layers > 0, fec_layers, ..ConnectionConfig::default() };
        let qos = Qos::default();
        let mut pair = Pair::with(lossy(10_000, 100, 0.05, 4), [config.clone(), config], qos);
        pair.ends[0].connection.set_policy(Box::new(freshwire_choice::deadline(Duration::ZERO)));
        for seq in 0..200 {
            pair.push(0, record(seq, pair.now, Some(Duration::from_millis(250))), payload(seq, 9000));
            pair.run_for(Duration::from_millis(40));
        }
        pair.run_for(Duration::from_secs(1));
        check_payloads(&pair, 1);
        let on_time = pair.ends[1].received.iter().filter(|(_, message)| !message.late).count();
        (
            on_time,
            pair.ends[1].connection.stats().messages_made_whole,
            pair.ends[0].connection.stats().parity_sent,
        )
    };
    let (without, with) = (delivered(0), delivered(1));
    println!("on time of 200: {} without parity, {} with", without.0, with.0);
    assert_eq!((without.1, without.2), (0, 0));
    assert!(with.0 > without.0 + 20 && with.1 > 20);
}

/// There is time for one repair, and parity, which has to be there earlier, is not made.
//= spec/a1.md A1-FEC-4
#[test]
fn a_repair_goes_twice_if_there_is_no_time_for_another() {
    let delivered = |len: usize, refs: [u32; 2], seed: u64| {
        let mut pair = Pair::new(lossy(10_000, 50, 0.2, seed));
        // So much loss would be taken for congestion.
        pair.ends[0].connection.recovery.fix_window(1 << 20);
        pair.ends[0].connection.set_policy(Box::new(freshwire_choice::expiring()));
        for seq in 0..300 {
            let record = record(seq, pair.now, Some(Duration::from_millis(300)));
            pair.push(0, Record { refs, ..record }, payload(seq, len));
            pair.run_for(Duration::from_millis(40));
        }
        pair.run_for(Duration::from_secs(1));
        check_payloads(&pair, 1);
        pair.ends[1].received.iter().filter(|(_, message)| !message.late).count()
    };
    for refs in [[0, 0], [1, 0]] {
        let on_time: usize = (1..=5).map(|seed| delivered(9000, refs, seed)).sum();
        assert!(on_time >= 1450, "{on_time} of 1500; 1387 if it goes once");
    }
    let small: usize = (1..=5).map(|seed| delivered(100, [0, 0], seed)).sum();
    assert!(small >= 1488, "{small} of 1500; 1472 if it is in the same packet");
}

//= spec/a1.md A1-GRP-3
#[test]
fn repairs_that_are_of_no_use_any_more_hold_nothing_up() {
    let mut pair = Pair::new(lossy(10_000, 5, 0.0, 1));
    pair.run_for(Duration::from_millis(100));
    let head = BlockHead { id: 0, offset: 0, start: None, end: true };
    let sender = &mut pair.ends[0].connection;
    sender.send_group_block(pair.now, 1, head, vec![0], pair.now + Duration::from_millis(1));
    pair.now += Duration::from_millis(1);
    pair.push(0, record(0, pair.now, None), payload(0, 100));
    let end = &mut pair.ends[0];
    assert!(end.connection.poll_transmit(pair.now, &mut end.queue, &mut Vec::new()).is_some());
    assert_eq!(end.queue.len(), 0, "the record has left too");
}

#[test]
fn parity_that_no_packet_has_room_for_holds_nothing_up() {
    let config = ConnectionConfig { fec_layers: 1, ..ConnectionConfig::default() };
    let qos = Qos::default();
    let mut pair = Pair::with(lossy(10_000, 100, 0.05, 4), [config.clone(), config], qos);
    for seq in 0..400 {
        // With so much to say of a message, a shard does not fit.
        let record = record(1 << 60 | seq, pair.now, Some(Duration::from_millis(250)));
        let record = Record { key: 1 << 60, group: u32::MAX, refs: [u32::MAX; 2], ..record };
        pair.push(0, record, payload(seq, 2000));
        for _ in 0..40 * (seq % 2) {
            pair.run_for(Duration::from_millis(1));
            let end = &mut pair.ends[0];
            let left = end.connection.poll_transmit(pair.now, &mut end.queue, &mut Vec::new());
            assert_eq!(left, None, "what one look leaves, nobody would look for again");
        }
    }
    assert_eq!(pair.ends[0].connection.stats().parity_sent, 0);
}

#[test]
fn a_receiver_that_does_not_consume_closes_the_window() {
    let qos = Qos { outstanding: 4, ..Qos::default() };
    let mut pair =
        Pair::with(lossy(10_000, 5, 0.0, 1), [ConnectionConfig::default(), ConnectionConfig::default()], qos);
    pair.consume(1, false);
    for seq in 0..10 {
        pair.push(0, record(seq, pair.now, None), payload(seq, 1000));
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[0].queue.len(), 6, "four are outstanding");
    assert!(pair.ends[0].connection.is_window_full());
    pair.consume(1, true);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[1].received.len(), 10);
}

#[test]
fn data_that_waits_for_its_application_becomes_stale() {
    for in_order in [false, true] {
        let config = ConnectionConfig { in_order, ..ConnectionConfig::default() };
        let mut pair = Pair::with(lossy(10_000, 5, 0.0, 1), [config.clone(), config], Qos::default());
        pair.consume(1, false);
        for lifetime_ms in [500, 5000] {
            let lifetime = Duration::from_millis(lifetime_ms);
            pair.push(0, record(lifetime_ms, pair.now, Some(lifetime)), payload(lifetime_ms, 1000));
        }
        pair.run_for(Duration::from_secs(1));
        pair.consume(1, true);
        let taken: Vec<_> = pair.ends[1].received.iter().map(|(_, taken)| (taken.seq, taken.late)).collect();
        assert_eq!(taken, [(500, true), (5000, false)]);
        let ages = pair.ends[1].received.iter().map(|(_, taken)| taken.age.as_millis());
        assert!(ages.into_iter().all(|age| (990..=1010).contains(&age)));
    }
}

#[test]
fn the_quality_of_service_changes_within_its_maximum() {
    let mut pair = Pair::new(lossy(10_000, 5, 0.1, 2));
    let slow =
        Qos { send_average: Some(Rate::from_bits_per_sec(400_000)), send_burst: 2000, ..Qos::default() };
    pair.ends[0].connection.set_qos(slow).expect("within the maximum");
    assert!(pair.ends[0].connection.is_qos_pending());
    assert_eq!(pair.ends[0].connection.set_qos(slow), Err(QosError::Pending));
    pair.run_for(Duration::from_secs(2));
    assert!(pair.ends[0].events.contains(&Event::QosChanged) && !pair.ends[0].connection.is_qos_pending());
    assert!(pair.ends[1].events.contains(&Event::QosPending));
    assert_eq!(pair.ends[1].connection.qos().receive_average, slow.send_average);
    let beyond = Qos { outstanding: 1025, ..Qos::default() };
    let refused = pair.ends[0].connection.set_qos(beyond);
    assert_eq!(refused, Err(QosError::BeyondMaximum("the number of outstanding messages")));
    for seq in 0..60 {
        pair.push(0, record(seq, pair.now, None), payload(seq, 10_000));
    }
    pair.run_for(Duration::from_secs(2));
    let bytes: usize = pair.ends[1].received.iter().map(|(_, message)| message.data.len()).sum();
    assert!((60_000..=120_000).contains(&bytes), "{bytes} bytes in 2 s at 50,000 a second");
    assert!(pair.ends[0].connection.is_rate_exceeded());
}

//= spec/a1.md A1-PATH-2
#[test]
fn parity_counts_towards_the_agreed_rate() {
    let config = ConnectionConfig { fec_layers: 1, ..ConnectionConfig::default() };
    let qos =
        Qos { send_average: Some(Rate::from_bits_per_sec(480_000)), send_burst: 3000, ..Qos::default() };
    let mut pair = Pair::with(lossy(10_000, 100, 0.1, 4), [config.clone(), config], qos);
    pair.ends[0].connection.set_policy(Box::new(freshwire_choice::expiring()));
    for seq in 0..250 {
        pair.push(0, record(seq, pair.now, Some(Duration::from_millis(450))), payload(seq, 2000));
        pair.run_for(Duration::from_millis(40));
    }
    let stats = pair.ends[0].connection.stats();
    assert!(stats.parity_sent > 80_000, "{stats:?}");
    assert!(stats.bytes_sent < 640_000, "{} bytes in 10 s at 60,000 a second", stats.bytes_sent);
}

#[test]
fn an_address_that_changes_is_proved_and_followed() {
    let mut pair = Pair::new(lossy(10_000, 20, 0.0, 2));
    for seq in 0..50 {
        if seq == 10 {
            pair.rebind(0, 99);
        }
        pair.push(0, record(seq, pair.now, None), payload(seq, 1000));
        pair.run_for(Duration::from_millis(20));
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[1].received.len(), 50);
    assert_eq!(pair.ends[1].connection.remote().address.port(), 99);
    assert!(pair.ends[1].events.iter().any(|event| matches!(event, Event::Migrated(_))));
}

//= spec/a1.md A1-QOS-3
#[test]
fn a_change_of_quality_is_answered_despite_an_old_address() {
    for seed in 0..900 {
        let mut pair = Pair::new(lossy(10_000, 20, 0.3, seed));
        pair.run_for(Duration::from_secs(1));
        let fewer = Qos { outstanding: 8, ..Qos::default() };
        pair.ends[0].connection.set_qos(fewer).expect("within the maximum");
        pair.run_for(Duration::from_millis(5));
        // The acknowledgement covers the proposal too, whether the packet with its answer arrives or not.
        pair.push(0, record(0, pair.now, None), payload(0, 100));
        pair.run_for(Duration::from_millis(20 + seed % 150));
        pair.rebind(0, 99);
        pair.run_for(Duration::from_secs(60));
        assert!(!pair.ends[0].connection.is_qos_pending(), "seed {seed}");
    }
}

//= spec/a1.md A1-SEC-3
#[test]
fn keys_are_updated_while_data_flows_and_packets_are_lost() {
    let mut pair = Pair::new(lossy(10_000, 20, 0.1, 2));
    let mut updates = 0;
    for seq in 0..200 {
        pair.push(0, record(seq, pair.now, None), payload(seq, 1000));
        pair.run_for(Duration::from_millis(10));
        updates += u32::from(pair.ends[usize::from(seq % 20 == 0)].connection.update_keys());
    }
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.ends[1].received.len(), 200);
    assert!(updates > 10, "{updates}");
    assert!(pair.ends.iter().all(|end| end.events.iter().all(|event| !matches!(event, Event::Closed(_)))));
}

/// If a sender closed once nothing is left, the peer would wait for abandoned messages.
//= spec/a1.md A1-MSG-3
#[test]
fn reports_are_left_until_the_peer_knows_of_abandoned_messages() {
    let mut pair = Pair::new(lossy(1_000, 100, 0.2, 4));
    pair.ends[0].connection.set_policy(Box::new(freshwire_choice::deadline(Duration::ZERO)));
    let (mut reports, mut idle) = (0, 0);
    for seq in 0..100 {
        pair.push(0, record(seq, pair.now, Some(Duration::from_millis(250))), payload(seq, 4000));
        // Now and then there is a pause.
        for _ in 0..if seq % 10 == 9 { 1500 } else { 40 } {
            pair.run_for(Duration::from_millis(1));
            while let Some(report) = pair.ends[1].connection.poll_missing() {
                reports += u32::from(matches!(report, Missing::Committed { .. }));
            }
            if pair.ends[0].connection.is_idle() {
                idle += 1;
                let [sender, receiver] = &pair.ends;
                // Some of the abandoned messages had arrived.
                let is_missing = |&&(seq, fate): &&(u64, Outcome)| {
                    matches!(fate, Outcome::Dropped(_))
                        && receiver.received.iter().all(|(_, message)| message.seq != seq)
                };
                let given_up = sender.fates.iter().filter(is_missing).count();
                assert_eq!(u32::try_from(given_up), Ok(reports), "at {:?}", pair.now);
            }
        }
    }
    assert!(reports > 10 && idle > 100, "{reports} were given up, idle for {idle} ms");
}

//= spec/a1.md A1-END-1
#[test]
fn a_close_carries_its_reason() {
    let mut pair = Pair::new(lossy(10_000, 20, 0.0, 2));
    pair.run_for(Duration::from_millis(100));
    pair.ends[0].connection.close(pair.now, 300, "that was it");
    pair.run_for(Duration::from_secs(3));
    let reason = "that was it".to_owned();
    assert!(pair.ends[1].events.contains(&Event::Closed(Closed::Peer { code: 300, reason })));
    assert!(pair.ends[0].events.contains(&Event::Closed(Closed::Local)));
    assert!(pair.ends.iter().all(|end| end.connection.is_ended()));
}

/// A receiver that has all messages may close at once. Some packets were declared lost and repeated by then.
//= spec/a1.md A1-ACK-6
#[test]
fn every_message_that_a_closing_peer_has_is_acknowledged() {
    let mut late = 0;
    for seed in 0..200 {
        let link = Config::builder()
            .rate(Rate::from_bits_per_sec([1_000_000, 10_000_000, 100_000_000][seed as usize % 3]))
            .delay(Duration::from_millis(1 + seed % 50))
            .loss(Loss::Random { share: [0.0, 0.01, 0.05][seed as usize / 3 % 3] })
            .reorder(0.2, Duration::from_millis(5 + seed % 100))
            .seed(seed);
        let mut pair = Pair::new(link.build().expect("a link"));
        let messages = 5 + seed % 40;
        for seq in 0..messages {
            pair.push(0, record(seq, pair.now, None), payload(seq, 200 + 50 * seed as usize));
            pair.run_for(Duration::from_millis(seed % 3));
        }
        while pair.ends[1].received.len() < messages as usize {
            pair.run_for(Duration::from_millis(1));
        }
        pair.ends[1].connection.close(pair.now, 0, "");
        pair.run_for(Duration::from_secs(60));
        let end = &pair.ends[0];
        late += end.connection.stats().spurious_losses;
        let acked = end.fates.iter().filter(|(_, outcome)| *outcome == Outcome::Acked).count();
        assert_eq!(acked, messages as usize, "seed {seed}: {:?}", end.connection.stats());
    }
    assert!(late > 0, "nothing was acknowledged after it had been declared lost");
}

/// A receiver that closes right after the last message has not acknowledged it yet.
//= spec/a1.md A1-END-1
#[test]
fn a_close_acknowledges_earlier_messages_and_no_later_ones() {
    let mut pair = Pair::new(lossy(10_000, 20, 0.0, 2));
    pair.run_for(Duration::from_millis(100));
    pair.push(0, record(1, pair.now, None), payload(1, 100));
    pair.run_for(Duration::from_millis(1));
    pair.now += Duration::from_millis(30);
    pair.deliver();
    assert_eq!(pair.ends[1].received.len(), 1);
    pair.ends[1].connection.close(pair.now, 0, "");
    pair.push(0, record(2, pair.now, None), payload(2, 100));
    pair.run_for(Duration::from_secs(3));
    let fates = &pair.ends[0].fates;
    assert_eq!(fates, &[(1, Outcome::Acked), (2, Outcome::Dropped(Reason::ConnectionLost))]);
    assert_eq!(pair.ends[1].received.len(), 1, "both ends say the same of what came too late");
}

//= spec/a1.md A1-END-2, A1-RST-5
#[test]
fn silence_ends_a_connection_unless_it_is_kept_alive() {
    let mut pair = Pair::new(lossy(10_000, 20, 0.0, 2));
    pair.run_for(Duration::from_secs(60));
    assert!(pair.ends.iter().all(|end| end.events.contains(&Event::Closed(Closed::Silent))));
    let kept = ConnectionConfig { keep_alive: Some(Duration::from_secs(10)), ..ConnectionConfig::default() };
    let mut pair = Pair::with(lossy(10_000, 20, 0.0, 2), [kept, ConnectionConfig::default()], Qos::default());
    pair.run_for(Duration::from_secs(60));
    assert!(pair.ends.iter().all(|end| end.events.is_empty()));
    assert!(pair.ends[0].connection.stats().packets_sent < 40);
    pair.run_for(Duration::from_secs(3600));
    assert!(pair.ends.iter().all(|end| end.events.is_empty()), "as long as it likes");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut pair = Pair::new(lossy(1_000, 50, 0.1, 9));
        for seq in 0..100 {
            pair.push(0, record(seq, pair.now, Some(Duration::from_millis(500))), payload(seq, 5000));
            pair.run_for(Duration::from_millis(30));
        }
        let times: Vec<_> = pair.ends[1].received.iter().map(|(at, m)| (*at, m.seq)).collect();
        (times, pair.ends[0].connection.stats())
    };
    assert_eq!(run(), run());
}

#[test]
fn ages_are_measured_by_the_senders_clock() {
    let mut pair = Pair::new(lossy(10_000, 40, 0.0, 2));
    pair.run_for(Duration::from_secs(1));
    pair.push(0, record(0, pair.now, Some(Duration::from_millis(41))), payload(0, 10));
    pair.push(0, record(1, pair.now, Some(Duration::from_millis(39))), payload(1, 10));
    pair.run_for(Duration::from_secs(1));
    let ages: Vec<_> = pair.ends[1].received.iter().map(|(_, m)| (m.age.as_millis(), m.late)).collect();
    assert_eq!(ages, [(40, false), (40, true)]);
}

#[test]
fn a_policy_that_waits_is_not_woken_while_the_window_is_full() {
    let mut pair = Pair::new(lossy(10_000, 100, 0.0, 2));
    pair.run_for(Duration::from_secs(1));
    let until = pair.now + Duration::from_millis(10);
    let wait = move |_, _: &[_], _: &_| freshwire_choice::Decision::Wait(Some(until));
    pair.ends[0].connection.set_policy(Box::new(freshwire_choice::from_fn(wait)));
    pair.push(0, record(0, pair.now, None), payload(0, 100));
    pair.run_for(Duration::from_millis(1));
    let pair::End { connection, queue, .. } = &mut pair.ends[0];
    assert_eq!(connection.poll_timeout(), Some(until));
    let number = connection.next_number;
    connection.next_number += 1;
    let (bytes, content) = (100_000_000, Contents::default());
    let (eliciting, ack_now, app_limited, mtu_probe) = (true, true, false, false);
    let sent = Sent { number, bytes, eliciting, ack_now, app_limited, mtu_probe, content };
    connection.recovery.on_sent(pair.now, sent);
    connection.handle_timeout(until);
    assert_eq!(connection.poll_transmit(until, queue, &mut Vec::new()), None);
    assert!(connection.poll_timeout() > Some(until), "it would be woken again and again");
    assert!(!connection.is_idle(), "the record is still there");
}
