//! Runs as a table, as a line and as a page with the age over time.

use super::clip::{FPS, HEIGHT, WIDTH};
use super::run::{Plan, Run};
use super::segments::Segments;
use super::server::Server;
use crate::cells::{self, Plan as _, groups, link_label};
use crate::report::chart::{LineChart, Reference, Series, line_chart};
use crate::report::html::{self, Figure, Section};
use crate::report::palette::{BLUE, VERMILLION};
use crate::table::{Table, percent, time, with_range};

/// One run in a line.
pub(super) fn in_short(run: &Run) -> String {
    let trust = run.trust.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let Some(metrics) = &run.metrics else { return format!("nothing seen{trust}") };
    format!(
        "age {} median, {} at most; {} of {} keyframes{trust}",
        time(metrics.age.median_ns as f64),
        time(metrics.age.max_ns as f64),
        metrics.keys,
        metrics.keys_due
    )
}

/// One row for all repetitions of a link, player and server.
pub(super) fn table(runs: &[Run]) -> Table {
    let rows = cells::cells(runs).into_iter().map(|cell| {
        let (plan, group) = (&cell.plan, &cell.runs);
        let spread = |pick: fn(&Run) -> Option<f64>| cell.spread(pick);
        let count = |count: f64| format!("{count:.0}");
        let of = |part: fn(&Run) -> Option<f64>, whole: fn(&Run) -> Option<f64>| {
            format!("{} of {}", with_range(spread(part), count), with_range(spread(whole), count))
        };
        let metric = |pick: fn(&Run) -> Option<f64>| with_range(spread(pick), time);
        vec![
            link_label(&plan.link),
            plan.player.label().to_owned(),
            plan.server.label().to_owned(),
            group.len().to_string(),
            metric(|run| Some(run.metrics.as_ref().map_or(f64::INFINITY, |m| m.age.median_ns as f64))),
            metric(|run| Some(run.metrics.as_ref()?.age.p95_ns as f64)),
            metric(|run| Some(run.metrics.as_ref()?.age.max_ns as f64)),
            of(
                |run| Some(run.metrics.as_ref()?.pictures as f64),
                |run| Some(run.metrics.as_ref()?.captured as f64),
            ),
            of(
                |run| Some(run.metrics.as_ref()?.keys as f64),
                |run| Some(run.metrics.as_ref()?.keys_due as f64),
            ),
            metric(|run| Some(run.metrics.as_ref()?.freezes.longest_ns as f64)),
            metric(|run| run.metrics.as_ref()?.recovery.as_ns()),
            with_range(spread(|run| Some(run.metrics.as_ref()?.complaints as f64)), count),
            with_range(spread(|run| Some(run.damaged as f64)), count),
            with_range(spread(|run| run.segments.as_ref().and_then(Segments::full_share)), percent),
        ]
    });
    Table::new(
        "Age of what players show, from its capture; freezes; recovery to below 1 s after the link's return \
                  (median [min .. max] over runs)",
        3,
        "link | player | server | N | median age | p95 | max | pictures | keyframes | longest freeze | recovery | complaints | \
         torn | full segments",
        rows,
    )
}

/// The age over time, and all numbers, as one page.
pub(super) fn html(runs: &[Run]) -> anyhow::Result<String> {
    let command = &runs[0].environment.command;
    let mut figures = Vec::new();
    for same in groups(runs, |a, b| same_figure(a) == same_figure(b)) {
        figures.push(age(&same, command)?);
    }
    let sections = [
        Section {
            heading: "Age of what is shown".to_owned(),
            body: html::paragraph(
                "Each picture carries its number; its age is counted from its capture to its arrival, decoded, at the \
                 player. Every server is fed with the same bytes at the same pace.",
            ) + &html::figures(&figures),
        },
        Section { heading: "All numbers".to_owned(), body: html::table(&table(runs), command, |_, _| None) },
    ];
    let lead =
        format!("<p class=\"soft\">{WIDTH}x{HEIGHT}, {FPS} pictures a second, {} runs.</p>\n", runs.len());
    Ok(html::page("Players across a bad link", &lead, &sections, &runs[0].environment.line()))
}

/// The first run of each server.
fn age(runs: &[&Run], command: &str) -> anyhow::Result<Figure> {
    let plan = &runs[0].plan;
    let mut firsts: Vec<&Run> = Vec::new();
    for run in runs {
        if !firsts.iter().any(|first| first.plan.server == run.plan.server) {
            firsts.push(run);
        }
    }
    let series: Vec<Series> = firsts.iter().map(|run| series(run)).collect();
    let oldest =
        series.iter().flat_map(|series| series.points.iter().map(|(_, age)| *age)).fold(1.0, f64::max);
    let top = (oldest * 1.1).ceil();
    let back = plan.link.last_rise_ns().map(|at| at as f64 / 1e9);
    let references =
        back.map(|at| Reference { name: "the link is back".to_owned(), ends: [(at, 0.0), (at, top)] });
    let chart = LineChart::new(
        ("time, s", plan.duration_s),
        ("age, s", top),
        series,
        references.into_iter().collect(),
    );
    let title = format!("{}, {}", plan.player.label(), link_label(&plan.link));
    Ok(Figure {
        drawing: line_chart(&format!("Age at {title}"), &chart)?,
        caption: "One run of each server.".to_owned(),
        command: command.to_owned(),
        title,
    })
}

fn series(run: &Run) -> Series {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let begin = seconds(run.observed.end_ns) - run.plan.duration_s;
    let points = run.observed.ages().map(|(at, age)| (seconds(at) - begin, seconds(age)));
    Series {
        name: run.plan.server.label().to_owned(),
        colour: if run.plan.server == Server::Freshwire { BLUE } else { VERMILLION },
        points: points.filter(|(at, _)| *at >= 0.0).collect(),
        band: Vec::new(),
    }
}

/// Plans of one figure differ by their seed and their server alone.
fn same_figure(plan: &Plan) -> Plan {
    Plan { server: Server::Freshwire, ..plan.cell() }
}
