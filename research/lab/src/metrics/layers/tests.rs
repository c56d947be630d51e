use super::*;
use crate::metrics::Metrics;
use crate::schema::LinkConfig;
use crate::testing::{self, layer_record, layers_plan, link};

const MS: u64 = 1_000_000;

fn measure(run: &Run) -> LayersMetrics {
    match Metrics::of(run).unwrap() {
        Metrics::Layers(metrics) => metrics,
        Metrics::Frames(_) | Metrics::Video(_) => panic!("a layered run has layered metrics"),
    }
}

fn window(arrived_ms: [Option<u64>; 8]) -> Vec<RecordFate> {
    let record = |(layer, at): (u8, Option<u64>)| match at {
        Some(ms) => layer_record(0, layer).sent(layer_record(0, layer).generated_ns, Some(ms * MS)),
        None => layer_record(0, layer),
    };
    (0..8).zip(arrived_ms).map(record).collect()
}

fn ideal_of(link: LinkConfig, deadline_ms: f64) -> u64 {
    let mut plan = layers_plan("tcp", link, 1);
    plan.deadline_ms = deadline_ms;
    let records = (0..8).map(|layer| layer_record(0, layer)).collect();
    measure(&testing::run(plan, records)).ideal_bytes / 16384
}

#[test]
fn a_record_counts_with_the_layers_below_it() {
    // Layer 2 never arrives, layer 3 arrives for nothing; layer 1 is late for the window but not for its own age.
    let records = window([Some(200), Some(1050), None, Some(800), None, None, None, None]);
    let metrics = measure(&testing::run(layers_plan("tcp", link(None, 0.0, 0.0), 1), records));
    assert_eq!((metrics.on_time_records, metrics.on_time_bytes), (1, 16384));
    assert_eq!(metrics.on_age_bytes, 2 * 16384);
    assert_eq!(metrics.late_records, 2);
    assert_eq!((metrics.windows, metrics.base_windows), (1, 1));
    assert_eq!(metrics.offered_bytes, 8 * 16384);
    assert_eq!(metrics.share_of_ideal, Some(0.125));
    // 1050 ms is after the end of the run.
    assert_eq!(metrics.received_layer_bytes, [16384, 0, 0, 16384, 0, 0, 0, 0]);
    assert_eq!(metrics.receive_rate_kibit, 256.0);
    // Three arrived, of 16384 bytes each; one was of use.
    assert!((metrics.wasted_share - 2.0 / 3.0).abs() < 1e-12);
}

#[test]
fn in_time_and_late_bytes_of_a_layer_are_apart() {
    let mut records = window([Some(200), Some(1050), None, Some(800), None, None, None, None]);
    records.truncate(4);
    let plan = layers_plan("tcp", link(None, 0.0, 0.0), 2);
    let metrics = measure(&testing::run(plan, records));
    assert_eq!(metrics.received_layer_bytes[..4], [16384, 16384, 0, 16384]);
    assert_eq!(metrics.in_time_layer_bytes[..4], [16384, 0, 0, 16384], "late is what is left");
    let StartUp { none, ten_s, twenty_s } = metrics.start_up;
    assert_eq!((none, ten_s, twenty_s), (0.5, 0.75, 0.75));
}

#[test]
fn transit_is_from_socket_to_socket() {
    let at = |ms: u64, arrived: Option<u64>| layer_record(0, 0).sent(ms * MS, arrived.map(|at| at * MS));
    let mut records =
        vec![at(0, Some(200)), at(10, Some(511)), at(20, Some(520)), at(30, None), layer_record(0, 0)];
    for (seq, record) in (0..).zip(&mut records) {
        record.seq = seq;
    }
    let Transit { delay, within_200_ms, within_500_ms } =
        measure(&testing::run(layers_plan("tcp", link(None, 0.0, 0.0), 1), records)).transit;
    assert_eq!((within_200_ms, within_500_ms), (0.25, 0.5), "of four that were committed");
    assert_eq!((delay.p50_ns, delay.max_ns), (Some(500 * MS), None));
}

#[test]
fn delays_start_at_submission_and_cover_all_offered_records() {
    // Own delays of 200, 925, never, 425 ms.
    let records = window([Some(200), Some(1050), None, Some(800), None, None, None, None]);
    let metrics = measure(&testing::run(layers_plan("tcp", link(None, 0.0, 0.0), 1), records));
    assert_eq!(metrics.delay, Delay { p50_ns: None, p95_ns: None, p99_ns: None, max_ns: None });
    let records =
        window([Some(100), Some(250), Some(400), Some(500), Some(600), Some(700), Some(800), Some(900)]);
    let metrics = measure(&testing::run(layers_plan("tcp", link(None, 0.0, 0.0), 1), records));
    // 100, 125, 150, 125, 100, 75, 50, 25.
    assert_eq!(metrics.delay.p50_ns, Some(100 * MS));
    assert_eq!(metrics.delay.max_ns, Some(150 * MS));
    assert_eq!(metrics.commit_age.max_ns, Some(0));
}

#[test]
fn a_late_base_layer_spoils_its_window() {
    let records = window([Some(1001), Some(250), None, None, None, None, None, None]);
    let metrics = measure(&testing::run(layers_plan("tcp", link(None, 0.0, 0.0), 1), records));
    assert_eq!((metrics.on_time_bytes, metrics.base_windows), (0, 0));
    // Layer 0 took 1001 ms; layer 1 waited for it to 876 ms of its own age.
    assert_eq!(metrics.on_age_bytes, 16384);
}

#[test]
fn several_records_make_a_layer() {
    let mut records = window([Some(100), Some(200), None, None, None, None, None, None]);
    let mut second_half = records[0].clone();
    second_half.arrived_ns = Some(1100 * MS);
    records.insert(1, second_half);
    for (seq, record) in (0..).zip(&mut records) {
        record.seq = seq;
    }
    let metrics = measure(&testing::run(layers_plan("tcp", link(None, 0.0, 0.0), 1), records));
    assert_eq!(metrics.on_time_records, 1, "the first half of the base layer");
    assert_eq!((metrics.base_windows, metrics.windows), (0, 1));
}

#[test]
fn the_ideal_is_what_the_link_carries_in_time() {
    // 16384 bytes take 258.98 ms at 512 Kibit/s: 3 records fit into a second, at 259, 518, 777 ms; a fourth ends at
    // 1036 ms.
    assert_eq!(ideal_of(link(Some(524_288), 0.0, 0.0), 1000.0), 3);
    assert_eq!(ideal_of(link(Some(524_288), 0.0, 0.0), 1036.0), 4);
    assert_eq!(ideal_of(link(Some(524_288), 0.0, 223.1), 1000.0), 2);
    // With 5 % loss each takes 272.6 ms.
    assert_eq!(ideal_of(link(Some(524_288), 0.05, 0.0), 817.0), 2);
    assert_eq!(ideal_of(link(Some(524_288), 0.05, 0.0), 818.0), 3);
    // 1024 Kibit/s: 129.5 ms each, so the seventh ends at 906 ms and the eighth at 1036 ms.
    assert_eq!(ideal_of(link(Some(1_048_576), 0.0, 0.0), 1000.0), 7);
    // 10 Mibit/s: each waits for its own eighth of the window, the last ends at 888 ms.
    assert_eq!(ideal_of(link(Some(10_485_760), 0.0, 0.0), 880.0), 7);
    assert_eq!(ideal_of(link(Some(10_485_760), 0.0, 0.0), 890.0), 8);
    assert_eq!(ideal_of(link(None, 0.05, 100.0), 1000.0), 8);
}

#[test]
fn the_ideal_of_overlapping_windows_fits_the_link() {
    // 512 Kibit/s carry 46 records of 16384 bytes in 12 s: ten windows of a second, and two more seconds
    // until the deadline of the last one. An idle link for each window would carry all 80.
    let mut plan = layers_plan("tcp", link(Some(524_288), 0.0, 0.0), 10);
    plan.deadline_ms = 3000.0;
    let records = (0..10).flat_map(|w| (0..8).map(move |layer| layer_record(w, layer))).collect();
    assert_eq!(measure(&testing::run(plan, records)).ideal_bytes / 16384, 46);
}

#[test]
fn goodput_rises_with_the_deadline() {
    let records = window([Some(200), Some(1050), None, Some(800), None, None, None, None]);
    let run = testing::run(layers_plan("tcp", link(None, 0.0, 0.0), 1), records);
    assert_eq!(
        goodput_curve(&run, &[0.1, 0.2, 1.0, 1.05, 20.0]),
        [0.0, 131_072.0, 131_072.0, 262_144.0, 262_144.0]
    );
}

#[test]
fn a_late_choice_reaches_the_ideal_where_plain_tcp_does_not() {
    let tcp = measure(&testing::layers_run("tcp", 1));
    let late_choice = measure(&testing::layers_run("freshwire", 1));
    assert_eq!(late_choice.share_of_ideal, Some(1.0));
    assert_eq!((late_choice.base_windows, late_choice.windows), (5, 5));
    assert!(tcp.share_of_ideal < Some(0.3) && tcp.base_windows < 3, "{tcp:?}");
}
