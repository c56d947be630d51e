use super::*;
use crate::schema::Trust;
use crate::testing::{frames_run, layers_run_on, link};

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
fn the_report_is_self_contained_with_every_published_figure() {
    let html = layers_html(&runs()).unwrap();
    assert_self_contained(&html);
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
    runs[0].trust = Trust::of(&["the link ran <40 ms> behind".to_owned()]);
    let html = layers_html(&runs).unwrap();
    assert!(html.contains("too busy for 1 of 2 runs; 1 are not counted"), "no notice");
    assert!(html.contains("the link ran &lt;40 ms&gt; behind"));
}

#[test]
fn there_is_no_report_of_nothing() {
    assert!(
        layers_html(&[frames_run("tcp", 1)]).unwrap_err().to_string().contains("no run of a layered stream")
    );
}

#[test]
fn axes_end_on_round_numbers() {
    assert_eq!([0.0, 0.9, 983.04, 512.0, f64::INFINITY].map(axis_end), [1.0, 0.9, 1000.0, 550.0, 1.0]);
}

#[test]
fn of_many_settings_the_best_control_of_each_link_is_drawn() {
    let mut runs = Vec::new();
    for delay_ms in 0..7 {
        for (congestion, scheme) in [("bbr", "tcp"), ("cubic", "freshwire")] {
            let mut run = layers_run_on(scheme, link(Some(524_288), 0.0, f64::from(delay_ms)), 1, 5);
            run.plan.congestion = congestion.to_owned();
            runs.push(run);
        }
    }
    let cells = gather(&runs, Experiment::Layers);
    let paths: Vec<_> = by_path(&cells).collect();
    assert_eq!(paths.len(), 14);
    let drawn = drawn_paths(&paths);
    assert_eq!(drawn.len(), 7);
    assert!(drawn.iter().all(|path| path[0].plan.congestion == "cubic"));
    assert_eq!(drawn_paths(&paths[..12]).len(), 12);
    assert!(layers_html(&runs).unwrap().contains("came nearest to the ideal"));
}

#[test]
fn a_sampled_curve_keeps_its_steps() {
    let curve = [(0.0, 0.0), (0.5, 0.0), (0.5, 0.25), (0.8, 0.25), (0.8, 0.5)];
    let sampled = sampled(&curve, 1.0);
    assert_eq!(
        (sampled.len(), sampled[199], sampled[200], sampled[400]),
        (401, (0.4975, 0.0), (0.5, 25.0), (1.0, 50.0))
    );
}
