//! What holds on every link for every stream of packets.

use std::time::Duration;

use bolero::{TypeGenerator, check};
use freshwire_link::{Config, Delivery, Direction, Link, Loss, Schedule, Step, Verdict};
use freshwire_record::{Rate, Timestamp};

#[derive(Clone, Debug, TypeGenerator)]
struct Scenario {
    kbit: u16,
    steps: Vec<(u16, u16)>,
    repeats: bool,
    delay_us: u16,
    queue_bytes: u16,
    loss: u8,
    burst: u8,
    seed: u64,
    packets: Vec<(u16, u16)>,
}

impl Scenario {
    /// Steps of 1 ms to 65 s; the first rate is never zero, so that every packet comes out if the rate repeats.
    fn schedule(&self) -> Schedule {
        let first = Step { at: Duration::ZERO, rate: Some(kbit(self.kbit.max(1))) };
        let mut end = Duration::from_millis(1);
        let mut steps = vec![first];
        for (rate, length) in &self.steps {
            steps.push(Step { at: end, rate: Some(kbit(*rate)) });
            end += Duration::from_millis(u64::from(*length) + 1);
        }
        Schedule::from_steps(steps, self.repeats.then_some(end)).expect("the steps ascend")
    }

    fn config(&self) -> Config {
        let share = f64::from(self.loss) / 255.0;
        // A little more than the least that goes with the share.
        let mean_packets = (1.0 + f64::from(self.burst)).max(1.001 * share / (1.0 - share));
        let loss = if share < 1.0 { Loss::Burst { share, mean_packets } } else { Loss::Random { share } };
        Config::builder()
            .schedule(self.schedule())
            .delay(Duration::from_micros(u64::from(self.delay_us)))
            .queue_bytes(u64::from(self.queue_bytes))
            .loss(loss)
            .seed(self.seed)
            .build()
            .expect("everything is in range")
    }

    /// Offers everything, each packet carrying its arrival time; `hurry` divides the gaps.
    fn run(&self, hurry: u64) -> (Link<Timestamp>, Vec<Verdict>, Vec<Delivery<Timestamp>>) {
        let mut link = Link::new(self.config(), Direction::Down, Timestamp::ZERO);
        let mut now = Timestamp::ZERO;
        let (mut verdicts, mut deliveries) = (Vec::new(), Vec::new());
        for (gap_us, bytes) in &self.packets {
            now += Duration::from_micros(u64::from(*gap_us) / hurry);
            verdicts.push(link.handle_packet(now, u64::from(*bytes), now));
            assert!(link.queued_bytes(now) <= u64::from(self.queue_bytes));
            deliveries.extend(std::iter::from_fn(|| link.poll_transmit(now)));
        }
        while let Some(at) = link.poll_timeout() {
            assert!(
                link.clone().poll_transmit(at - Duration::from_nanos(1)).is_none(),
                "nothing comes early"
            );
            deliveries.extend(link.poll_transmit(at));
        }
        (link, verdicts, deliveries)
    }
}

fn kbit(rate: u16) -> Rate {
    Rate::from_bits_per_sec(u64::from(rate) * 1000)
}

#[test]
fn a_link_keeps_its_promises() {
    check!().with_type::<Scenario>().for_each(|scenario| {
        let (link, verdicts, deliveries) = scenario.run(1);
        let carried = verdicts.iter().filter(|&&verdict| verdict == Verdict::Carried).count();
        let counters = link.counters();
        assert_eq!(counters.offered_packets as usize, scenario.packets.len());
        assert!(deliveries.len() <= carried);
        if scenario.repeats {
            assert_eq!(deliveries.len(), carried, "what was carried arrives");
        }
        let dropped = counters.queue_full_packets + counters.wire_full_packets;
        assert_eq!(counters.offered_packets, carried as u64 + counters.lost_packets + dropped);
        assert!(counters.queue_peak_bytes <= u64::from(scenario.queue_bytes));

        let delay = Duration::from_micros(u64::from(scenario.delay_us));
        for delivery in &deliveries {
            assert!(delivery.at >= delivery.packet + delay);
            assert_eq!(delivery.bytes, u64::from(scenario.packets[delivery.number as usize].1));
        }
        for pair in deliveries.windows(2) {
            assert!(pair[0].number < pair[1].number, "order is kept");
            assert!(pair[0].at <= pair[1].at);
        }
        never_faster_than_the_rate(scenario, &deliveries);
    });
}

/// Between any two deliveries at most as many bytes arrive as the highest rate allows, and on a constant link no
/// more than its rate.
fn never_faster_than_the_rate(scenario: &Scenario, deliveries: &[Delivery<Timestamp>]) {
    let rates = scenario.schedule().steps().iter().filter_map(|step| step.rate).collect::<Vec<_>>();
    let Some(rate) = rates.into_iter().max() else { return };
    let Some(first) = deliveries.first() else { return };
    let mut bytes = 0;
    for delivery in &deliveries[1..] {
        bytes += delivery.bytes;
        assert!(delivery.at.saturating_since(first.at) >= rate.time_for(bytes), "{bytes} B too early");
    }
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    check!().with_type::<Scenario>().for_each(|scenario| {
        assert_eq!(scenario.run(1).2, scenario.run(1).2);
    });
}

#[test]
fn loss_does_not_depend_on_timing() {
    check!().with_type::<Scenario>().for_each(|scenario| {
        let (_, slow, _) = scenario.run(1);
        let (_, fast, _) = scenario.run(50);
        for (number, verdicts) in slow.iter().zip(&fast).enumerate() {
            // A packet that the queue drops has no fate on the wire.
            assert!(
                !matches!(verdicts, (Verdict::Lost, Verdict::Carried) | (Verdict::Carried, Verdict::Lost)),
                "packet {number}: {verdicts:?}"
            );
        }
    });
}

#[test]
fn late_packets_are_overtaken_and_others_are_on_time() {
    const PACKETS: u64 = 2000;
    let (delay, late_by) = (Duration::from_millis(5), Duration::from_micros(3500));
    let config = Config::builder().delay(delay).reorder(0.1, late_by).seed(3).build().unwrap();
    let mut link = Link::new(config, Direction::Up, Timestamp::ZERO);
    let sent = |number: u64| Timestamp::ZERO + Duration::from_millis(number);
    let mut deliveries: Vec<Delivery<()>> = Vec::new();
    for number in 0..PACKETS {
        deliveries.extend(std::iter::from_fn(|| link.poll_transmit(sent(number))));
        assert_eq!(link.handle_packet(sent(number), 100, ()), Verdict::Carried);
    }
    deliveries.extend(std::iter::from_fn(|| link.poll_transmit(Timestamp::MAX)));
    assert!(deliveries.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let is_late = |delivery: &Delivery<()>| delivery.at > sent(delivery.number) + delay;
    let late: Vec<_> = deliveries.iter().filter(|delivery| is_late(delivery)).collect();
    assert!(late.iter().all(|delivery| delivery.at == sent(delivery.number) + delay + late_by));
    // Four standard errors.
    assert!((150..=250).contains(&late.len()), "{}", late.len());
    let numbers: std::collections::BTreeSet<u64> =
        deliveries.iter().map(|delivery| delivery.number).collect();
    assert_eq!(numbers.len() as u64, PACKETS, "each arrives once");
    let overtaken = deliveries.windows(2).filter(|pair| pair[0].number > pair[1].number).count();
    assert!(overtaken > late.len() / 2, "{overtaken}");
    for share in [-0.1, 1.1, f64::NAN] {
        assert!(Config::builder().reorder(share, late_by).build().is_err(), "{share}");
    }
}

#[test]
fn a_full_link_has_exactly_its_rate() {
    for (rate, bytes) in
        [("1Mbit", 1500), ("512Kibit", 1500), ("100Mbit", 1500), ("3Mbit", 577), ("7kbit", 40)]
    {
        let rate: Rate = rate.parse().unwrap();
        let config = Config::builder().rate(rate).queue_bytes(u64::MAX).build().unwrap();
        let mut link = Link::new(config, Direction::Up, Timestamp::from_nanos(12_345));
        for _ in 0..10_000 {
            link.handle_packet(Timestamp::from_nanos(12_345), bytes, ());
        }
        let last = std::iter::from_fn(|| link.poll_transmit(Timestamp::MAX)).last().unwrap();
        let expected = rate.time_for(10_000 * bytes);
        let measured = last.at.saturating_since(Timestamp::from_nanos(12_345));
        // Each packet is rounded up to a nanosecond.
        assert!(
            measured >= expected && measured - expected <= Duration::from_nanos(10_000),
            "{rate}: {measured:?}"
        );
    }
}

#[test]
fn a_change_of_rate_is_a_step_of_the_schedule() {
    check!().with_type::<(Scenario, u16, u32)>().for_each(|(scenario, to, at_us)| {
        let at = Duration::from_micros(u64::from(*at_us));
        let mut schedule: Vec<Step> = scenario.schedule().steps().to_vec();
        schedule.retain(|step| step.at < at);
        schedule.push(Step { at, rate: Some(kbit(*to)) });
        let known = Schedule::from_steps(schedule, None).expect("the steps ascend");
        let scenario = Scenario { repeats: false, ..scenario.clone() };
        let config = |schedule: Schedule| {
            let Scenario { queue_bytes, delay_us, seed, .. } = scenario;
            Config::builder()
                .schedule(schedule)
                .queue_bytes(u64::from(queue_bytes))
                .delay(Duration::from_micros(u64::from(delay_us)))
                .loss(Loss::Random { share: f64::from(scenario.loss) / 256.0 })
                .reorder(f64::from(scenario.burst) / 255.0, Duration::from_millis(3))
                .seed(seed)
                .build()
        };
        // A rate of zero from the start on is refused.
        let Ok(known) = config(known) else { return };
        let mut changed =
            Link::new(config(scenario.schedule()).expect("valid"), Direction::Up, Timestamp::ZERO);
        let mut known = Link::new(known, Direction::Up, Timestamp::ZERO);
        let change = Timestamp::ZERO + at;
        let mut now = Timestamp::ZERO;
        let mut is_changed = false;
        for (gap_us, bytes) in &scenario.packets {
            now += Duration::from_micros(u64::from(*gap_us));
            if now >= change && !std::mem::replace(&mut is_changed, true) {
                changed.set_rate(change, Some(kbit(*to)));
            }
            let bytes = u64::from(*bytes);
            assert_eq!(changed.handle_packet(now, bytes, now), known.handle_packet(now, bytes, now));
            assert_eq!(changed.queued_bytes(now), known.queued_bytes(now));
        }
        if !is_changed {
            changed.set_rate(change, Some(kbit(*to)));
        }
        assert_eq!(changed.poll_timeout(), known.poll_timeout());
        let end = Timestamp::from_nanos(u64::MAX - 1);
        let all =
            |link: &mut Link<Timestamp>| std::iter::from_fn(|| link.poll_transmit(end)).collect::<Vec<_>>();
        assert_eq!(all(&mut changed), all(&mut known));
    });
}
