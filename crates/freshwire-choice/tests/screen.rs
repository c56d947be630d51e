//! Real streams over links that are too slow, in virtual time: what is on the screen, beside fixed deadlines and an oracle.

#[allow(dead_code)]
mod bench;

use std::time::Duration;

use bench::{Link, Run};
use freshwire_choice::screen::{Score, Screen, Shown, oracle, score};
use freshwire_choice::{Choice, Record, live};
use freshwire_units::Timestamp;

const INTERVAL: u64 = 40_000_000;
const BASE: u64 = 1_000_000_000;

struct Stream {
    name: &'static str,
    pictures: Vec<Record>,
    offers: Vec<u64>,
    bits: u64,
}

fn stream(name: &'static str, text: &str) -> Stream {
    let rows: Vec<Vec<i64>> =
        text.lines().map(|line| line.split(' ').map(|n| n.parse().unwrap()).collect()).collect();
    let most = rows.iter().map(|row| row[4]).max().unwrap_or(0);
    let offers: Vec<u64> = (0..rows.len() as u64).map(|at| BASE + at * INTERVAL).collect();
    let pictures: Vec<Record> = rows
        .iter()
        .zip(&offers)
        .enumerate()
        .map(|(at, (row, &offer))| Record {
            index: at as u64,
            len: row[0] as u32,
            layer: row[1] as u8,
            refs: [row[2] as u32, row[3] as u32],
            generated: Timestamp::from_nanos(offer - (most - row[4]) as u64 * INTERVAL),
            ..Record::numbered(at as u64)
        })
        .collect();
    let bytes: u64 = pictures.iter().map(|p| u64::from(p.len)).sum();
    let bits = bytes * 8 * 1_000_000_000 / (rows.len() as u64 * INTERVAL);
    Stream { name, pictures, offers, bits }
}

fn shown(stream: &Stream, link: &Link, records: &[Record], choice: &mut dyn Choice) -> Vec<Shown> {
    let (arrivals, _) = Run::new(link).play_offered(records, &stream.offers, choice);
    let mut there = vec![false; records.len()];
    let mut all = Vec::new();
    for (at, arrival) in arrivals.into_iter().enumerate() {
        let Some(arrival) = arrival else { continue };
        let decodable = records[at].references().all(|seq| seq.is_some_and(|seq| there[seq as usize]));
        assert!(decodable, "{} {at}", stream.name);
        there[at] = true;
        all.push(Shown { captured: stream.pictures[at].generated, arrived: Timestamp::from_nanos(arrival) });
    }
    all
}

fn rated(stream: &Stream, shown: &[Shown]) -> Score {
    let end = Timestamp::from_nanos(stream.offers.last().unwrap() + INTERVAL);
    score(shown, Timestamp::from_nanos(BASE + 4_000_000_000), end)
}

fn show(name: &str, score: &Score) {
    println!(
        "    {name:10} cost {:6.3} age {:6.3} p95 {:6.3} frozen {:5.3} longest {:5.2} pps {:5.1} motion {:5.3}",
        score.cost,
        score.mean_age,
        score.p95_age,
        score.frozen,
        score.longest_gap,
        score.pictures_per_second,
        score.motion
    );
}

#[test]
fn explore() {
    let streams = [
        stream("film2s", include_str!("streams/film2s.txt")),
        stream("camera", include_str!("streams/camera.txt")),
        stream("x264def", include_str!("streams/x264def.txt")),
        stream("slides", include_str!("streams/slides.txt")),
        stream("key25", include_str!("streams/key25.txt")),
        stream("key100", include_str!("streams/key100.txt")),
        stream("key250", include_str!("streams/key250.txt")),
        stream("svt", include_str!("streams/svt.txt")),
        stream("vp9", include_str!("streams/vp9.txt")),
        stream("x265", include_str!("streams/x265.txt")),
    ];
    let only = std::env::var("ONLY").unwrap_or_default();
    for stream in streams.iter().filter(|s| s.name.contains(&only)) {
        let pc: Vec<u64> = std::env::var("PC")
            .map_or(vec![30, 45, 60, 80, 100, 120], |w| w.split(',').map(|w| w.parse().unwrap()).collect());
        for percent in pc {
            let bits = stream.bits * percent / 100;
            let link = Link::constant(bits, 20);
            println!("{} {percent} % = {} kbit/s", stream.name, bits / 1000);
            let ideal = oracle(
                &stream.pictures,
                &stream.offers.iter().map(|&at| Timestamp::from_nanos(at)).collect::<Vec<_>>(),
                &|at, len| Timestamp::from_nanos(link.end(at.as_nanos(), len)),
                Duration::from_nanos(link.rtt / 2),
                std::env::var("WAYS").map_or(100, |w| w.parse().unwrap()),
            );
            if std::env::var("TL").is_ok() {
                let ours = shown(stream, &link, &stream.pictures, &mut Screen::default());
                for (at, p) in stream.pictures.iter().enumerate().filter(|(at, _)| (125..=180).contains(at)) {
                    let find = |all: &[Shown]| {
                        all.iter()
                            .find(|s| s.captured == p.generated)
                            .map(|s| (s.arrived.as_nanos() as f64 - p.generated.as_nanos() as f64) / 1e9)
                    };
                    println!(
                        "{at} {:6} L{} {:?} pushed {:.2} oracle {:?} ours {:?}",
                        p.len,
                        p.layer,
                        p.refs,
                        stream.offers[at] as f64 / 1e9,
                        find(&ideal),
                        find(&ours)
                    );
                }
            }
            let ideal = rated(stream, &ideal);
            show("oracle", &ideal);
            if std::env::var("OR").is_ok() {
                continue;
            }
            let begin = std::time::Instant::now();
            let ours = rated(stream, &shown(stream, &link, &stream.pictures, &mut Screen::default()));
            let took = begin.elapsed();
            show("screen", &ours);
            let mut best: Option<Score> = None;
            for ms in [300, 650, 1200, 2000, 4000] {
                let records: Vec<Record> = stream
                    .pictures
                    .iter()
                    .zip(&stream.offers)
                    .map(|(p, &o)| {
                        let generated = Timestamp::from_nanos(o);
                        let grace = if p.is_key() { 600 } else { 0 };
                        Record { generated, deadline: generated + Duration::from_millis(ms + grace), ..*p }
                    })
                    .collect();
                let fixed = rated(stream, &shown(stream, &link, &records, &mut live()));
                show(&format!("{ms}"), &fixed);
                if best.is_none_or(|b| fixed.cost < b.cost) {
                    best = Some(fixed);
                }
            }
            let best = best.unwrap();
            println!(
                "  => {} {percent}: cost/oracle {:.2} age/oracle {:.2}  cost/best {:.2} age/best {:.2} frozen {:.3} vs {:.3}  {:.1?}",
                stream.name,
                ours.cost / ideal.cost,
                ours.mean_age / ideal.mean_age,
                ours.cost / best.cost,
                ours.mean_age / best.mean_age,
                ours.frozen,
                best.frozen,
                took
            );
        }
    }
}
