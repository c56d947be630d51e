//! The report of `freshwire-lab frames`.

use super::chart::{Axis, BarChart, Bars, LineChart, Reference, Series, bar_chart, line_chart};
use super::html::{Figure, Number, Section, figures, numbers, page, paragraph, table};
use super::layers::{UNITS, axis_end, over_settings, repetitions, set_aside_notice};
use super::palette::scheme_colour;
use crate::cells::{Cell, by_path, gather};
use crate::metrics::{Spread, age_curve};
use crate::schema::{Experiment, Run, Source};
use crate::scheme;
use crate::table::{frames_summary, percent};

/// The whole report of an experiment with frames as one HTML page.
///
/// Fails when no run is of frames, or when one contradicts itself.
pub(crate) fn frames_html(runs: &[Run]) -> anyhow::Result<String> {
    let cells = gather(runs, Experiment::Frames);
    anyhow::ensure!(!cells.is_empty(), "there is no run of frames to report on");
    let command = &runs[0].environment.command;
    let (mut on_time, mut ages, mut frozen) = (Vec::new(), Vec::new(), Vec::new());
    for path in by_path(&cells) {
        on_time.push(frames_on_time(path, command)?);
        ages.push(age(path, command)?);
        frozen.push(freezes(path, command)?);
    }
    let section = |heading: &str, introduction: &str, drawn: &[Figure]| Section {
        heading: heading.to_owned(),
        body: paragraph(introduction) + &figures(drawn),
    };
    let sections = [
        section(
            "Frames on time",
            "A frame counts when it and all that it refers to were whole at the receiver by its deadline. The oracle \
             knows the link and every frame to come.",
            &on_time,
        ),
        section(
            "Age of information",
            "Now minus the generation time of the newest frame that the receiver can decode: how old the picture is.",
            &ages,
        ),
        section("Freezes", "Gaps between shown frames that a viewer notices.", &frozen),
        Section {
            heading: "All numbers".to_owned(),
            body: table(&frames_summary(&cells), command, |_, _| None),
        },
    ];
    Ok(page("Whole frames on time", &lead(runs, &cells), &sections, &(runs[0].environment.line() + UNITS)))
}

fn lead(runs: &[Run], cells: &[Cell<'_, Run>]) -> String {
    let mut html = set_aside_notice(runs, cells);
    if let Source::Frames { fps, mean_rate_bps, gop } = cells[0].plan.source {
        html += &format!(
            "<p class=\"soft\">{fps} frames a second, {} Mbit/s, a group of {gop} frames, deadline {} ms, over one TCP connection \
             across an emulated link. {} runs.</p>\n",
            mean_rate_bps as f64 / 1e6,
            cells[0].plan.deadline_ms,
            runs.len()
        );
    }
    let shares =
        [(scheme::TCP, "plain TCP"), (scheme::FRESHWIRE, "Freshwire")].iter().filter_map(|(name, label)| {
            let medians = cells.iter().filter(|cell| cell.plan.scheme == *name);
            let spread =
                Spread::of(medians.filter_map(|cell| cell.frames(|m| m.share_of_oracle)).map(|s| s.median))?;
            Some(Number {
                value: percent(spread.median),
                meaning: format!("of the oracle's frames with {label}{}", over_settings(spread.n)),
            })
        });
    html + &numbers(&shares.collect::<Vec<_>>())
}

fn title(path: &[Cell<'_, Run>]) -> String {
    path[0].path_label()
}

fn frames_on_time(path: &[Cell<'_, Run>], command: &str) -> anyhow::Result<Figure> {
    let oracle =
        Spread::of(path.iter().filter_map(|c| c.frames(|m| Some(m.oracle_frames as f64))).map(|s| s.median));
    let oracle = oracle.map_or(0.0, |spread| spread.median);
    let bars = path.iter().map(|cell| {
        let spread = cell.frames(|m| Some(m.on_time_frames as f64));
        Bars { values: vec![spread.map(|s| (s.median, s.min, s.max))], ..named(cell) }
    });
    let chart = BarChart {
        x_label: String::new(),
        categories: vec![String::new()],
        y: Axis { label: "whole frames on time".to_owned(), from: 0.0, to: axis_end(oracle * 1.05) },
        bars: bars.collect(),
        level: Some(("oracle".to_owned(), oracle)),
    };
    let drawing = bar_chart(&format!("Whole frames on time over {}", title(path)), &chart)?;
    Ok(figure(path, drawing, "Bars are medians, whiskers minimum to maximum", command))
}

fn freezes(path: &[Cell<'_, Run>], command: &str) -> anyhow::Result<Figure> {
    let mut highest = 0.0_f64;
    let bars = path.iter().map(|cell| {
        let spreads = [
            cell.frames(|m| Some(m.freezes.total_ns as f64 / 1e9)),
            cell.frames(|m| Some(m.freezes.longest_ns as f64 / 1e9)),
        ];
        highest = spreads.iter().flatten().map(|spread| spread.max).fold(highest, f64::max);
        Bars {
            values: spreads.map(|spread| spread.map(|s| (s.median, s.min, s.max))).to_vec(),
            ..named(cell)
        }
    });
    let bars: Vec<Bars> = bars.collect();
    let chart = BarChart {
        x_label: String::new(),
        categories: vec!["together".to_owned(), "longest".to_owned()],
        y: Axis { label: "frozen, s".to_owned(), from: 0.0, to: axis_end(highest) },
        bars,
        level: None,
    };
    let drawing = bar_chart(&format!("Freezes over {}", title(path)), &chart)?;
    Ok(figure(path, drawing, "Bars are medians, whiskers minimum to maximum", command))
}

/// The age over time of one run of each scheme, the one with the lowest seed.
fn age(path: &[Cell<'_, Run>], command: &str) -> anyhow::Result<Figure> {
    let plan = &path[0].plan;
    let series = path.iter().filter_map(|cell| {
        let run = cell.runs.iter().min_by_key(|run| run.plan.link.seed)?;
        let corners = age_curve(run).corners_s();
        Some(Series {
            name: scheme::label(&cell.plan.scheme).to_owned(),
            colour: scheme_colour(&cell.plan.scheme),
            points: corners.into_iter().map(|(at, age)| (at, age * 1000.0)).collect(),
            band: Vec::new(),
        })
    });
    let series: Vec<Series> = series.collect();
    let oldest = series.iter().flat_map(|s| s.points.iter().map(|(_, age)| *age)).fold(0.0, f64::max);
    let mut references = vec![Reference {
        name: "deadline".to_owned(),
        ends: [(0.0, plan.deadline_ms), (plan.duration_s, plan.deadline_ms)],
    }];
    let top = axis_end(oldest.max(plan.deadline_ms));
    references.extend(plan.link.steps.iter().map(|step| {
        let at_s = step.at_ns as f64 / 1e9;
        Reference { name: "the link's rate changes".to_owned(), ends: [(at_s, 0.0), (at_s, top)] }
    }));
    let chart = LineChart::new(("time, s", plan.duration_s), ("age, ms", top), series, references);
    let drawing = line_chart(&format!("Age of information over {}", title(path)), &chart)?;
    let caption = "One run of each scheme, the one with the lowest seed".to_owned();
    Ok(Figure { title: title(path), drawing, caption, command: command.to_owned() })
}

fn named(cell: &Cell<'_, Run>) -> Bars {
    Bars {
        name: scheme::label(&cell.plan.scheme).to_owned(),
        colour: scheme_colour(&cell.plan.scheme),
        values: Vec::new(),
    }
}

fn figure(path: &[Cell<'_, Run>], drawing: String, caption: &str, command: &str) -> Figure {
    Figure {
        title: title(path),
        drawing,
        caption: format!("{caption}, {}.", repetitions(&path.iter().collect::<Vec<_>>())),
        command: command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{frames_run, layers_run};

    #[test]
    fn the_report_is_self_contained() {
        let runs: Vec<Run> = ["tcp", "encoder", "freshwire"]
            .iter()
            .flat_map(|name| (1..=3).map(|seed| frames_run(name, seed)))
            .collect();
        let html = frames_html(&runs).unwrap();
        crate::report::layers::assert_self_contained(&html);
        assert!(html.contains("Age of information") && html.contains("N = 3"));
        if let Ok(directory) = std::env::var("FRESHWIRE_REPORT_DIR") {
            std::fs::write(std::path::Path::new(&directory).join("frames.html"), html).unwrap();
        }
    }

    #[test]
    fn there_is_no_report_of_nothing() {
        assert!(frames_html(&[layers_run("tcp", 1)]).unwrap_err().to_string().contains("no run of frames"));
    }
}
