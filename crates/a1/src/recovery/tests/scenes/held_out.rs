//! The held-out grid: nothing is chosen by its results.

use super::{Grid, Known, Link};

const LINKS: [Link; 7] = [
    ("3Mbit", 3e6, 15),
    ("8Mbit", 8e6, 35),
    ("15Mbit", 1.5e7, 25),
    ("30Mbit", 3e7, 12),
    ("70Mbit", 7e7, 30),
    ("8Mbit", 8e6, 8),
    ("30Mbit", 3e7, 40),
];

const GRID: Grid = Grid {
    links: &LINKS,
    crowded: LINKS.split_at(5).0,
    queues: [0.0, 0.7, 1.4, 3.0],
    apart: [0.13, 0.9],
    random: [0.003, 0.01, 0.03, 0.05],
    seeds: [11, 12],
    policers: [1500, 3000],
    known: Known {
        lossy_crowds: 0.35,
        uneven_crowds: 0.35,
        outside: 0.15,
        starved: 0.2,
        below_bbr: 0.5,
        random: 0.1,
        policed: 0.25,
    },
};

#[test]
fn our_own_kind() {
    super::our_own_kind(&GRID);
}

#[test]
fn beside_cubic_and_new_reno() {
    super::beside_cubic_and_new_reno(&GRID);
}

#[test]
fn beside_bbr() {
    super::beside_bbr(&GRID);
}

#[test]
fn random_loss() {
    super::random_loss(&GRID);
}

#[test]
fn a_policer_or_a_queue_of_ten_packets() {
    super::a_policer_or_a_queue_of_ten_packets(&GRID);
}
