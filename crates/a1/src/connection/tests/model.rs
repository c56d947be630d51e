//! Random operations on two connections across a random link, against what must hold whatever happens.

use std::collections::BTreeMap;
use std::time::Duration;

use bolero::{TypeGenerator, check};
use freshwire_choice::Outcome;
use freshwire_link::{Config, Loss};
use freshwire_record::{Rate, Timestamp};

use super::pair::{End, Pair, payload, record};
use crate::config::ConnectionConfig;
use crate::wire::Qos;

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Step {
    /// Push a record of `hundreds` of bytes, with a lifetime of this number of tens of milliseconds; 0 is for
    /// ever.
    Push { end: bool, hundreds: u8, lifetime: u8 },
    /// Drop the queued record with this number.
    Drop { end: bool, seq: u8 },
    /// Replace the payload of the queued record with this number.
    Replace { end: bool, seq: u8, hundreds: u8 },
    /// Let this number of milliseconds pass.
    Wait { ms: u8 },
    /// The application takes messages from now on, or leaves them.
    Consume { end: bool, consumes: bool },
    /// A NAT gives the near end another port.
    Rebind { port: u8 },
    /// Another agreement, with small messages to send or to accept, or without.
    Qos { end: bool, outstanding: u8, slow: bool, small: [bool; 2] },
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct World {
    rate: u8,
    delay: u8,
    loss: u8,
    burst: bool,
    seed: u8,
    in_order: bool,
    fec: bool,
}

/// Requests to one end.
#[derive(Default)]
struct Model {
    /// Payload length and deadline of each record that was pushed and neither dropped nor replaced since.
    records: BTreeMap<u64, (usize, Option<Timestamp>)>,
    dropped: u64,
}

fn link(world: World) -> Config {
    let share = f64::from(world.loss % 64) / 200.0;
    let loss = match world.burst {
        _ if share == 0.0 => Loss::None,
        true => Loss::Burst { share, mean_packets: 3.0 },
        false => Loss::Random { share },
    };
    Config::builder()
        .rate(Rate::from_bits_per_sec(200_000 + u64::from(world.rate) * 40_000))
        .delay(Duration::from_millis(u64::from(world.delay % 128)))
        .loss(loss)
        .seed(u64::from(world.seed))
        .build()
        .expect("a link")
}

fn apply(pair: &mut Pair, models: &mut [Model; 2], step: Step) {
    match step {
        Step::Push { end, hundreds, lifetime } => {
            let end = usize::from(end);
            let seq = models[end].records.len() as u64 + models[end].dropped;
            let lifetime = (lifetime != 0).then(|| Duration::from_millis(u64::from(lifetime) * 10));
            let record = record(seq, pair.now, lifetime);
            let len = usize::from(hundreds) * 100;
            pair.push(end, record, payload(seq, len));
            models[end].records.insert(seq, (len, lifetime.map(|lifetime| pair.now + lifetime)));
        }
        Step::Drop { end, seq } => {
            let end = usize::from(end);
            if pair.ends[end].queue.drop_seq(u64::from(seq)) {
                models[end].records.remove(&u64::from(seq));
                models[end].dropped += 1;
            }
        }
        Step::Replace { end, seq, hundreds } => {
            let end = usize::from(end);
            let (seq, len) = (u64::from(seq), usize::from(hundreds) * 100);
            if pair.ends[end].queue.replace(seq, payload(seq, len))
                && let Some(known) = models[end].records.get_mut(&seq)
            {
                known.0 = len;
            }
        }
        Step::Wait { ms } => pair.run_for(Duration::from_millis(u64::from(ms))),
        Step::Consume { end, consumes } => pair.consume(usize::from(end), consumes),
        Step::Rebind { port } => pair.rebind(0, 100 + u16::from(port)),
        Step::Qos { end, outstanding, slow, small } => {
            let send_average = slow.then(|| Rate::from_bits_per_sec(100_000));
            let outstanding = u32::from(outstanding % 64) + 1;
            let [max_send_message, max_receive_message] =
                small.map(|small| if small { SMALL } else { 1 << 20 });
            // Refused while the last change is pending.
            let _ = pair.ends[usize::from(end)].connection.set_qos(Qos {
                outstanding,
                send_average,
                max_send_message,
                max_receive_message,
                ..Qos::default()
            });
        }
    }
}

fn verify(pair: &Pair, models: &[Model; 2], in_order: bool) {
    for (from, model) in models.iter().enumerate() {
        let (sender, receiver) = (&pair.ends[from], &pair.ends[1 - from]);
        let mut seen = BTreeMap::new();
        for (at, message) in &receiver.received {
            let Some((len, deadline)) = model.records.get(&message.seq) else {
                panic!("{} was dropped, and came", message.seq)
            };
            assert_eq!(message.data, payload(message.seq, *len));
            assert!(seen.insert(message.seq, ()).is_none(), "{} came twice", message.seq);
            let is_stale = deadline.is_some_and(|deadline| *at > deadline + SKEW);
            assert!(!is_stale || message.late, "{} is late, unmarked", message.seq);
        }
        if in_order {
            assert!(receiver.received.is_sorted_by_key(|(_, message)| message.id));
        }
        let fates: BTreeMap<u64, Outcome> = sender.fates.iter().copied().collect();
        assert_eq!(fates.len(), sender.fates.len(), "a record has one fate");
        for (seq, (len, deadline)) in &model.records {
            match fates.get(seq) {
                Some(Outcome::Acked) => {
                    assert!(seen.contains_key(seq), "{seq} was acknowledged, and did not come");
                }
                Some(Outcome::Dropped(_)) => assert!(deadline.is_some(), "{seq} is reliable"),
                Some(outcome) => panic!("{seq} was settled as {outcome}"),
                // A message larger than agreed is refused before its first byte is sent.
                None => {
                    assert!(deadline.is_some() || *len > SMALL as usize, "{seq} is reliable and has no fate")
                }
            }
        }
    }
}

#[test]
fn nothing_reliable_is_lost_and_nothing_stale_is_unmarked() {
    check!().with_type::<(World, Vec<Step>)>().with_max_len(512).for_each(|(world, steps)| {
        let config = ConnectionConfig {
            in_order: world.in_order,
            fec_layers: u8::from(world.fec),
            ..ConnectionConfig::default()
        };
        // Where nothing else makes it speak, the end behind the NAT has to, or nobody finds it at its new address.
        let near = ConnectionConfig { keep_alive: Some(Duration::from_secs(2)), ..config.clone() };
        let mut pair = Pair::with(link(*world), [near, config], Qos::default());
        for end in &mut pair.ends {
            end.connection.set_policy(Box::new(freshwire_choice::expiring()));
        }
        let mut models = [Model::default(), Model::default()];
        for step in steps.iter().take(STEPS) {
            apply(&mut pair, &mut models, *step);
        }
        for end in 0..2 {
            pair.consume(end, true);
        }
        for _ in 0..60 {
            for end in pair.ends.iter_mut().filter(|end| *end.connection.qos() != Qos::default()) {
                // Whatever slow agreement is pending, the end is to come.
                let _ = end.connection.set_qos(Qos::default());
            }
            pair.run_for(Duration::from_secs(2));
            let is_done = |end: &End| {
                end.queue.is_empty() && end.connection.is_settled() && !end.connection.is_qos_pending()
            };
            if pair.ends.iter().all(is_done) {
                break;
            }
        }
        // Abandoned messages are still to be reported, so that messages in order come.
        pair.run_for(Duration::from_secs(10));
        assert!(pair.ends.iter().all(|end| end.events.iter().all(|event| !is_end(event))));
        let [near, far] = &pair.ends;
        assert_eq!(near.connection.qos().mirrored(), *far.connection.qos());
        verify(&pair, &models, world.in_order);
    });
}

fn is_end(event: &super::super::Event) -> bool {
    matches!(event, super::super::Event::Closed(_))
}

/// What the estimate of the sender's clock may be off: a message that came within it after its deadline may be unmarked.
const SKEW: Duration = Duration::from_millis(260);
/// Steps of one run at most.
const STEPS: usize = 60;
/// The largest message where they are small.
const SMALL: u32 = 5_000;
