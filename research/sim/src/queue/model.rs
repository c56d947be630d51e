use std::collections::VecDeque;
use std::time::Duration;

use freshwire_push::Threshold;

use super::config::{Config, ConfigError, Reading, Spread};
use crate::rng::Rng;

/// The arrival rate is measured over at least this long, as a receiver does from look to look: the inverse of a single gap says
/// little. A tick counts as a second for the threshold, whose rule has no unit of time.
const RATE_TICKS: f64 = 1.0;

/// What one experiment has come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Mean length of the first socket's buffer over all its observations, as SimPy's `Monitor.mean()` of the
    /// article's time counts it. There is one observation each time a packet is put there or refused, and each time
    /// packets are taken. In packets; 0 without an observation.
    pub mean_length: f64,
    /// Mean length of the first socket's buffer over time, in packets.
    pub time_mean_length: f64,
    /// Length of the first socket's buffer at each observation: time in ticks, packets.
    pub lengths: Vec<(f64, usize)>,
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that the full NIC queue refused.
    pub nic_refused: u64,
    /// Packets that a full socket buffer refused.
    pub refused: u64,
    /// Times at which a socket buffer became full and refused packets; refusals without a take between them count once.
    pub overflows: u64,
    /// Times at which a process got packets: by `recv()` or by a push.
    pub takes: u64,
    /// The pushes among them.
    pub pushes: u64,
    /// Packets that processes got.
    pub taken: u64,
    /// Packets that still wait: in the NIC queue, in transactions and in socket buffers.
    pub left: u64,
    /// Time in which the system had nothing to do, in ticks.
    pub idle_ticks: f64,
}

/// Runs one experiment. The same configuration and seed give the same outcome.
///
/// # Errors
///
/// As [`Config::check`].
pub fn simulate(config: &Config, seed: u64) -> Result<Outcome, ConfigError> {
    config.check()?;
    let mut machine = Machine::new(config, seed);
    while machine.step() {}
    Ok(machine.finish())
}

/// A `recv()` in progress.
#[derive(Clone, Copy, Debug)]
struct Receive {
    process: usize,
    left_ticks: f64,
}

struct Machine<'a> {
    config: &'a Config,
    now: f64,
    next_arrival: f64,
    /// Arrivals since the threshold was last given the rate, and when that was.
    unreported: f64,
    reported_at: f64,
    waiting: usize,
    /// End and packets of each transaction, by end; more than one only where they overlap.
    transactions: VecDeque<(f64, usize)>,
    /// When the pushes end that follow a transaction; the system works until then.
    pushing_until: f64,
    sockets: Vec<Socket>,
    /// Kept while the system interrupts it.
    receive: Option<Receive>,
    /// The process to look at first when the next `recv()` begins.
    turn: usize,
    observed: f64,
    area: f64,
    outcome: Outcome,
    arrivals: Rng,
    spread: Rng,
    receives: Rng,
    pushes: Rng,
}

struct Socket {
    length: usize,
    is_overflowing: bool,
    threshold: Threshold,
}

enum Event {
    Arrival,
    Transaction,
    PushesDone,
    Received,
}

impl<'a> Machine<'a> {
    fn new(config: &'a Config, seed: u64) -> Self {
        let socket = || Socket {
            length: 0,
            is_overflowing: false,
            threshold: Threshold::new(config.socket_packets as f64),
        };
        let mut arrivals = Rng::new(seed, 0);
        let next_arrival = exponential(&mut arrivals, config.arrival_ticks);
        Self {
            config,
            now: 0.0,
            next_arrival,
            unreported: 0.0,
            reported_at: 0.0,
            waiting: 0,
            transactions: VecDeque::new(),
            pushing_until: 0.0,
            sockets: (0..config.processes).map(|_| socket()).collect(),
            receive: None,
            turn: 0,
            observed: 0.0,
            area: 0.0,
            outcome: Outcome::default(),
            arrivals,
            spread: Rng::new(seed, 1),
            receives: Rng::new(seed, 2),
            pushes: Rng::new(seed, 3),
        }
    }

    /// The next event; `false` when the experiment is over.
    fn step(&mut self) -> bool {
        let is_idle = self.is_idle();
        let mut next = (self.next_arrival, Event::Arrival);
        if let Some((end, _)) = self.transactions.front() {
            next = earlier(next, *end, Event::Transaction);
        } else if self.pushing_until > self.now {
            next = earlier(next, self.pushing_until, Event::PushesDone);
        } else if let Some(receive) = self.receive {
            next = earlier(next, self.now + receive.left_ticks, Event::Received);
        }
        let (at, event) = next;
        let end = at.min(self.config.length_ticks);
        let passed = end - self.now;
        self.area += self.sockets[0].length as f64 * passed;
        if is_idle {
            self.outcome.idle_ticks += passed;
            if let Some(receive) = &mut self.receive {
                receive.left_ticks -= passed;
            }
        }
        self.now = end;
        if at > self.config.length_ticks {
            return false;
        }
        match event {
            Event::Arrival => self.arrive(),
            Event::Transaction => self.end_transaction(),
            Event::PushesDone => {}
            Event::Received => self.received(),
        }
        self.begin_transactions();
        self.begin_receive();
        true
    }

    /// The system has nothing to do, and processes may run.
    fn is_idle(&self) -> bool {
        self.waiting == 0 && self.transactions.is_empty() && self.pushing_until <= self.now
    }

    fn arrive(&mut self) {
        self.next_arrival = self.now + exponential(&mut self.arrivals, self.config.arrival_ticks);
        self.outcome.arrived += 1;
        self.unreported += 1.0;
        let elapsed = self.now - self.reported_at;
        if elapsed >= RATE_TICKS {
            for socket in &mut self.sockets {
                // The article tracks one arrival rate, that of the system.
                socket.threshold.arrived(self.unreported, Duration::from_secs_f64(elapsed));
            }
            (self.unreported, self.reported_at) = (0.0, self.now);
        }
        let in_transactions: usize = self.transactions.iter().map(|(_, packets)| packets).sum();
        if self.waiting + in_transactions >= self.config.nic_packets {
            self.outcome.nic_refused += 1;
        } else {
            self.waiting += 1;
        }
    }

    fn begin_transactions(&mut self) {
        if self.pushing_until > self.now || self.waiting == 0 {
            return;
        }
        let end = self.now + self.config.transaction_ticks;
        match self.config.reading {
            Reading::Overlapping => {
                let waiting = std::mem::take(&mut self.waiting);
                self.transactions.extend((0..waiting).map(|_| (end, 1)));
            }
            Reading::Batch if self.transactions.is_empty() => {
                self.transactions.push_back((end, std::mem::take(&mut self.waiting)));
            }
            Reading::Serial if self.transactions.is_empty() => {
                self.waiting -= 1;
                self.transactions.push_back((end, 1));
            }
            Reading::Batch | Reading::Serial => {}
        }
    }

    fn end_transaction(&mut self) {
        let Some((_, packets)) = self.transactions.pop_front() else { return };
        for _ in 0..packets {
            let socket = match self.config.spread {
                Spread::First => 0,
                Spread::Even => self.spread.below(self.sockets.len() as u64) as usize,
            };
            self.check_point(socket);
            self.deliver(socket);
        }
    }

    /// Empties the socket's buffer if it holds more than its threshold.
    fn check_point(&mut self, index: usize) {
        let Some(push) = self.config.push else { return };
        let socket = &mut self.sockets[index];
        if !socket.threshold.is_due(socket.length as f64) {
            return;
        }
        let ticks = exponential(&mut self.pushes, push.mean_ticks);
        socket.threshold.pushed(Duration::from_secs_f64(ticks));
        self.pushing_until = self.pushing_until.max(self.now) + ticks;
        self.outcome.pushes += 1;
        self.take(index, push.packets);
    }

    fn deliver(&mut self, index: usize) {
        let socket = &mut self.sockets[index];
        if socket.length < self.config.socket_packets {
            socket.length += 1;
        } else {
            self.outcome.refused += 1;
            self.outcome.overflows += u64::from(!socket.is_overflowing);
            socket.is_overflowing = true;
        }
        self.observe(index);
    }

    fn begin_receive(&mut self) {
        if self.receive.is_some() || !self.is_idle() {
            return;
        }
        let count = self.sockets.len();
        let mut in_turn = (0..count).map(|step| (self.turn + step) % count);
        let Some(process) = in_turn.find(|process| self.sockets[*process].length > 0) else { return };
        self.turn = (process + 1) % count;
        let left_ticks = exponential(&mut self.receives, self.config.receive_ticks);
        self.receive = Some(Receive { process, left_ticks });
    }

    fn received(&mut self) {
        if let Some(receive) = self.receive.take()
            // A push may have emptied the buffer in the meantime; that was the take.
            && self.sockets[receive.process].length > 0
        {
            self.take(receive.process, self.config.receive_packets);
        }
    }

    fn take(&mut self, index: usize, most: usize) {
        let socket = &mut self.sockets[index];
        let packets = socket.length.min(most);
        socket.length -= packets;
        socket.is_overflowing = false;
        self.outcome.takes += 1;
        self.outcome.taken += packets as u64;
        self.observe(index);
    }

    fn observe(&mut self, index: usize) {
        if index == 0 {
            let length = self.sockets[0].length;
            self.observed += length as f64;
            self.outcome.lengths.push((self.now, length));
        }
    }

    fn finish(mut self) -> Outcome {
        let in_transactions: usize = self.transactions.iter().map(|(_, packets)| packets).sum();
        let in_sockets: usize = self.sockets.iter().map(|socket| socket.length).sum();
        self.outcome.left = (self.waiting + in_transactions + in_sockets) as u64;
        self.outcome.time_mean_length = self.area / self.config.length_ticks;
        self.outcome.mean_length = self.observed / self.outcome.lengths.len().max(1) as f64;
        self.outcome
    }
}

/// The earlier of two events; the first of them if they are at the same time.
fn earlier(first: (f64, Event), at: f64, event: Event) -> (f64, Event) {
    if at < first.0 { (at, event) } else { first }
}

/// An exponentially distributed time.
fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.share()).ln()
}
