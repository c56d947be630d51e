//! Random worlds. Whatever the paths and the applications do, each record that arrives is the one that was
//! sent, once, and marked if it is late. Nothing reliable is lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bolero::{TypeGenerator, check, produce};
use freshwire_a1::{Closed, Congestion, ConnectionConfig, Protection, Qos};
use freshwire_choice::{Outcome, Reason, Record};
use freshwire_link::{Config, Direction, Loss};
use freshwire_record::{Rate, Timestamp};
use freshwire_sim::{
    DirectionConfig, Duplicate, Ending, FlowConfig, FlowId, PathId, PolicyKind, Reorder, Side, World,
};

/// A world before anything happens in it.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Plan {
    ways: [Road; 2],
    flows: u8,
    seed: u32,
    policy: u8,
    congestion: u8,
    unprotected: bool,
    fec: bool,
    /// Processes die; their applications then take what comes at once, in any order: what a process had and did not hand
    /// on dies with it.
    restarts: bool,
    in_order: bool,
}

/// One direction of the path.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Road {
    rate: u8,
    delay: u8,
    queue: u8,
    loss: u8,
    burst: bool,
    reorder: u8,
    duplicate: u8,
    damage: u8,
    outage: u8,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Step {
    /// A record of `len` hundred bytes that is of use for `life` tens of milliseconds; 0 is for ever.
    Push {
        flow: u8,
        far: bool,
        hundreds: u8,
        lifetime: u8,
        layer: u8,
    },
    /// The application drops one of the last records.
    Drop {
        flow: u8,
        far: bool,
        back: u8,
    },
    /// It replaces one of the last records.
    Replace {
        flow: u8,
        far: bool,
        back: u8,
        hundreds: u8,
    },
    Wait {
        ms: u8,
    },
    Stall {
        flow: u8,
        far: bool,
    },
    Resume {
        flow: u8,
        far: bool,
    },
    Rebind {
        flow: u8,
    },
    Restart {
        flow: u8,
        far: bool,
    },
    UpdateKeys {
        flow: u8,
        far: bool,
    },
    Qos {
        flow: u8,
        far: bool,
        outstanding: u8,
        slow: bool,
    },
    /// Somebody beside the path, who is faster than it or later, sends a datagram again, as it was or otherwise, from its
    /// sender's address or from elsewhere.
    Attack {
        back: u8,
        how: Attack,
        elsewhere: bool,
    },
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Attack {
    Replay,
    Flip {
        place: u16,
    },
    Truncate {
        place: u16,
    },
    Lengthen {
        by: u16,
    },
    Overwrite {
        place: u16,
        with: u8,
    },
    /// The clear bits of its first byte.
    Flags {
        bits: u8,
    },
}

impl Attack {
    fn change(self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        let at = |place: u16| usize::from(place) % len.max(1);
        match self {
            Self::Replay => {}
            Self::Flip { place } => bytes[at(place)] ^= 1 << (place % 8),
            Self::Truncate { place } => bytes.truncate(at(place)),
            Self::Lengthen { by } => bytes.resize((len + usize::from(by)).min(65_507), 0x5a),
            Self::Overwrite { place, with } => bytes[at(place)..].fill(with),
            Self::Flags { bits } => bytes[0] ^= bits % 16,
        }
    }
}

impl Road {
    fn way(self, seed: u32, damage: bool) -> DirectionConfig {
        let share = f64::from(self.loss % 64) / 200.0;
        let loss = match self.burst {
            _ if share == 0.0 => Loss::None,
            true => Loss::Burst { share, mean_packets: 3.0 },
            false => Loss::Random { share },
        };
        let mut link = Config::builder()
            .rate(Rate::from_bits_per_sec(200_000 + u64::from(self.rate) * 60_000))
            .delay(Duration::from_millis(u64::from(self.delay)))
            .queue_bytes(3000 + u64::from(self.queue) * 400)
            .loss(loss)
            .seed(u64::from(seed));
        if self.outage > 192 {
            link = link.outage(Duration::from_secs(2), Duration::from_millis(u64::from(self.outage) * 8));
        }
        let often = |value: u8| f64::from(value.saturating_sub(128)) / 256.0;
        DirectionConfig {
            link: link.build().expect("a link"),
            reorder: Some(Reorder { share: often(self.reorder), by: Duration::from_millis(60) }),
            duplicate: Some(Duplicate {
                share: often(self.duplicate),
                copies: 2,
                within: Duration::from_millis(100),
            }),
            damage: if damage { often(self.damage) / 2.0 } else { 0.0 },
            mark_above: self.queue.is_multiple_of(2).then_some(2000),
        }
    }
}

struct Run {
    plan: Plan,
    world: World,
    path: PathId,
    flows: Vec<FlowId>,
}

impl Run {
    fn new(plan: Plan) -> Self {
        let mut world = World::new(u64::from(plan.seed));
        let protection = if plan.unprotected { Protection::DangerousPlain } else { Protection::Aead };
        // A checksum of 32 bits is not made for that many wrong bits.
        let [up, down] = plan.ways.map(|road| road.way(plan.seed, !plan.unprotected));
        let path = world.add_path(up, down);
        let mut connection = ConnectionConfig::default();
        // A connection ends in silence only where processes die.
        connection.idle_timeout =
            if plan.restarts { Duration::from_secs(8) } else { Duration::from_secs(9999) };
        connection.keep_alive = plan.restarts.then_some(Duration::from_secs(1));
        connection.in_order = plan.in_order && !plan.restarts;
        connection.fec_layers = if plan.fec { 3 } else { 0 };
        connection.congestion = [Congestion::Copa, Congestion::Copa, Congestion::Cubic, Congestion::NewReno]
            [usize::from(plan.congestion % 4)];
        let policy = [PolicyKind::Fifo, PolicyKind::Expiring, PolicyKind::Deadline, PolicyKind::Layered]
            [usize::from(plan.policy % 4)];
        let near = world.add_near();
        let flow = |_| {
            let (near_config, far) = (connection.clone(), connection.clone());
            let config = FlowConfig { near: near_config, far, protection, policy, ..FlowConfig::default() };
            world.add_flow(near, path, config)
        };
        let flows = (0..1 + plan.flows % 4).map(flow).collect();
        world.run_for(Duration::from_millis(100));
        Self { plan, world, path, flows }
    }

    fn end(&self, flow: u8, far: bool) -> (FlowId, Side) {
        let flow = self.flows[usize::from(flow) % self.flows.len()];
        (flow, if far { Side::Far } else { Side::Near })
    }

    /// The number of a record of the last ones.
    fn recent(&self, (flow, side): (FlowId, Side), back: u8) -> u64 {
        (self.world.feed(flow, side).entries().len() as u64).saturating_sub(1 + u64::from(back % 8))
    }

    fn apply(&mut self, step: Step) {
        let now = self.world.now();
        match step {
            Step::Attack { back, how, elsewhere } if !self.plan.unprotected => {
                let overheard = self.world.overheard();
                let place = overheard.len().saturating_sub(1 + usize::from(back % 64));
                if let Some(mut datagram) = overheard.get(place).cloned() {
                    how.change(&mut datagram.bytes);
                    if elsewhere {
                        datagram.from = ([203, 0, 113, back], 9).into();
                    }
                    self.world.inject(&datagram);
                }
            }
            Step::Push { flow, far, hundreds, lifetime, layer } => {
                let (flow, side) = self.end(flow, far);
                let lifetime = (lifetime != 0).then(|| Duration::from_millis(u64::from(lifetime) * 10));
                let record = Record {
                    len: u32::from(hundreds) * 100,
                    layer: layer % 4,
                    generated: now,
                    deadline: lifetime.map_or(Timestamp::MAX, |lifetime| now + lifetime),
                    ..Record::numbered(0)
                };
                self.world.feed_mut(flow, side).push(record);
            }
            Step::Drop { flow, far, back } => {
                let end = self.end(flow, far);
                let seq = self.recent(end, back);
                self.world.feed_mut(end.0, end.1).drop_seq(now, seq);
            }
            Step::Replace { flow, far, back, hundreds } => {
                let end = self.end(flow, far);
                let seq = self.recent(end, back);
                self.world.feed_mut(end.0, end.1).replace(seq, u32::from(hundreds) * 100);
            }
            Step::Wait { ms } => self.world.run_for(Duration::from_millis(u64::from(ms))),
            Step::Stall { flow, far } if !self.plan.restarts => {
                let (flow, side) = self.end(flow, far);
                self.world.consume(flow, side, false);
            }
            Step::Resume { flow, far } => {
                let (flow, side) = self.end(flow, far);
                self.world.consume(flow, side, true);
            }
            Step::Rebind { flow } => self.world.rebind(self.end(flow, false).0),
            Step::Restart { flow, far } if self.plan.restarts => {
                let (flow, side) = self.end(flow, far);
                self.world.restart(flow, side);
            }
            Step::Stall { .. } | Step::Restart { .. } | Step::Attack { .. } => {}
            Step::UpdateKeys { flow, far } => {
                let (flow, side) = self.end(flow, far);
                if let Some(connection) = self.world.connection_mut(flow, side) {
                    // Refused before the peer has confirmed the present ones.
                    let _ = connection.update_keys();
                }
            }
            Step::Qos { flow, far, outstanding, slow } => {
                let (flow, side) = self.end(flow, far);
                let outstanding = 1 + u32::from(outstanding % 64);
                let send_average = slow.then(|| Rate::from_bits_per_sec(100_000));
                let qos = Qos { outstanding, send_average, ..Qos::default() };
                if let Some(connection) = self.world.connection_mut(flow, side) {
                    // Refused while the last change is pending.
                    let _ = connection.set_qos(qos);
                }
            }
        }
    }

    /// Everything is as it should be again, and the world goes on until nothing is left to do.
    fn settle(&mut self) {
        for flow in self.flows.clone() {
            for side in Side::BOTH {
                self.world.consume(flow, side, true);
            }
        }
        for _ in 0..120 {
            self.world.run_for(Duration::from_secs(2));
            for flow in self.flows.clone() {
                for side in Side::BOTH {
                    if let Some(connection) = self.world.connection_mut(flow, side) {
                        let _ = connection.set_qos(Qos::default());
                    }
                }
            }
            if self.world.is_settled() {
                break;
            }
        }
        self.world.run_for(Duration::from_secs(5));
    }

    fn verify(&self) {
        assert!(self.world.is_settled(), "something is left to do");
        let slowest = Direction::BOTH.map(|direction| self.world.path_stats(self.path, direction).slowest);
        for &flow in &self.flows {
            // The two ends' times begin with different packets of the handshake.
            let slowest = slowest.into_iter().sum::<Duration>() + self.world.flow(flow).slowest_handshake();
            for side in Side::BOTH {
                let feed = self.world.feed(flow, side);
                assert_eq!(feed.faults(), []);
                for entry in feed.entries() {
                    let seq = entry.record.seq;
                    let (_, ending) = entry.ending.expect("it is settled");
                    let is_reliable = entry.record.deadline == Timestamp::MAX;
                    match ending {
                        Ending::Committed(Outcome::Acked) => {
                            assert!(entry.arrival.is_some(), "{seq} was acknowledged, and did not come");
                        }
                        Ending::Dropped(Reason::Application) => {}
                        ending => assert!(!is_reliable, "{seq} is reliable, and was {ending:?}"),
                    }
                    let Some(arrival) = entry.arrival else { continue };
                    let off = arrival.age_error;
                    assert!(off <= slowest, "the age of {seq} is off by {off:?}");
                    let is_late = arrival.at > entry.record.deadline + slowest;
                    assert!(!is_late || arrival.marked_late, "{seq} is late, unmarked");
                }
                for (_, closed) in self.world.flow(flow).closings(side) {
                    let is_of_a_restart = matches!(closed, Closed::Silent | Closed::PeerRestarted);
                    assert!(is_of_a_restart && self.plan.restarts, "{closed}");
                }
            }
        }
    }
}

#[test]
fn every_record_is_checked_and_nothing_reliable_is_lost() {
    let (connections, records) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worlds = (produce::<Plan>(), produce::<Vec<Step>>().with().len(0..=STEPS));
    check!().with_generator(worlds).with_iterations(WORLDS).with_max_len(1 << 14).for_each(
        |(plan, steps)| {
            let mut run = Run::new(*plan);
            for step in steps {
                run.apply(*step);
            }
            run.settle();
            run.verify();
            for &flow in &run.flows {
                for side in Side::BOTH {
                    connections.fetch_add(run.world.flow(flow).connected_at(side).len(), Ordering::Relaxed);
                    records.fetch_add(run.world.feed(flow, side).entries().len(), Ordering::Relaxed);
                }
            }
        },
    );
    println!(
        "{} connections, {} records",
        connections.load(Ordering::Relaxed) / 2,
        records.load(Ordering::Relaxed)
    );
}

/// Worlds in a short run.
const WORLDS: usize = 800;
/// Steps in a world at most.
const STEPS: usize = 150;
