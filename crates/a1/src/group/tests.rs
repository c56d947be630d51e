mod cost;

use std::time::Duration;

use bytes::Bytes;
use freshwire_record::{Rate, Timestamp};

use super::*;
use crate::config::ConnectionConfig;
use crate::connection::tests::pair::{Pair, payload, record};
use crate::connection::{Event, tests::lossy};
use crate::inbox::Missing;
use crate::source::Queue;
use crate::wire::{Packet, Qos};

/// A sender with a connection to each of three members, of which each loses other packets of the group.
struct Stage {
    group: Group,
    queue: Queue,
    pairs: Vec<Pair>,
    now: Timestamp,
    sent: u64,
    bytes: usize,
}

impl Stage {
    fn new() -> Self {
        Self::with_datagrams_of(1200)
    }

    fn with_datagrams_of(datagram: u16) -> Self {
        Self::over((0..3).map(|seed| Pair::new(lossy(10_000, 5 + 10 * seed, 0.1, seed))).collect(), datagram)
    }

    fn over(pairs: Vec<Pair>, datagram: u16) -> Self {
        let now = pairs[0].now;
        let address = "239.1.2.3:5004".parse().expect("an address");
        let config = GroupTransportConfig {
            datagram,
            ..GroupTransportConfig::new(address, Rate::from_bits_per_sec(8_000_000))
        };
        let group = Group::new(now, config, Box::new(freshwire_choice::expiring()), [9; 32]);
        let mut stage = Self { group, queue: Queue::default(), pairs, now, sent: 0, bytes: 0 };
        for pair in &mut stage.pairs {
            stage.group.invite(stage.now, &mut pair.ends[0].connection);
        }
        stage.run_for(Duration::from_millis(200), |_, _| true);
        stage
    }

    /// Goes on in steps of a millisecond. Member m gets packet n of the group if `gets(m, n)`.
    fn run_for(&mut self, time: Duration, gets: impl Fn(usize, u64) -> bool) {
        let until = self.now + time;
        while self.now < until {
            self.now += Duration::from_millis(1);
            let mut datagram = Vec::new();
            while self.group.poll_transmit(self.now, &mut self.queue, &mut datagram) {
                let Ok(Packet::Group { group, number, sealed }) = Packet::parse(&datagram) else {
                    panic!("no packet")
                };
                for (member, pair) in self.pairs.iter_mut().enumerate() {
                    if gets(member, self.sent) {
                        let connection = &mut pair.ends[1].connection;
                        assert!(connection.handle_group_packet(
                            self.now,
                            group,
                            number,
                            &mut sealed.to_vec()
                        ));
                    }
                }
                self.sent += 1;
                self.bytes += datagram.len();
                datagram.clear();
            }
            if self.group.takes_notice(self.now) {
                for pair in &mut self.pairs {
                    self.group.tell(&mut pair.ends[0].connection);
                }
            }
            for pair in &mut self.pairs {
                pair.run(self.now);
                for event in std::mem::take(&mut pair.ends[0].events) {
                    if let Event::GroupMissing { group, missing } = event {
                        assert_eq!(group, self.group.id());
                        self.group.repair(self.now, &missing, &self.queue, &mut pair.ends[0].connection);
                    }
                }
            }
        }
    }

    fn push(&mut self, seq: u64, len: usize, lifetime: Duration) {
        self.queue.push(record(seq, self.now, Some(lifetime)), payload(seq, len));
    }

    fn seqs(&self, member: usize) -> Vec<u64> {
        let mut seqs: Vec<u64> =
            self.pairs[member].ends[1].received.iter().map(|(_, message)| message.seq).collect();
        seqs.sort_unstable();
        seqs
    }
}

#[test]
fn members_are_invited_with_the_address() {
    let stage = Stage::new();
    for pair in &stage.pairs {
        let invited = Event::Invited { group: stage.group.id(), address: stage.group.address() };
        assert!(pair.ends[1].events.contains(&invited));
    }
}

/// There is no time to notice that a report or a repair was lost. So both go twice, the report is answered
/// once, and a SYNC behind them shows a gap soon.
#[test]
fn short_lived_messages_are_repaired_within_their_lifetime() {
    let members = 12;
    let pairs = (0..members).map(|seed| Pair::new(lossy(10_000, 10, 0.3, seed))).collect();
    let mut stage = Stage::over(pairs, 1200);
    for seq in 0..200 {
        stage.push(seq, 3000, Duration::from_millis(70));
        stage.run_for(Duration::from_millis(50), |_, packet| packet % 5 != 3);
    }
    stage.run_for(Duration::from_secs(1), |_, _| true);
    let arrived: usize = (0..members as usize).map(|member| stage.seqs(member).len()).sum();
    assert!(arrived >= 2320, "{arrived} of 2400; 2280 if reports go once, a sixth less if no SYNC follows");
    let repairs: u64 = stage.pairs.iter().map(|pair| pair.ends[0].connection.stats().repairs_sent).sum();
    // Half of the packets have no data.
    assert!(repairs <= members * stage.sent / 8, "{repairs} for {} packets", stage.sent);
}

#[test]
fn without_multicast_everything_comes_over_the_connection() {
    let mut stage = Stage::new();
    for seq in 0..40 {
        stage.push(seq, 5000, Duration::from_secs(1));
        stage.run_for(Duration::from_millis(25), |member, _| member != 1);
    }
    stage.run_for(Duration::from_secs(2), |member, _| member != 1);
    assert_eq!(stage.seqs(1), (0..40).collect::<Vec<_>>());
    assert!(stage.pairs[1].ends[1].received.iter().all(|(_, message)| !message.late));
    let [brought, repaired] = [0, 1].map(|member| stage.pairs[member].ends[1].connection.stats());
    assert_eq!((repaired.group_packets_received, brought.repairs_received), (0, 0));
    assert!(brought.group_packets_received >= 200 && repaired.repairs_received >= 200, "{repaired:?}");
}

#[test]
fn each_member_gets_everything_despite_different_losses() {
    let mut stage = Stage::new();
    for seq in 0..100 {
        stage.push(seq, 5000, Duration::from_secs(2));
        stage
            .run_for(Duration::from_millis(10), |member, number| !(number + member as u64).is_multiple_of(7));
    }
    stage.run_for(Duration::from_secs(1), |_, _| true);
    for member in 0..3 {
        assert_eq!(stage.seqs(member), (0..100).collect::<Vec<_>>(), "member {member}");
        for (_, message) in &stage.pairs[member].ends[1].received {
            assert_eq!(message.data, payload(message.seq, 5000));
            assert!(!message.late && message.age < Duration::from_millis(500), "{:?}", message.age);
        }
    }
    let resent: u64 = stage.pairs.iter().map(|pair| pair.ends[0].connection.stats().bytes_sent).sum();
    assert!(resent < 350_000, "repairs go to those who ask: {resent} bytes of 1.5 MB");
}

//= spec/a1.md A1-GRP-4
#[test]
fn a_member_that_gets_nothing_holds_nobody_back() {
    let mut stage = Stage::new();
    for seq in 0..50 {
        stage.push(seq, 5000, Duration::from_millis(200));
        stage.run_for(Duration::from_millis(10), |member, _| member != 2);
    }
    stage.run_for(Duration::from_secs(1), |member, _| member != 2);
    assert_eq!(stage.seqs(0).len(), 50);
    assert_eq!(stage.seqs(1).len(), 50);
    assert!(stage.seqs(2).len() < 50, "what it hears of too late is not worth a repair any more");
}

fn missing(stage: &mut Stage, member: usize) -> Vec<(u64, Reason)> {
    let connection = &mut stage.pairs[member].ends[1].connection;
    let missing = std::iter::from_fn(|| connection.poll_missing()).map(|missing| match missing {
        Missing::OfGroup { group, id, reason } => {
            assert_eq!(group, stage.group.id());
            (id, reason)
        }
        other => panic!("{other:?}"),
    });
    missing.collect()
}

#[test]
fn a_member_gets_a_report_of_messages_that_will_not_come() {
    let mut stage = Stage::new();
    for seq in 0..50 {
        stage.push(seq, 5000, Duration::from_millis(200));
        stage.run_for(Duration::from_millis(10), |member, _| member != 2);
    }
    stage.run_for(Duration::from_secs(2), |member, _| member != 2);
    let mut ids: Vec<u64> = missing(&mut stage, 2).into_iter().map(|(id, _)| id).collect();
    assert!(!ids.is_empty());
    ids.extend(stage.seqs(2));
    ids.sort_unstable();
    assert_eq!(ids, (0..50).collect::<Vec<_>>(), "each is there or is missing");
    assert_eq!(missing(&mut stage, 0), []);
}

#[test]
fn a_member_gets_a_report_of_too_large_messages() {
    let qos = Qos { max_send_message: 4000, max_receive_message: 4000, ..Qos::default() };
    let config = ConnectionConfig { groups: 1, ..ConnectionConfig::default() };
    let pair = Pair::with(lossy(10_000, 5, 0.0, 1), [config.clone(), config], qos);
    let mut stage = Stage::over(vec![pair], 1200);
    for (seq, len) in [3000, 5000, 4001, 4000].into_iter().enumerate() {
        stage.push(seq as u64, len, Duration::from_secs(1));
    }
    stage.run_for(Duration::from_millis(300), |_, number| number % 3 != 0);
    assert_eq!(missing(&mut stage, 0), [(1, Reason::Invalid), (2, Reason::Invalid)]);
    assert_eq!(stage.seqs(0), [0, 3]);
}

#[test]
fn a_member_that_pauses_gets_a_report_of_missed_messages() {
    let qos = Qos { outstanding: 4, ..Qos::default() };
    let config = ConnectionConfig { groups: 1, ..ConnectionConfig::default() };
    let pair = Pair::with(lossy(10_000, 5, 0.0, 1), [config.clone(), config], qos);
    let mut stage = Stage::over(vec![pair], 1200);
    stage.pairs[0].ends[1].consumes = false;
    for seq in 0..10 {
        stage.push(seq, 3000, Duration::from_secs(1));
        stage.run_for(Duration::from_millis(10), |_, _| true);
    }
    let superseded = (0..6).map(|id| (id, Reason::Superseded)).collect::<Vec<_>>();
    assert_eq!(missing(&mut stage, 0), superseded);
    stage.pairs[0].ends[1].consumes = true;
    stage.run_for(Duration::from_millis(10), |_, _| true);
    assert_eq!(stage.seqs(0), [6, 7, 8, 9]);
}

//= spec/a1.md A1-GRP-6
#[test]
fn the_last_packets_are_repaired_too() {
    let mut stage = Stage::new();
    stage.push(0, 3000, Duration::from_secs(1));
    let first = stage.sent;
    stage.run_for(Duration::from_millis(300), |_, number| number == first || number > first + 2);
    assert_eq!((stage.seqs(0), stage.seqs(1), stage.seqs(2)), (vec![0], vec![0], vec![0]));
}

#[test]
fn packets_of_another_key_are_refused() {
    let mut stage = Stage::new();
    let address = stage.group.address();
    let config = GroupTransportConfig::new(address, Rate::from_bits_per_sec(8_000_000));
    let mut forger = Group::new(stage.now, config, Box::new(freshwire_choice::fifo()), [1; 32]);
    forger.id = stage.group.id();
    let mut queue = Queue::default();
    queue.push(record(0, stage.now, None), Bytes::from_static(b"forged"));
    let mut datagram = Vec::new();
    assert!(forger.poll_transmit(stage.now, &mut queue, &mut datagram));
    let Ok(Packet::Group { group, number, sealed }) = Packet::parse(&datagram) else { panic!("no packet") };
    let connection = &mut stage.pairs[0].ends[1].connection;
    assert!(!connection.handle_group_packet(stage.now, group, number, &mut sealed.to_vec()));
}

//= spec/a1.md A1-GRP-5
#[test]
fn a_group_keeps_its_rate() {
    let mut stage = Stage::new();
    for seq in 0..400 {
        stage.push(seq, 10_000, Duration::from_secs(60));
    }
    let before = stage.bytes;
    stage.run_for(Duration::from_secs(1), |_, _| true);
    let bytes = stage.bytes - before;
    assert!((950_000..=1_010_000).contains(&bytes), "{bytes} in a second at 1,000,000");
}

#[test]
fn repairs_keep_the_rate_that_was_agreed_on_with_the_member() {
    let qos =
        Qos { send_average: Some(Rate::from_bits_per_sec(400_000)), send_burst: 3000, ..Qos::default() };
    let config = ConnectionConfig { groups: 1, ..ConnectionConfig::default() };
    let pair = Pair::with(lossy(10_000, 5, 0.0, 1), [config.clone(), config], qos);
    let mut stage = Stage::over(vec![pair], 1200);
    let before = stage.pairs[0].ends[0].connection.stats().bytes_sent;
    for seq in 0..100 {
        stage.push(seq, 5000, Duration::from_secs(2));
        stage.run_for(Duration::from_millis(20), |_, _| false);
    }
    let bytes = stage.pairs[0].ends[0].connection.stats().bytes_sent - before;
    assert!((80_000..=110_000).contains(&bytes), "{bytes} in two seconds at 50,000 a second");
}

#[test]
fn repairs_are_cut_to_what_the_members_path_carries() {
    let mut stage = Stage::with_datagrams_of(9000);
    let len = 8500;
    stage.push(0, len, Duration::from_secs(2));
    let first = stage.sent;
    stage.run_for(Duration::from_millis(500), |member, number| member != 1 || number != first);
    assert_eq!(stage.sent, first + 4, "one packet with the message and three behind it");
    for member in 0..3 {
        let [(_, message)] = stage.pairs[member].ends[1].received.as_slice() else { panic!("{member}") };
        assert_eq!(message.data, payload(0, len));
    }
    let repairs = [0, 1, 2].map(|member| stage.pairs[member].ends[0].connection.stats().repairs_sent);
    assert_eq!(repairs, [0, 1, 0]);
}

#[test]
fn a_connection_with_a_group_is_kept_alive() {
    let mut stage = Stage::new();
    stage.run_for(Duration::from_secs(70), |_, _| true);
    stage.push(0, 100, Duration::from_secs(1));
    stage.run_for(Duration::from_millis(100), |_, _| true);
    assert_eq!([0, 1, 2].map(|member| stage.seqs(member).len()), [1, 1, 1]);
}

#[test]
fn a_member_that_asks_without_end_is_kept_nothing_for() {
    let mut stage = Stage::new();
    for seq in 0..3000 {
        stage.push(seq, 10, Duration::from_millis(1));
        stage.run_for(Duration::from_millis(1), |_, _| true);
    }
    let member = &mut stage.pairs[0].ends[0].connection;
    for _ in 0..3 {
        stage.group.repair(stage.now, &[0..=u64::MAX], &stage.queue, member);
    }
    assert_eq!(member.group_announcements(), 1024);
}

//= spec/a1.md A1-GRP-3
#[test]
fn a_member_that_misses_too_much_gets_a_report() {
    let pair = Pair::new(lossy(1000, 5, 0.0, 1));
    let mut stage = Stage::over(vec![pair], 1200);
    for seq in 0..400 {
        stage.push(seq, 1000, Duration::from_secs(60));
    }
    stage.group.config.repair_for = Duration::from_secs(60);
    let first = stage.sent;
    stage.run_for(Duration::from_secs(10), |_, number| number < first || number >= first + 400);
    let gone = missing(&mut stage, 0);
    assert!(!gone.is_empty() && gone.iter().all(|(_, reason)| *reason == Reason::Abandoned));
    let mut ids: Vec<u64> = gone.into_iter().map(|(id, _)| id).chain(stage.seqs(0)).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..400), "each is there or is missing");
}

//= spec/a1.md A1-GRP-3
#[test]
fn a_packet_is_answered_for_once_however_often_it_is_asked_for() {
    let pair = Pair::new(lossy(10_000, 5, 0.0, 1));
    let mut stage = Stage::over(vec![pair], 1200);
    for seq in 0..200 {
        stage.push(seq, 1000, Duration::from_secs(60));
    }
    stage.group.config.repair_for = Duration::from_secs(60);
    stage.run_for(Duration::from_secs(1), |_, _| true);
    for _ in 0..10 {
        for _ in 0..1000 {
            let member = &mut stage.pairs[0].ends[0].connection;
            stage.group.repair(stage.now, &[0..=u64::MAX], &stage.queue, member);
        }
        stage.run_for(Duration::from_secs(1), |_, _| true);
    }
    let member = &mut stage.pairs[0].ends[0].connection;
    assert_eq!(member.stats().repairs_sent, 200);
    assert_eq!(member.answered(stage.group.id()).len(), 1);
}

#[test]
fn abandoned_messages_are_not_repaired() {
    let mut stage = Stage::new();
    stage.push(0, 100_000, Duration::from_secs(5));
    stage.run_for(Duration::from_millis(20), |member, _| member != 0);
    assert!(!stage.group.is_idle());
    stage.group.abandon();
    assert!(stage.group.is_idle());
    let sent = stage.sent;
    stage.run_for(Duration::from_secs(1), |_, _| true);
    assert!(stage.sent - sent <= u64::from(TAIL_PACKETS), "only the tail");
    assert_eq!(stage.pairs[0].ends[0].connection.stats().repairs_sent, 0);
}
