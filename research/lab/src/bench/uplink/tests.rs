use bytes::Bytes;
use clap::Parser;
use freshwire_record::Timestamp;

use super::flv::Tag;
use super::flv::tests::picture;
use super::judge::Phase;
use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    uplink: UplinkArgs,
}

fn args(words: &str) -> UplinkArgs {
    Line::parse_from(["x"].into_iter().chain(words.split_whitespace())).uplink
}

fn names(words: &str) -> Vec<String> {
    args(words).cases().unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn cases_are_every_combination() {
    assert_eq!(
        names(""),
        ["6Mbit, 1Mbit, 6Mbit, 40 ms, cubic; 4Mbit", "6Mbit, 2 % lost, 40 ms, cubic; 4Mbit"]
    );
    assert_eq!(
        names(
            "--uplink-trouble loss --uplink-losses 0.5%,3% --uplink-rates 3Mbit,5Mbit --uplink-round-trips 0"
        ),
        [
            "3Mbit, 0.5 % lost, 0 ms, cubic; 4Mbit",
            "5Mbit, 0.5 % lost, 0 ms, cubic; 4Mbit",
            "3Mbit, 3 % lost, 0 ms, cubic; 4Mbit",
            "5Mbit, 3 % lost, 0 ms, cubic; 4Mbit"
        ]
    );
    let error = args("--uplink-times 1s,2s").cases().unwrap_err().to_string();
    assert!(error.contains("has 2 times") && error.contains("before, in and after"), "{error}");
}

#[test]
fn the_link_dips_when_pictures_are_counted() {
    let case = &args("").cases().unwrap()[0];
    let [up, down] = case.directions(Duration::from_secs(3), 1).unwrap();
    let at: Vec<_> = up.schedule().steps().iter().map(|step| step.at.as_secs()).collect();
    assert_eq!(
        (at, case.dip(), case.length().as_secs()),
        (vec![0, 13, 28], Some([10, 25].map(Duration::from_secs)), 35)
    );
    assert_eq!((down.schedule().steps().len(), up.queue_bytes()), (1, 30_000));
}

const MS: Duration = Duration::from_millis(1);

/// Ten pictures, 100 ms apart, in order, and blocks of sound beside them.
fn clip() -> Clip {
    let tag = |place: u8| Tag {
        dts_ms: u32::from(place) * 100,
        ..picture(if place == 0 { 0x17 } else { 0x27 }, 0, &[&[0x41, place]])
    };
    let sound = |place: u8| Tag {
        kind: flv::AUDIO,
        dts_ms: u32::from(place) * 100 + 50,
        body: Bytes::copy_from_slice(&[0xaf, 1, place]),
    };
    let looks: Vec<String> = (0..10).map(|place| format!("look {place}")).collect();
    Clip::of((0..10).flat_map(|place| [tag(place), sound(place)]).collect(), &looks).unwrap()
}

/// The judgement of the pictures from 200 ms on, where some arrived so late and look so.
fn judged(late: &[(u8, u64)], looks: &[u8]) -> Outcome {
    let clip = clip();
    let begin = freshwire_io::now();
    let window = Window {
        begin,
        from: begin + 200 * MS,
        length: 800 * MS,
        dip: Some([200 * MS, 400 * MS]),
        on_time: 150 * MS,
    };
    let arrivals: Vec<Arrival> = late
        .iter()
        .map(|&(place, late)| Arrival {
            at: begin + (u64::from(place) * 100 + late) as u32 * MS,
            // Its time of decoding is not looked at.
            tag: picture(0x27, 0, &[&[0x67, 1], &[0x41, place]]),
        })
        .collect();
    let looks: Vec<String> = looks.iter().map(|place| format!("look {place}")).collect();
    Sight::of(&clip, &arrivals, &looks).judge(&clip, &window)
}

#[test]
fn a_picture_counts_if_it_is_whole_and_on_time() {
    let all: Vec<u8> = (0..10).collect();
    let punctual: Vec<(u8, u64)> = all.iter().map(|&place| (place, 20)).collect();
    let outcome = judged(&punctual, &all);
    assert_eq!(
        (outcome.all.pictures, outcome.all.on_time, outcome.whole, outcome.damaged),
        (8, 1.0, 1.0, 0.0)
    );
    assert_eq!(outcome.recovery, Some(Some(Duration::ZERO)));
    // Two in the dip, which begins at 400 ms; one comes late, the other looks wrong.
    let mut late = punctual.clone();
    late[4].1 = 160;
    let looks: Vec<u8> = all.iter().copied().filter(|place| *place != 5).collect();
    let outcome = judged(&late, &looks);
    let [dip, after]: [Phase; 2] = outcome.phases.unwrap();
    assert_eq!((dip.pictures, dip.on_time, after.pictures, after.on_time), (2, 0.0, 4, 1.0));
    assert_eq!((outcome.whole, outcome.damaged, outcome.sound), (7.0 / 8.0, 1.0 / 8.0, 0.0));
    // Picture 3 is the newest until 560 ms, with ages from 100 to 260 ms, and then 4, with 160 to 200 ms.
    assert_eq!([dip.age_p50, dip.age_p95].map(|age| age.as_millis()), [180, 250]);
}

#[test]
fn a_picture_of_nobody_does_not_count() {
    let outcome = judged(&[(2, 20), (77, 20), (2, 90)], &[2]);
    assert_eq!((outcome.others, outcome.whole), (1, 1.0 / 8.0));
    assert_eq!(outcome.recovery, Some(None), "nothing comes any more");
}

#[test]
fn the_stream_is_handed_over_in_time_and_whole() {
    let clip = clip();
    let begin = freshwire_io::now();
    let mut taken: Vec<(Timestamp, Tag)> = Vec::new();
    clip.feed(begin, |tag| {
        taken.push((freshwire_io::now(), tag.clone()));
        true
    });
    assert_eq!(taken.len(), 20);
    for (at, tag) in &taken {
        assert!(*at >= begin + tag.dts_ms * MS, "{tag:?}");
        assert!(clip.identify(tag).is_some());
    }
}
