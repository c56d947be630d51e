use super::*;

mod accounting;
mod alone;
mod bbr;
pub(super) mod fixed;
mod outages;
mod scenes;
mod shared;
mod world;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO + ms(millis)
}

fn sent(number: u64) -> Sent<u64> {
    Sent {
        number,
        bytes: 1200,
        eliciting: true,
        ack_now: false,
        app_limited: false,
        mtu_probe: false,
        content: number,
    }
}

fn config(controller: Controller) -> RecoveryConfig {
    RecoveryConfig { controller, ..RecoveryConfig::default() }
}

#[test]
fn acknowledging_an_unsent_packet_is_an_error_without_effect() {
    let mut recovery = Recovery::new(&config(Controller::NewReno), at(0));
    recovery.on_sent(at(0), sent(0));
    recovery.on_sent(at(0), sent(2));
    let mut out = Outcomes::default();
    for (range, wrong) in [(0..=3, 3), (0..=2, 1), (0..=u64::MAX, u64::MAX)] {
        let ack = AckInfo {
            largest: *range.end(),
            ranges: &[range],
            delay: Duration::ZERO,
            receiver_time_us: 0,
            ce_count: 0,
        };
        assert_eq!(recovery.on_ack(at(10), &ack, &mut out), Err(AckError::NeverSent(wrong)));
    }
    assert!(out.acked.is_empty());
    assert_eq!(recovery.in_flight(), 2400);
}

fn ack(
    recovery: &mut Recovery<u64>,
    now: Timestamp,
    range: RangeInclusive<u64>,
    ce_count: u64,
) -> Outcomes<u64> {
    let mut out = Outcomes::default();
    let ack = AckInfo {
        largest: *range.end(),
        ranges: &[range],
        delay: Duration::ZERO,
        receiver_time_us: (now.as_nanos() / 1000) as u32,
        ce_count,
    };
    recovery.on_ack(now, &ack, &mut out).expect("everything was sent");
    out
}

fn numbers(list: &[(u64, u64)]) -> Vec<u64> {
    list.iter().map(|(number, _)| *number).collect()
}

//= spec/a1.md A1-LOSS-1
#[test]
fn a_nack_loses_at_once_and_a_late_arrival_is_spurious() {
    for controller in [Controller::Copa, Controller::Cubic, Controller::NewReno] {
        let mut recovery = Recovery::new(&config(controller), at(0));
        for number in 0..4 {
            recovery.on_sent(at(0), sent(number));
        }
        ack(&mut recovery, at(40), 0..=0, 0);
        let before = recovery.window();
        let mut out = Outcomes::default();
        recovery.on_nack(at(41), &[1..=2, 7..=u64::MAX], &mut out);
        assert_eq!(numbers(&out.lost), [1, 2]);
        assert_eq!(recovery.in_flight(), 1200);
        let out = ack(&mut recovery, at(45), 1..=3, 0);
        assert_eq!((numbers(&out.acked), out.spurious), (vec![3], vec![1, 2]));
        assert!(recovery.window() >= before, "{controller:?} undoes its reaction");
    }
}

//= spec/a1.md A1-LOSS-1
#[test]
fn loss_by_time_needs_a_later_acknowledgement() {
    let mut recovery = Recovery::new(&config(Controller::Copa), at(0));
    recovery.on_sent(at(9), sent(0));
    recovery.on_sent(at(10), sent(1));
    recovery.on_sent(at(20), sent(2));
    let out = ack(&mut recovery, at(50), 1..=1, 0);
    assert!(out.lost.is_empty());
    // 9/8 of 40 ms after its sending.
    assert_eq!(recovery.timeout(), Some(at(54)));
    let mut out = Outcomes::default();
    assert!(!recovery.on_timeout(at(54), &mut out));
    assert_eq!(numbers(&out.lost), [0], "2 was not overtaken");
}

//= spec/a1.md A1-LOSS-3
#[test]
fn probes_back_off_and_the_second_gives_everything_old_back() {
    let mut recovery = Recovery::new(&config(Controller::Copa), at(0));
    recovery.on_sent(at(0), sent(0));
    ack(&mut recovery, at(40), 0..=0, 0);
    for number in 1..=5 {
        recovery.on_sent(at(50), sent(number));
    }
    // 40 ms + 4 * 20 ms + 25 ms that the receiver may wait.
    assert_eq!(recovery.timeout(), Some(at(195)));
    assert_eq!(recovery.pto(), ms(145));
    let mut out = Outcomes::default();
    assert!(recovery.on_timeout(at(195), &mut out));
    assert!(out.lost.is_empty());
    recovery.on_sent(at(195), Sent { ack_now: true, ..sent(6) });
    // Asked to acknowledge at once, the receiver does not wait. Twice 120 ms.
    assert_eq!(recovery.timeout(), Some(at(435)));
    assert!(recovery.on_timeout(at(435), &mut out));
    assert_eq!(numbers(&out.lost), [1, 2, 3, 4, 5, 6]);
    assert_eq!(recovery.in_flight(), 0);
    assert_eq!(recovery.window(), 2400, "a trickle until something is heard");
    let mut now = at(435);
    let mut gaps = Vec::new();
    for number in 7..12 {
        recovery.on_sent(now, Sent { ack_now: true, ..sent(number) });
        let due = recovery.timeout().expect("something is in flight");
        gaps.push(due.saturating_since(now));
        now = due;
        assert!(recovery.on_timeout(now, &mut out));
    }
    assert_eq!(gaps, [ms(480), ms(500), ms(500), ms(500), ms(500)]);
    let out = ack(&mut recovery, now, 11..=11, 0);
    assert_eq!(numbers(&out.acked).len() + out.spurious.len(), 1);
}

#[test]
fn congestion_marks_reduce_the_window() {
    for controller in [Controller::Copa, Controller::Cubic, Controller::NewReno] {
        let mut recovery = Recovery::new(&config(controller), at(0));
        for number in 0..12 {
            recovery.on_sent(at(0), sent(number));
        }
        ack(&mut recovery, at(40), 0..=9, 0);
        let before = recovery.window();
        ack(&mut recovery, at(41), 10..=10, 1);
        let after = recovery.window();
        assert!(after < before, "{controller:?}: {before} to {after}");
        ack(&mut recovery, at(42), 11..=11, 2);
        assert!(recovery.window() >= after, "{controller:?} reacts once a round trip");
    }
}

//= spec/a1.md A1-PATH-1
#[test]
fn the_loss_of_an_mtu_probe_is_no_sign_of_congestion() {
    let mut recovery = Recovery::new(&config(Controller::NewReno), at(0));
    let size = recovery.mtu_probe(at(0)).expect("the search begins");
    assert_eq!(size, 1472);
    recovery.on_sent(at(0), Sent { bytes: u32::from(size), mtu_probe: true, ..sent(0) });
    recovery.on_sent(at(0), sent(1));
    let before = (recovery.window(), recovery.loss());
    let mut out = Outcomes::default();
    recovery.on_nack(at(40), &[0..=0], &mut out);
    assert_eq!(numbers(&out.lost), [0]);
    assert_eq!((recovery.window(), recovery.loss()), before);
    assert_eq!(recovery.mtu_probe(at(40)), Some(1472), "it may have been lost by chance");
}

#[test]
fn packets_that_elicit_nothing_are_not_in_flight() {
    let mut recovery = Recovery::new(&config(Controller::Copa), at(0));
    recovery.on_sent(at(0), Sent { eliciting: false, ..sent(0) });
    assert_eq!((recovery.in_flight(), recovery.timeout()), (0, None));
    let out = ack(&mut recovery, at(40), 0..=0, 0);
    assert!(out.acked.is_empty());
}

#[test]
fn memory_is_bounded() {
    let config = RecoveryConfig { max_packets: 100, ..config(Controller::Copa) };
    let mut recovery = Recovery::new(&config, at(0));
    recovery.on_sent(at(0), Sent { bytes: 1, ..sent(0) });
    for number in 1..100 {
        recovery.on_sent(at(0), Sent { bytes: 1, ..sent(number) });
    }
    assert_eq!(recovery.allowance(at(1000)), Allowance::Blocked, "few bytes are in flight, and many packets");
}

#[test]
fn the_first_round_shows_how_fast_packets_follow_each_other() {
    let mut recovery = Recovery::new(&config(Controller::Copa), at(0));
    for number in 0..10 {
        recovery.on_sent(at(0), sent(number));
    }
    let packets_each_20_ms = Some(Rate::from_bits_per_sec(1200 * 8 * 50));
    for number in 0..9 {
        ack(&mut recovery, at(100 + 20 * number), number..=number, 0);
        assert!(!recovery.is_rate_settled());
        if number >= 4 {
            assert_eq!(recovery.rate(), packets_each_20_ms, "after {number} packets");
        }
    }
    recovery.on_path_change(at(300), false, &mut Outcomes::default());
    assert_eq!(recovery.rate(), None, "that was another path");
}

#[test]
fn another_path_is_learnt_anew() {
    let mut recovery = Recovery::new(&config(Controller::Copa), at(0));
    recovery.on_sent(at(0), sent(0));
    ack(&mut recovery, at(20), 0..=0, 0);
    recovery.on_sent(at(20), sent(1));
    recovery.on_path_change(at(30), false, &mut Outcomes::default());
    assert_eq!(recovery.rtt().srtt(), ms(100));
    recovery.on_sent(at(30), sent(2));
    let out = ack(&mut recovery, at(40), 1..=1, 0);
    assert_eq!(numbers(&out.acked), [1]);
    assert_eq!(recovery.rtt().srtt(), ms(100), "it left on the other path");
    ack(&mut recovery, at(80), 2..=2, 0);
    assert_eq!(recovery.rtt().srtt(), ms(50));
}

/// A window of large, marked packets dies on the old path.
//= spec/a1.md A1-PATH-3
#[test]
fn losses_on_another_path_cost_the_present_one_nothing() {
    let mut recovery = Recovery::new(&config(Controller::Copa), at(0));
    recovery.on_sent(at(0), Sent { bytes: 1472, mtu_probe: true, ..sent(0) });
    ack(&mut recovery, at(20), 0..=0, 0);
    assert_eq!(recovery.mtu(), 1472);
    (1..=20).for_each(|number| recovery.on_sent(at(20), Sent { bytes: 1472, ..sent(number) }));
    recovery.on_path_change(at(30), false, &mut Outcomes::default());
    let before = recovery.window();
    (21..=22).for_each(|number| recovery.on_sent(at(40), sent(number)));
    ack(&mut recovery, at(60), 1..=1, 0);
    let mut out = Outcomes::default();
    recovery.on_nack(at(70), &[2..=19], &mut out);
    assert_eq!(out.lost.len(), 18);
    ack(&mut recovery, at(80), 21..=21, 0);
    assert_eq!((recovery.loss(), recovery.loss_run()), (0.0, 1.0));
    assert!(recovery.ecn() && recovery.window() >= before);
    assert_eq!(recovery.mtu_probe(at(80)), Some(1472), "the search goes on");
    // A loss here counts.
    recovery.on_nack(at(90), &[22..=22], &mut Outcomes::default());
    assert!(recovery.loss() > 0.0);
}

//= spec/a1.md A1-CC-3
#[test]
fn packets_that_elicit_nothing_may_carry_a_congestion_mark() {
    let mut recovery = Recovery::new(&config(Controller::Copa), at(0));
    for number in 0..10 {
        recovery.on_sent(at(0), Sent { eliciting: number >= 8, ..sent(number) });
    }
    ack(&mut recovery, at(40), 0..=9, 5);
    assert!(recovery.ecn());
}

#[test]
fn data_does_not_wait_for_a_probe_larger_than_the_window() {
    let loopback = RecoveryConfig { max_mtu: 65_507, ..config(Controller::NewReno) };
    let mut recovery = Recovery::new(&loopback, at(0));
    let size = recovery.mtu_probe(at(0)).expect("the search begins");
    assert_eq!(size, 65_507);
    recovery.on_sent(at(0), Sent { bytes: u32::from(size), mtu_probe: true, ..sent(0) });
    assert!(matches!(recovery.allowance(at(0)), Allowance::Bytes(_)));
}

#[test]
fn the_pacer_spreads_what_the_window_allows() {
    let mut recovery = Recovery::new(&config(Controller::NewReno), at(0));
    recovery.on_sync_echo(at(0), at(0) - ms(100), Duration::ZERO);
    let mut now = at(0);
    let mut leaves = Vec::new();
    for number in 0.. {
        match recovery.allowance(now) {
            Allowance::Bytes(_) => {
                recovery.on_sent(now, sent(number));
                leaves.push(now);
            }
            Allowance::At(at) => now = at,
            Allowance::Blocked => break,
        }
    }
    assert_eq!(leaves.len(), 10, "the initial window");
    let gaps: Vec<_> = leaves.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect();
    // Twice a window a round trip: ten packets in 50 ms.
    for gap in &gaps {
        assert!((ms(4)..=ms(6)).contains(gap), "{gaps:?}");
    }
}

/// Sends `count` packets from number `from` on; 40 ms later the others than `lose` are acknowledged, and those are lost. Gives the
/// window between the two.
fn round_trip(
    recovery: &mut Recovery<u64>,
    begin: Timestamp,
    from: u64,
    count: u64,
    lose: RangeInclusive<u64>,
) -> u64 {
    (from..from + count).for_each(|number| recovery.on_sent(begin, sent(number)));
    ack(recovery, begin + ms(40), from..=*lose.start() - 1, 0);
    ack(recovery, begin + ms(40), lose.end() + 1..=from + count - 1, 0);
    let window = recovery.window();
    recovery.on_nack(begin + ms(40), &[lose], &mut Outcomes::default());
    window
}

#[test]
fn how_many_packets_are_lost_in_a_row_is_known() {
    for run in [1, 4] {
        let mut recovery = Recovery::new(&config(Controller::NewReno), at(0));
        for round in 0..100 {
            let from = 20 * round;
            round_trip(&mut recovery, at(50 * round), from, 20, from + 5..=from + 4 + run);
        }
        assert!((recovery.loss_run() - run as f64).abs() < 0.1, "{} for {run}", recovery.loss_run());
    }
}

/// What an application sends is not less if its window is smaller.
#[test]
fn losses_of_a_flight_below_the_window_do_not_cut_it() {
    for (count, is_cut) in [(14, false), (80, true)] {
        let mut recovery = Recovery::new(&config(Controller::Copa), at(0));
        let mut next = 0;
        for (round, count) in [10, 20, 40, 14, 14, 14, 14, 14, 14].into_iter().enumerate() {
            round_trip(&mut recovery, at(50 * round as u64), next, count, next + 1..=next + 1);
            next += count;
        }
        let before = round_trip(&mut recovery, at(500), next, count, next + 1..=next + count * 6 / 7);
        assert!(before > 80_000, "{before}");
        assert_eq!(recovery.window() < before, is_cut, "{count}: {before}, then {}", recovery.window());
    }
}
