use clap::Parser as _;

use super::viewer::Viewer;
use super::*;
use crate::schema::Trust;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: DemoArgs,
}

fn args(words: &[&str]) -> DemoArgs {
    Line::parse_from(std::iter::once("demo").chain(words.iter().copied())).args
}

#[test]
fn the_default_link_is_the_documented_one() {
    let link = args(&[]).link();
    assert_eq!(
        (link.rate_bps, link.loss, link.delay_ms, link.queue_bytes),
        (Some(512_000), 0.05, 0.0, Some(15_000))
    );
}

#[test]
fn a_requested_congestion_control_applies_to_both_tcp_senders() {
    let args = args(&["--congestion", "reno"]);
    let of = |scheme| args.order(scheme, &args.link(), Path::new("v")).congestion;
    assert_eq!(Scheme::ALL.map(of), [Some("reno".to_owned()), Some("reno".to_owned()), None]);
}

#[test]
fn a_demo_that_is_too_long_is_refused() {
    let error = run(&args(&["--duration", "1s"])).err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("5s to 3600s")));
}

fn demo() -> (Demo, Stream) {
    let stream = video::tests::ladder();
    let viewing = |scheme| {
        let mut viewer = Viewer::new(std::sync::Arc::new(stream.clone()), freshwire_record::Timestamp::ZERO);
        for (at, unit) in stream.units.iter().enumerate() {
            viewer.push(freshwire_record::Timestamp::ZERO + stream.emitted(at), &unit.bytes);
        }
        let outcome = Outcome {
            scheme,
            congestion: "cubic".to_owned(),
            arrivals: viewer.arrivals.clone(),
            shown: viewer.shown.clone(),
            drops: Vec::new(),
            torn: 0,
            undecodable: 0,
            received_bytes: viewer.bytes,
            horizon_max_bytes: 1448,
            trust: Trust::of(&[]),
        };
        let ssim = vec![0.5; stream.frames()];
        let quality = quality::Quality { ssim, ssim_mean: 0.5, ssim_p5: 0.5, decoded: 18, decoder_errors: 0 };
        Viewing { metrics: Metrics::of(&stream, &outcome.shown, VIEWER_DEADLINE), quality, outcome }
    };
    let viewers = Scheme::ALL.map(viewing).to_vec();
    let environment =
        Environment { command: "freshwire-lab demo --seed 7".to_owned(), ..Environment::default() };
    (Demo::new(environment, args(&[]).link(), 1000, &stream, viewers), stream)
}

#[test]
fn the_report_is_self_contained_and_names_its_command() {
    let (demo, stream) = demo();
    let jpeg = Some(vec![0xff, 0xd8]);
    let stills = Stills {
        instants_s: vec![1.0],
        camera: vec![jpeg.clone()],
        viewers: vec![vec![(0.9, None)], vec![(0.4, jpeg.clone())], vec![(0.3, jpeg)]],
    };
    let html = report::html(&demo, &stream, &stills).unwrap();
    for foreign in ["http://", "https://", "<script", "<link", "url(", "NaN"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    for part in [
        "freshwire-lab demo --seed 7",
        "data:image/jpeg;base64,/9g=",
        "nothing shown",
        "1.0 s: 0.4 s old",
        "1.0 s: 0.3 s old",
        "512kbit/s, 5.0 % loss",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
}

#[test]
fn the_result_survives_its_file_and_one_torn_frame_spoils_it() {
    let (mut demo, _) = demo();
    let text = serde_json::to_string(&demo).unwrap();
    assert_eq!(serde_json::from_str::<Demo>(&text).unwrap(), demo);
    assert!(demo.is_clean());
    demo.viewers[1].outcome.torn = 1;
    assert!(!demo.is_clean());
}

#[test]
fn a_busy_machine_is_confessed() {
    let (mut demo, _) = demo();
    assert!(demo.faults().is_empty());
    demo.viewers[0].outcome.trust = Trust::of(&["the camera was 20 ms late".to_owned()]);
    assert_eq!(demo.faults(), ["plain TCP: the camera was 20 ms late"]);
}
