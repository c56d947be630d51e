//! Video frames over a link that is too slow, in virtual time, against an oracle that knows the future.

mod bench;

use std::time::Duration;

use bench::{Ladder, Link, Run, oracle};
use freshwire_choice::{Frames, deadline, frames};

#[test]
fn explore() {
    for rtt in [0, 40, 100] {
        for (name, link) in [("slow", Link::constant(2_000_000, rtt)), ("dip", Link::dip(rtt)), ("s3", Link::constant(3_000_000, rtt))] {
            for ladder in Ladder::ALL { if std::env::var("L").is_ok_and(|l| l != ladder.name) || std::env::var("K").is_ok_and(|l| l != name) || std::env::var("R").is_ok_and(|l| l != rtt.to_string()) { continue }
                for seed in 1..=2u64 {
                    let frames_ = ladder.frames(600, seed);
                    let best = oracle(&frames_, &link, false);
                    let loose = oracle(&frames_, &link, true);
                    let ours = Run::new(&link).play(&frames_, &mut Frames::new(Duration::from_millis(std::env::var("M").map_or(10,|q|q.parse().unwrap()))));
                    let simple = Run::new(&link).play(&frames_, &mut deadline(Duration::from_millis(5)));
                    let _ = Frames::default();
                    println!(
                        "rtt {rtt:3} {name:5} {:9} oracle {best:3} loose {loose:3} frames {:3} {:.3} late {} gap {} deadline {:3}",
                        ladder.name, ours.on_time, ours.on_time as f64 / best as f64, ours.late, ours.longest_gap, simple.on_time
                    );
                }
            }
        }
    }
}
