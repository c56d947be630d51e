//! The report of `freshwire-lab state`.

use super::metrics::age_curve;
use super::schema::{Metrics, Run};
use super::scheme;
use super::show::{Cell, metric, path_label, silence_rounds, source_label, table};
use crate::cells::cells;
use crate::report::axis_end;
use crate::report::chart::{Axis, BarChart, Bars, LineChart, Series, bar_chart, line_chart};
use crate::report::html::{self, Figure, Section, figures, page, paragraph};

/// Instants of a curve: a number that has nothing in common with ticks.
const POINTS: u32 = 307;

/// The whole report as one HTML page.
pub(super) fn html(runs: &[Run]) -> anyhow::Result<String> {
    let command = &runs[0].environment.command;
    let cells = cells(runs);
    let (mut ages, mut curves, mut silences) = (Vec::new(), Vec::new(), Vec::new());
    let same = |a: &Cell<'_>, b: &Cell<'_>| title(a) == title(b);
    for path in cells.chunk_by(same) {
        ages.push(age_bars(path, command)?);
        curves.push(age_curves(path, command)?);
        silences.push(silence_bars(path, command)?);
    }
    let section = |heading: &str, introduction: &str, drawn: &[Figure]| Section {
        heading: heading.to_owned(),
        body: paragraph(introduction) + &figures(drawn),
    };
    let sections = [
        section(
            "Age of the newest value",
            "Now minus the tick that made the newest value that the program has read of an object, over time and all objects.",
            &ages,
        ),
        section("Over time", "The mean over objects, of the first run of each scheme.", &curves),
        section(
            "Who is left out",
            "The longest time without a value of one object, in fair rounds: one is what all objects take for a value each \
             at the rate that was read.",
            &silences,
        ),
        Section { heading: "All numbers".to_owned(), body: html::table(&table(runs), command, |_, _| None) },
    ];
    Ok(page("State that is fresh for every key", &lead(runs), &sections, &runs[0].environment.line()))
}

fn lead(runs: &[Run]) -> String {
    let spoiled = runs.iter().filter(|run| !run.trust.trustworthy).count();
    match spoiled {
        0 => String::new(),
        count => paragraph(&format!(
            "The machine was too busy for {count} of {} runs; they count only where a plan has no other.",
            runs.len()
        )),
    }
}

fn title(cell: &Cell<'_>) -> String {
    format!("{}; {}", path_label(&cell.plan), source_label(&cell.plan))
}

fn age_bars(path: &[Cell<'_>], command: &str) -> anyhow::Result<Figure> {
    let picks: [fn(&Metrics) -> Option<f64>; 3] =
        [|m| Some(m.age_mean_ns / 1e9), |m| Some(m.age_p95_ns / 1e9), |m| Some(m.worst_key_age_ns / 1e9)];
    let names = ["mean", "95 % of the time", "worst object"];
    let drawing = bars(path, "Age of the newest value", "age, s", &names, &picks)?;
    Ok(figure(path, drawing, "Bars are medians, whiskers minimum to maximum.", command))
}

fn silence_bars(path: &[Cell<'_>], command: &str) -> anyhow::Result<Figure> {
    let drawing = bars(path, "Worst silence", "fair rounds", &[""], &[silence_rounds])?;
    Ok(figure(path, drawing, "Bars are medians, whiskers minimum to maximum.", command))
}

fn bars(
    path: &[Cell<'_>],
    what: &str,
    unit: &str,
    names: &[&str],
    picks: &[fn(&Metrics) -> Option<f64>],
) -> anyhow::Result<String> {
    let mut highest = 0.0_f64;
    let bars: Vec<Bars> = path
        .iter()
        .map(|cell| {
            let spreads: Vec<_> = picks.iter().map(|pick| metric(cell, pick)).collect();
            highest = spreads.iter().flatten().map(|spread| spread.max).fold(highest, f64::max);
            Bars {
                name: scheme::label(&cell.plan.scheme).to_owned(),
                colour: scheme::colour(&cell.plan.scheme),
                values: spreads.into_iter().map(|s| s.map(|s| (s.median, s.min, s.max))).collect(),
            }
        })
        .collect();
    let chart = BarChart {
        x_label: String::new(),
        categories: names.iter().map(|&name| name.to_owned()).collect(),
        y: Axis { label: unit.to_owned(), from: 0.0, to: axis_end(highest) },
        bars,
        level: None,
    };
    bar_chart(&format!("{what} over {}", title(&path[0])), &chart)
}

fn age_curves(path: &[Cell<'_>], command: &str) -> anyhow::Result<Figure> {
    let mut series = Vec::new();
    for cell in path {
        let Some(run) = cell.runs.first() else { continue };
        series.push(Series {
            name: scheme::label(&cell.plan.scheme).to_owned(),
            colour: scheme::colour(&cell.plan.scheme),
            points: age_curve(run, POINTS)?,
            band: Vec::new(),
        });
    }
    let oldest = series.iter().flat_map(|s| s.points.iter().map(|(_, age)| *age)).fold(0.0, f64::max);
    let chart = LineChart::new(
        ("time, s", path[0].plan.duration_s),
        ("age, s", axis_end(oldest)),
        series,
        Vec::new(),
    );
    let drawing = line_chart(&format!("Age over time over {}", title(&path[0])), &chart)?;
    Ok(figure(path, drawing, "One run of each scheme.", command))
}

fn figure(path: &[Cell<'_>], drawing: String, caption: &str, command: &str) -> Figure {
    let least = path.iter().map(|cell| cell.runs.len()).min().unwrap_or(0);
    Figure {
        title: title(&path[0]),
        drawing,
        caption: format!("{caption} At least {least} runs of each."),
        command: command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::testing::run;
    use super::super::schema::{Arrivals, Reader};
    use super::*;
    use crate::store::ResultLine as _;

    #[test]
    fn the_report_is_self_contained() {
        let mut runs = [run("tcp", Reader::Fast), run("freshwire", Reader::Fast)];
        runs[0].arrivals = Arrivals::of(&[(0, 1, 1_200_000_000), (1, 1, 1_300_000_000)]);
        for run in &mut runs {
            run.measure().unwrap();
        }
        let html = html(&runs).unwrap();
        crate::report::assert_self_contained(&html);
        assert!(html.contains("Who is left out") && html.contains("plain TCP"));
    }
}
