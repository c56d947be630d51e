use super::*;
use crate::lab::schema::Trust;
use crate::lab::testing::{frames_run, layers_run_on, link};

fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for rate in [None, Some(1_048_576), Some(524_288), Some(262_144)] {
        for name in ["tcp", "thesis", "thesis-improper", "freshwire"] {
            for seed in 1..=4 {
                let loss = if rate.is_some() { 0.05 } else { 0.0 };
                runs.push(layers_run_on(name, link(rate, loss, 0.0), seed, 60));
            }
        }
    }
    runs
}

#[test]
fn the_report_has_every_published_figure_and_stands_alone() {
    let html = layers_html(&runs(), "freshwire lab layers --matrix thesis --repeat 4").unwrap();
    super::assert_self_contained(&html);
    for part in [
        "figures 5.3 and 5.4",
        "figure 5.5",
        "table 5.1",
        "figure 7",
        "figure 8",
        "862.47",
        "published 6.32 MiB",
        "N = 4",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
    if let Ok(directory) = std::env::var("FRESHWIRE_REPORT_DIR") {
        std::fs::write(std::path::Path::new(&directory).join("layers.html"), html).unwrap();
    }
}

#[test]
fn a_busy_machine_is_confessed() {
    let mut runs = vec![
        layers_run_on("tcp", link(None, 0.0, 0.0), 1, 3),
        layers_run_on("tcp", link(None, 0.0, 0.0), 2, 3),
    ];
    runs[0].trust = Trust::lost("the link ran <40 ms> behind");
    let html = layers_html(&runs, "").unwrap();
    assert!(html.contains("too busy for 1 of 2 runs; 1 are not counted"), "no notice");
    assert!(html.contains("the link ran &lt;40 ms&gt; behind"));
}

#[test]
fn there_is_no_report_of_nothing() {
    assert!(
        layers_html(&[frames_run("tcp", 1)], "")
            .unwrap_err()
            .to_string()
            .contains("no run of a layered stream")
    );
}

#[test]
fn axes_end_on_round_numbers() {
    assert_eq!([0.0, 0.9, 983.04, 512.0, f64::INFINITY].map(axis_end), [1.0, 0.9, 1000.0, 550.0, 1.0]);
}
