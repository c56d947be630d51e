//! The grid that constants and rules may be chosen by.

use super::{Grid, Known, Link};

const LINKS: [Link; 6] = [
    ("5Mbit", 5e6, 10),
    ("10Mbit", 1e7, 20),
    ("50Mbit", 5e7, 20),
    ("5Mbit", 5e6, 50),
    ("20Mbit", 2e7, 50),
    ("50Mbit", 5e7, 50),
];

const GRID: Grid = Grid {
    links: &LINKS,
    crowded: LINKS.split_at(4).0,
    queues: [0.0, 0.5, 1.0, 2.0],
    apart: [0.2, 0.5],
    random: [0.005, 0.02, 0.04, 0.05],
    seeds: [1, 2],
    policers: [1500, 4500],
    known: Known {
        lossy_crowds: 0.35,
        uneven_crowds: 0.35,
        outside: 0.15,
        starved: 0.2,
        below_bbr: 0.67,
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
