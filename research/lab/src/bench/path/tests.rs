use clap::Parser;
use freshwire_netns::testbed::TestbedError;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    path: PathArgs,
}

static HOSTS: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The report of a short run; `None`: the machine has no testbed.
fn measured(words: &str) -> Option<Report> {
    let args = Line::parse_from(["x"].into_iter().chain(words.split_whitespace())).path;
    // The hosts of a process have one name.
    let _alone = HOSTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut report = Report::default();
    match measure(&args, 1, &mut report) {
        Ok(()) => Some(report),
        Err(error) => {
            let is_missing = error.downcast_ref().is_some_and(TestbedError::is_missing);
            assert!(is_missing && std::env::var_os("CI").is_none(), "{error:#}");
            println!("skipped: {error:#}");
            None
        }
    }
}

fn sample(report: &Report, name: &str) -> f64 {
    let place = report.place(BENCH, name).unwrap_or_else(|| panic!("no {name}: {:?}", report.series));
    report.series[place].samples[0]
}

#[test]
fn a_mechanism_is_measured_in_every_cell() {
    let Some(report) = measured("--path-connections 3 --path-mechanisms sendfile") else { return };
    for cell in
        ["unlimited, offload", "unlimited, no offload", "100 Mbit/s, offload", "100 Mbit/s, no offload"]
    {
        let of = |what: &str| sample(&report, &format!("{what}, sendfile; 3 connections, {cell}"));
        for what in
            ["throughput", "CPU per GB", "system calls per GB", "interrupts a second", "ACKs a second"]
        {
            assert!(of(what) > 0.0, "{what}, {cell}");
        }
        assert!((1.0..101.0).contains(&of("payload of a segment, of a full one")), "{cell}");
        if cell.starts_with("100 Mbit/s") {
            assert!(of("throughput") < RATE as f64 / 8.0, "{cell}");
            assert!(of("context switches a second") > 0.0, "a full socket is waited for; {cell}");
        }
    }
    assert!(report.series.iter().all(|series| !series.name.contains("window")), "nobody asked for it");
}

#[test]
fn more_pages_in_a_pipe_are_fewer_calls() {
    let options = "--path-connections 2 --path-mechanisms splice --path-rates unlimited --path-offload on --path-sizes 1MiB \
        --path-pages in-order,scattered --path-pipe-pages 8,64";
    let Some(report) = measured(options) else { return };
    for pages in ["in order", "scattered"] {
        let calls = |pipe: u32| {
            let cell =
                format!("2 connections, unlimited, offload, 1048576 B, {pages}, a pipe of {pipe} pages");
            sample(&report, &format!("system calls per GB, splice; {cell}"))
        };
        assert!(calls(64) < 0.6 * calls(8), "{pages}: {} and {}", calls(64), calls(8));
    }
    let adjacent = |pages: &str| {
        sample(&report, &format!("adjacent pages; unlimited, offload, 1048576 B, {pages}, a pipe of 8 pages"))
    };
    assert!(adjacent("scattered") <= 10.0 && adjacent("in order") <= 100.0);
}

#[test]
fn a_filter_is_measured_with_the_receivers_window() {
    let options = "--path-connections 1 --path-mechanisms write --path-rates 100Mbit --path-offload on --path-receiver delayed \
        --path-filters none,safe,checkpoint";
    let Some(report) = measured(options) else { return };
    let of = |what: &str, filter: &str| {
        sample(&report, &format!("{what}, write; 1 connections, 100 Mbit/s, offload, {filter}"))
    };
    for filter in ["no filter", "safe", "checkpoint"] {
        assert!(of("least window", filter) > 1448.0, "{filter}");
        assert!(of("least window", filter) <= of("median window", filter), "{filter}");
    }
    // How many come is the machine's: with both processors busy the receiver sends few.
    for filter in ["safe", "checkpoint"] {
        let share = of("ACKs dropped", filter);
        assert!((50.0..100.0).contains(&share), "{filter} drops {share} %");
    }
}

#[test]
fn datagrams_keep_to_the_link() {
    let options = "--path-connections 2 --path-mechanisms write,udp,udp-offload --path-rates 100Mbit --path-offload on --path-sizes 40KiB";
    let Some(report) = measured(options) else { return };
    for way in ["udp", "udp-offload"] {
        let of = |what: &str| {
            sample(&report, &format!("{what}, {way}; 2 connections, 100 Mbit/s, offload, 40960 B"))
        };
        let throughput = of("throughput");
        assert!(throughput > 1e6 && throughput < RATE as f64 / 8.0 * 1.02, "{way}: {throughput}");
        assert!(of("CPU per GB") > 0.0 && of("system calls per GB") > 0.0, "{way}");
        assert!(of("whole pictures") > 0.0 && of("whole pictures") <= 110.0, "{way}");
    }
    assert!(report.ratios.iter().any(|ratio| ratio.name.starts_with("CPU per GB, udp: write")));
}
