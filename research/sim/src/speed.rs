//! What A1's congestion control makes of fast paths: flows that send as much as goes.

use std::time::Duration;

use freshwire_a1::{ConnectionConfig, Qos};
use freshwire_link::{Config, Direction, Loss};
use freshwire_record::Rate;

use crate::flow::{FlowConfig, Side};
use crate::offer::SourceConfig;
use crate::pipe::DirectionConfig;
use crate::world::{FlowId, PathId, World};

/// A path, and the number of flows that share it from the beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedConfig {
    /// Rate of the bottleneck, both ways.
    pub rate: Rate,
    /// Round trip without a queue.
    pub round_trip: Duration,
    /// Queue in front of the bottleneck, in parts of what the path carries in a round trip.
    pub buffer: f64,
    /// Share of packets that the path loses by chance, both ways.
    pub loss: f64,
    /// Flows, from 1 to 64.
    pub flows: usize,
    /// Length of the run in round trips. The second half is measured.
    pub round_trips: u32,
    /// Seed of the path's losses and of all else that is random.
    pub seed: u64,
}

/// What the flows have made of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SpeedOutcome {
    /// Share of the rate that was delivered in the second half, less the losses by chance.
    pub used: f64,
    /// Time from the first packet until 0.9 of the rate were delivered for a round trip; `None` if they never were.
    pub filled_after: Option<Duration>,
    /// Time for which a packet waits in the queue in the second half: 50 and 95 of 100 moments.
    pub queue: [Duration; 2],
    /// Share of packets that the full queue dropped, in the whole run and in the second half.
    pub dropped: [f64; 2],
    /// Least share of a flow in the second half as a part of an even one, and the largest.
    pub shares: [f64; 2],
    /// Datagrams of the run.
    pub datagrams: u64,
}

impl SpeedConfig {
    /// Bytes that the path carries in a round trip.
    pub fn carried(&self) -> u64 {
        self.rate.bytes_in(self.round_trip)
    }

    /// Runs the flows.
    ///
    /// # Panics
    ///
    /// If the loss is no share.
    pub fn run(&self) -> SpeedOutcome {
        let mut world = World::new(self.seed);
        let path = world.add_path(self.direction(), self.direction());
        let flows: Vec<FlowId> = (0..self.flows)
            .map(|_| {
                let near = world.add_near();
                world.add_flow(near, path, self.flow())
            })
            .collect();
        Measurement::new(self, world, path, flows).run()
    }

    fn direction(&self) -> DirectionConfig {
        let queue = (self.carried() as f64 * self.buffer) as u64;
        let link = Config::builder()
            .rate(self.rate)
            .delay(self.round_trip / 2)
            .queue_bytes(queue)
            .in_flight_bytes(u64::MAX)
            .loss(if self.loss > 0.0 { Loss::Random { share: self.loss } } else { Loss::None })
            .seed(self.seed);
        DirectionConfig { link: link.build().expect("the loss is a share"), ..DirectionConfig::default() }
    }

    fn flow(&self) -> FlowConfig {
        let bytes = (self.carried() / 16).clamp(LEAST_RECORD, MOST_RECORD) as u32;
        let offer = SourceConfig::Bulk { bytes };
        let end = World::START + self.round_trip * self.round_trips;
        FlowConfig {
            near: ConnectionConfig::default(),
            far: ConnectionConfig::default(),
            qos: Qos {
                max_send_message: Qos::MAX_MESSAGE,
                max_receive_message: Qos::MAX_MESSAGE,
                outstanding: Qos::MAX_OUTSTANDING,
                ..Qos::default()
            },
            offers: [Some((offer, World::START, end)), None],
            ..FlowConfig::default()
        }
    }
}

struct Measurement<'a> {
    config: &'a SpeedConfig,
    world: World,
    path: PathId,
    flows: Vec<FlowId>,
    /// Delivered bytes at each step.
    delivered: Vec<u64>,
    queues: Vec<Duration>,
}

impl<'a> Measurement<'a> {
    fn new(config: &'a SpeedConfig, world: World, path: PathId, flows: Vec<FlowId>) -> Self {
        Self { config, world, path, flows, delivered: vec![0], queues: Vec::new() }
    }

    fn run(mut self) -> SpeedOutcome {
        let half = self.config.round_trips / 2;
        self.round_trips(half);
        self.queues.clear();
        let (before, received) = (self.world.counters(self.path, Direction::Up), self.received());
        self.round_trips(self.config.round_trips - half);
        let after = self.world.counters(self.path, Direction::Up);
        let time = self.config.round_trip * (self.config.round_trips - half);
        let bytes = after.delivered_bytes - before.delivered_bytes;
        let full = self.config.rate.bytes_in(time) as f64 * (1.0 - self.config.loss);
        let shares = self.shares(&received);
        let share = |dropped: u64, offered: u64| dropped as f64 / offered.max(1) as f64;
        self.queues.sort_unstable();
        let queue = [50, 95].map(|percent| self.queues[self.queues.len() * percent / 100]);
        SpeedOutcome {
            used: bytes as f64 / full,
            filled_after: self.filled_after(),
            queue,
            dropped: [
                share(after.queue_full_packets, after.offered_packets),
                share(
                    after.queue_full_packets - before.queue_full_packets,
                    after.offered_packets - before.offered_packets,
                ),
            ],
            shares,
            datagrams: self.world.datagrams(),
        }
    }

    fn round_trips(&mut self, count: u32) {
        for _ in 0..count * STEPS {
            self.world.run_for(self.config.round_trip / STEPS);
            self.delivered.push(self.world.counters(self.path, Direction::Up).delivered_bytes);
            let queued = self.world.queued_bytes(self.path, Direction::Up);
            self.queues.push(self.config.rate.time_for(queued));
        }
    }

    fn received(&self) -> Vec<u64> {
        let received =
            |flow: &FlowId| self.world.connection(*flow, Side::Far).map(|far| far.stats().bytes_received);
        self.flows.iter().map(|flow| received(flow).unwrap_or_default()).collect()
    }

    /// The least and the largest share of a flow since it had `received` bytes.
    fn shares(&self, received: &[u64]) -> [f64; 2] {
        let each: Vec<u64> =
            self.received().iter().zip(received).map(|(after, before)| after - before).collect();
        let even = each.iter().sum::<u64>() as f64 / each.len() as f64;
        let share = |bytes: Option<&u64>| bytes.map_or(0.0, |bytes| *bytes as f64 / even.max(1.0));
        [share(each.iter().min()), share(each.iter().max())]
    }

    fn filled_after(&self) -> Option<Duration> {
        let steps = STEPS as usize;
        let enough = (self.config.carried() as f64 * 0.9 * (1.0 - self.config.loss)) as u64;
        let filled = (steps..self.delivered.len())
            .find(|&step| self.delivered[step] - self.delivered[step - steps] >= enough)?;
        Some(self.config.round_trip * (filled - steps) as u32 / STEPS)
    }
}

/// Steps of a round trip in which the queue is looked at. Chosen, not measured.
const STEPS: u32 = 16;
/// Bytes of a record: a sixteenth of what the path carries, within these. Chosen, not measured.
const LEAST_RECORD: u64 = 4 << 10;
const MOST_RECORD: u64 = 1 << 20;
