use super::*;
use crate::results::{Freezes, Metrics};
use crate::schema::{RateStep, RecordFate};
use crate::testing;

const MS: u64 = 1_000_000;

fn measure(run: &Run) -> FramesMetrics {
    match Metrics::of(run).unwrap() {
        Metrics::Frames(metrics) => metrics,
        Metrics::Layers(_) | Metrics::Video(_) => panic!("a run of frames has frame metrics"),
    }
}

fn frame(seq: u64, refs: &[u64], arrived_ms: Option<u64>) -> RecordFate {
    let generated_ns = seq * 100 * MS;
    RecordFate {
        seq,
        group: 0,
        layer: 0,
        bytes: 1000,
        generated_ns,
        deadline_ns: generated_ns + 300 * MS,
        committed_ns: Some(generated_ns),
        arrived_ns: arrived_ms.map(|ms| ms * MS),
        fate: "sent".to_owned(),
        refs: refs.to_vec(),
        picture: None,
    }
}

fn run(records: Vec<RecordFate>) -> Run {
    let mut plan = testing::frames_run("tcp", 1).plan;
    plan.link.steps.clear();
    plan.duration_s = 1.0;
    testing::run(plan, records)
}

#[test]
fn a_frame_counts_with_all_that_it_refers_to() {
    let metrics = measure(&run(vec![
        frame(0, &[], Some(350)),  // late itself,
        frame(1, &[0], Some(360)), // but in time for this one.
        frame(2, &[1], None),      // Lost,
        frame(3, &[2], Some(400)), // and with it this one
        frame(4, &[3], Some(500)), // and what refers to it in turn.
        frame(7, &[6], Some(710)), // Refers to what was never offered.
        frame(8, &[], Some(1100)), // On time to the nanosecond.
    ]));
    assert_eq!((metrics.offered_frames, metrics.decodable_frames), (7, 3));
    assert_eq!((metrics.on_time_frames, metrics.on_time_bytes), (2, 2000));
    assert_eq!(metrics.late_frames, 4);
    // The frame that refers to nothing known is beyond an oracle too.
    assert_eq!(metrics.oracle_frames, 6);
    assert_eq!(metrics.recovery, Recovery::NoDip);
    assert_eq!(metrics.delay.p50_ns, Some(260 * MS), "10, 100, 100, 260, 300, 350 ms and never");
}

#[test]
fn age_and_freezes_follow_what_can_be_decoded() {
    let metrics = measure(&run(vec![
        frame(0, &[], Some(50)),
        frame(1, &[0], Some(150)),
        frame(2, &[1], None),
        frame(3, &[2], Some(320)),
        frame(6, &[], Some(650)),
    ]));
    // Shown at 50, 150 and 650 ms; 30 frames a second freeze at a gap of 183 ms.
    assert_eq!(metrics.freezes, Freezes { count: 2, total_ns: 850 * MS, longest_ns: 500 * MS });
    assert_eq!(metrics.age.peak_ns, 550 * MS);
}

#[test]
fn a_return_is_the_last_rise_of_the_rate() {
    let mut link = testing::link(Some(6_000_000), 0.0, 0.0);
    assert_eq!(link.last_rise_ns(), None);
    link.steps = vec![RateStep { at_ns: 3, rate_bps: Some(1_000_000) }];
    assert_eq!(link.last_rise_ns(), None);
    link.steps.push(RateStep { at_ns: 6, rate_bps: Some(6_000_000) });
    link.steps.push(RateStep { at_ns: 7, rate_bps: Some(5_000_000) });
    assert_eq!(link.last_rise_ns(), Some(6));
    link.steps.push(RateStep { at_ns: 8, rate_bps: None });
    assert_eq!(link.last_rise_ns(), Some(8));
}

#[test]
fn a_late_choice_stays_near_the_oracle_through_a_dip() {
    let tcp = measure(&testing::frames_run("tcp", 1));
    let late_choice = measure(&testing::frames_run("freshwire", 1));
    assert_eq!(tcp.oracle_frames, late_choice.oracle_frames);
    assert!(tcp.on_time_frames < late_choice.on_time_frames, "{tcp:?}");
    assert!(late_choice.on_time_frames <= late_choice.oracle_frames);
    assert!(late_choice.share_of_oracle > Some(0.8), "{late_choice:?}");
    assert!(late_choice.age.peak_ns < tcp.age.peak_ns);
}
