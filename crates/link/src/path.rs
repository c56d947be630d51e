use freshwire_record::{Rate, Timestamp};

use crate::config::Config;
use crate::direction::Direction;
use crate::link::{Delivery, Link, Verdict};

/// Both directions between a near and a far side. They share nothing.
#[derive(Clone, Debug)]
pub struct Path<T> {
    up: Link<T>,
    down: Link<T>,
}

impl<T> Path<T> {
    /// An idle path. Schedules count from `start`.
    pub fn new(up: Config, down: Config, start: Timestamp) -> Self {
        Self { up: Link::new(up, Direction::Up, start), down: Link::new(down, Direction::Down, start) }
    }

    /// As [`Link::handle_packet`] of that direction.
    pub fn handle_packet(&mut self, now: Timestamp, direction: Direction, bytes: u64, packet: T) -> Verdict {
        self.link_mut(direction).handle_packet(now, bytes, packet)
    }

    /// The earliest packet that has arrived by `now`, in either direction.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<(Direction, Delivery<T>)> {
        let direction = match (self.up.poll_timeout(), self.down.poll_timeout()) {
            (Some(up), Some(down)) if down < up => Direction::Down,
            (None, Some(_)) => Direction::Down,
            _ => Direction::Up,
        };
        Some((direction, self.link_mut(direction).poll_transmit(now)?))
    }

    /// When [`Path::poll_transmit`] will next return something; `None` while nothing is to come.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        [&self.up, &self.down].into_iter().filter_map(Link::poll_timeout).min()
    }

    /// As [`Link::set_rate`] of that direction.
    pub fn set_rate(&mut self, now: Timestamp, direction: Direction, rate: Option<Rate>) {
        self.link_mut(direction).set_rate(now, rate);
    }

    /// As [`Link::queued_bytes`] of that direction.
    pub fn queued_bytes(&mut self, now: Timestamp, direction: Direction) -> u64 {
        self.link_mut(direction).queued_bytes(now)
    }

    /// One direction.
    pub fn link(&self, direction: Direction) -> &Link<T> {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    fn link_mut(&mut self, direction: Direction) -> &mut Link<T> {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}
