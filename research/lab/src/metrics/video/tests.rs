use super::*;
use crate::metrics::Metrics;
use crate::testing::video_run;

fn measure(run: &Run) -> VideoMetrics {
    match Metrics::of(run).unwrap() {
        Metrics::Video(metrics) => metrics,
        _ => panic!("a run of video has metrics of video"),
    }
}

#[test]
fn a_whole_stream_is_shown_at_its_deadline() {
    let metrics = measure(&video_run(Order::Live, |_| true));
    assert_eq!((metrics.offered_pictures, metrics.pictures_per_s), (25, 25.0));
    assert_eq!((metrics.spatial_layers, &metrics.pictures_by_layers[..]), (2.0, &[0, 0, 25][..]));
    assert_eq!(metrics.in_time_layer_bytes, [50_000, 100_000]);
    assert_eq!((metrics.offered_bytes, metrics.freezes.count), (150_000, 0));
    // A picture is 0 to 40 ms old beyond the wait of 300 ms, or beyond the 10 ms of its way.
    assert!((metrics.age_ns - 320e6).abs() < 1e6, "{}", metrics.age_ns);
    assert!(metrics.unbuffered_age_ns.is_some_and(|age| (age - 30e6).abs() < 1e6), "{metrics:?}");
    let windows = measure(&video_run(Order::Window, |_| true));
    assert!((windows.age_ns - 1320e6).abs() < 1e6, "a window is captured before it is sent");
    assert_eq!(windows.unbuffered_age_ns, None);
}

#[test]
fn a_layer_goes_with_all_that_it_refers_to() {
    // The upper layer of picture 5 is lost, and those of all later pictures refer to it.
    let run = video_run(Order::Live, |seq| seq != 11);
    assert_eq!(layers_in_time(&run), [vec![2; 5], vec![1; 20]].concat());
    // The base of picture 20 is lost: nothing later can be decoded.
    let run = video_run(Order::Live, |seq| seq != 40);
    let metrics = measure(&run);
    assert_eq!((metrics.pictures_by_layers.clone(), metrics.pictures_per_s), (vec![5, 0, 20], 20.0));
    assert_eq!((metrics.freezes.count, metrics.freezes.total_ns), (1, 240_000_000));
    assert!(metrics.wasted_share > 0.0 && metrics.spatial_layers == 1.6, "{metrics:?}");
}

#[test]
fn a_late_layer_is_none() {
    let mut run = video_run(Order::Live, |_| true);
    run.records[1].arrived_ns = Some(run.records[1].deadline_ns + 1);
    assert_eq!(layers_in_time(&run), [1; 25]);
    run.records[0].arrived_ns = run.records[1].arrived_ns;
    assert_eq!(layers_in_time(&run), [0; 25]);
    // Without a wait for the deadline it is late, and still something to look at.
    let metrics = measure(&run);
    assert!(metrics.unbuffered_age_ns.is_some_and(|age| age < 150e6), "{metrics:?}");
    assert_eq!(metrics.freezes.longest_ns, 1_000_000_000);
}

#[test]
fn a_record_without_a_picture_is_refused() {
    let mut run = video_run(Order::Live, |_| true);
    run.records[3].picture = None;
    assert!(Metrics::of(&run).unwrap_err().to_string().contains("of no picture"));
    run.records[3].layer = 2;
    assert!(Metrics::of(&run).unwrap_err().to_string().contains("layer 2"));
}
