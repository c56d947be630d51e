//! Two connections across an emulated link, in virtual time.

use std::time::Duration;

use bytes::Bytes;
use freshwire_choice::{Outcome, Record};
use freshwire_link::{Config, Direction, Link};
use freshwire_record::Timestamp;

use super::super::{Connection, Event, Setup};
use crate::config::ConnectionConfig;
use crate::crypto::{Keys, Protection, Secrets};
use crate::inbox::Message;
use crate::pool::Pool;
use crate::source::Queue;
use crate::wire::{Packet, Parameters, Qos};

/// Bytes of IP and UDP around each datagram.
const HEADERS: u64 = 28;

pub(crate) struct End {
    pub(crate) connection: Connection,
    pub(crate) queue: Queue,
    pub(crate) received: Vec<(Timestamp, Message)>,
    pub(crate) events: Vec<Event>,
    pub(crate) fates: Vec<(u64, Outcome)>,
    address: std::net::SocketAddr,
    /// Whether the application takes messages when they come.
    pub(crate) consumes: bool,
}

/// A datagram as it was sent.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) at: Timestamp,
    pub(crate) from: std::net::SocketAddr,
    pub(crate) to: std::net::SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Pair {
    pub(crate) now: Timestamp,
    pub(crate) ends: [End; 2],
    /// Sent packets, if a test wants them.
    pub(crate) log: Option<Vec<Sent>>,
    links: [Link<Sent>; 2],
}

impl Pair {
    pub(crate) fn new(link: Config) -> Self {
        let config = ConnectionConfig { groups: 16, ..ConnectionConfig::default() };
        Self::with(link, [config.clone(), config], Qos::default())
    }

    pub(crate) fn with(link: Config, configs: [ConnectionConfig; 2], qos: Qos) -> Self {
        let now = Timestamp::from_nanos(1_000_000_000);
        let addresses = [address(1), address(2)];
        let [a, b] = configs;
        let ends = [
            End::new(now, addresses, 0, a, &qos),
            End::new(now, [addresses[1], addresses[0]], 1, b, &qos.mirrored()),
        ];
        let links = [Link::new(link.clone(), Direction::Up, now), Link::new(link, Direction::Down, now)];
        Self { now, ends, log: None, links }
    }

    /// Puts a record into an end's queue.
    pub(crate) fn push(&mut self, end: usize, record: Record, payload: Bytes) {
        self.ends[end].queue.push(record, payload);
    }

    /// The application of an end takes messages from now on, or leaves them.
    pub(crate) fn consume(&mut self, end: usize, consumes: bool) {
        let now = self.now;
        let end = &mut self.ends[end];
        end.consumes = consumes;
        end.drain(now);
    }

    /// Another address for an end, as a NAT gives it.
    pub(crate) fn rebind(&mut self, end: usize, port: u16) {
        self.ends[end].address = address(port);
    }

    /// Goes on until `until`.
    pub(crate) fn run(&mut self, until: Timestamp) {
        loop {
            self.flush();
            let times = [
                self.ends[0].connection.poll_timeout(),
                self.ends[1].connection.poll_timeout(),
                self.links[0].poll_timeout(),
                self.links[1].poll_timeout(),
            ];
            let Some(next) = times.into_iter().flatten().min().filter(|&at| at <= until) else { break };
            self.now = self.now.max(next);
            self.deliver();
            for end in &mut self.ends {
                if end.connection.poll_timeout().is_some_and(|at| at <= self.now) {
                    end.connection.handle_timeout(self.now);
                }
            }
        }
        self.now = until;
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        self.run(self.now + time);
    }

    fn flush(&mut self) {
        for (end, link) in self.ends.iter_mut().zip(&mut self.links) {
            let mut buffer = Vec::new();
            while let Some(transmit) = end.connection.poll_transmit(self.now, &mut end.queue, &mut buffer) {
                for datagram in buffer.chunks(transmit.segment) {
                    let (from, to) = (end.address, transmit.to.address);
                    let sent = Sent { at: self.now, from, to, bytes: datagram.to_vec() };
                    if let Some(log) = &mut self.log {
                        log.push(sent.clone());
                    }
                    let _ = link.handle_packet(self.now, datagram.len() as u64 + HEADERS, sent);
                }
                buffer.clear();
            }
            end.drain(self.now);
        }
    }

    /// Hands over what has arrived by now; nothing is said to it yet.
    pub(crate) fn deliver(&mut self) {
        for (from, link) in self.links.iter_mut().enumerate() {
            while let Some(delivery) = link.poll_transmit(self.now) {
                let sent = delivery.packet;
                let Ok(Packet::Data(header, sealed)) = Packet::parse(&sent.bytes) else { panic!("not data") };
                let to = &mut self.ends[1 - from];
                // What goes to an address that a NAT has taken away arrives nowhere.
                if to.address == sent.to {
                    to.connection.handle_packet(
                        self.now,
                        sent.from.into(),
                        false,
                        header,
                        &mut sealed.to_vec(),
                    );
                    to.drain(self.now);
                }
            }
        }
    }
}

impl End {
    fn new(
        now: Timestamp,
        [address, remote]: [std::net::SocketAddr; 2],
        side: u8,
        config: ConnectionConfig,
        qos: &Qos,
    ) -> Self {
        let secrets = Secrets { send: secret(side).into(), receive: secret(1 - side).into() };
        let parameters = |maximum: Qos| Parameters {
            idle_timeout: config.idle_timeout,
            ack_delay: config.ack_delay,
            max_datagram: config.largest_datagram(),
            protection: 0,
            maximum,
            qos: *qos,
            reset: None,
        };
        let setup = Setup {
            epoch: now,
            remote: remote.into(),
            peer_id: id(1 - side),
            keys: Keys::new(Protection::Aead, &secrets),
            local: parameters(*qos),
            peer: parameters(qos.mirrored()),
            qos: *qos,
            is_initiator: side == 0,
            seed: [side; 32],
            pool: Pool::default(),
            config,
        };
        Self {
            connection: Connection::new(now, setup),
            queue: Queue::default(),
            received: Vec::new(),
            events: Vec::new(),
            fates: Vec::new(),
            address,
            consumes: true,
        }
    }

    fn drain(&mut self, now: Timestamp) {
        while let Some(event) = self.connection.poll_event() {
            self.events.push(event);
        }
        while self.consumes
            && let Some(message) = self.connection.recv(now)
        {
            self.received.push((now, message));
        }
        while let Some(fate) = self.queue.poll_fate() {
            self.fates.push(fate);
        }
    }
}

/// The number of a side's connection.
pub(crate) fn id(side: u8) -> u32 {
    7 + u32::from(side)
}

/// What a side seals its packets with.
pub(crate) fn secret(side: u8) -> [u8; 32] {
    [side; 32]
}

fn address(port: u16) -> std::net::SocketAddr {
    std::net::SocketAddr::from(([127, 0, 0, 1], port))
}

/// A record without value after `lifetime`.
pub(crate) fn record(seq: u64, generated: Timestamp, lifetime: Option<Duration>) -> Record {
    Record {
        generated,
        deadline: lifetime.map_or(Timestamp::MAX, |lifetime| generated + lifetime),
        ..Record::numbered(seq)
    }
}

/// Bytes that tell which message and place they belong to.
pub(crate) fn payload(seq: u64, len: usize) -> Bytes {
    (0..len).map(|at| (seq as usize * 31 + at * 7) as u8).collect()
}
