//! The report of `freshwire-lab layers`: our counterparts of Birkedal's figures.

use super::chart::{
    Axis, BarChart, Bars, LineChart, Mark, Reference, Scatter, Series, bar_chart, line_chart, scatter,
};
use super::html::{Figure, Number, Section, escape, figures, numbers, page, paragraph, table};
use super::palette::{GREEN, VERMILLION, scheme_colour};
use crate::cells::{Cell, by_path, gather};
use crate::metrics::{Spread, ecdf, goodput_curve};
use crate::results::LayersMetrics;
use crate::schema::{Experiment, Run, Source};
use crate::scheme;
use crate::table::{
    in_time, layers_summary, matrix, percent, published_total_mib, receive_rates, start_up, transit,
};

/// The whole report of a layered experiment as one HTML page.
///
/// Fails when no run is of a layered source, or when one contradicts itself.
pub(crate) fn layers_html(runs: &[Run]) -> anyhow::Result<String> {
    let cells = gather(runs, Experiment::Layers);
    anyhow::ensure!(!cells.is_empty(), "there is no run of a layered stream to report on");
    let command = &runs[0].environment.command;
    let mut sections = Vec::new();
    let (matrix_table, shares) = matrix(&cells);
    let first = matrix_table.labels;
    sections.push(Section {
        heading: "Usable by the deadline".to_owned(),
        body: paragraph(
            "All layers of a window are played together: a record counts when it and the layers below it arrived \
             by the window's start plus the deadline. The ideal is what a sender that knows the link could have \
             delivered. Blue is near the ideal, orange near nothing.",
        ) + &table(&matrix_table, command, |row, column| shares[row].get(column.checked_sub(first)?).copied()?),
    });
    sections.push(figure_section("Bytes of each layer", &cells, command, BYTES_INTRODUCTION, layer_bytes)?);
    sections.push(figure_section("Improper use", &cells, command, IMPROPER_INTRODUCTION, improper_use)?);
    if let Some(rates) = receive_rates(&cells) {
        sections.push(Section {
            heading: "What late choice costs".to_owned(),
            body: paragraph(
                "All bytes that the receiver read, useful or not: what dropping costs in plain rate.",
            ) + &table(&rates, command, |_, _| None),
        });
    }
    sections.push(figure_section("In time and late", &cells, command, IN_TIME_INTRODUCTION, in_time_bars)?);
    sections.push(figure_section(
        "Goodput within a playout deadline",
        &cells,
        command,
        GOODPUT_INTRODUCTION,
        goodput,
    )?);
    sections.push(figure_section("Arrival against playout", &cells, command, ARRIVAL_INTRODUCTION, arrival)?);
    for (heading, numbers) in [
        ("In time and late, in numbers", in_time(&cells)),
        ("Start-up buffers", start_up(&cells)),
        ("From socket to socket", transit(&cells)),
    ] {
        if let Some(numbers) = numbers {
            sections
                .push(Section { heading: heading.to_owned(), body: table(&numbers, command, |_, _| None) });
        }
    }
    sections.push(figure_section("Delay", &cells, command, DELAY_INTRODUCTION, delay)?);
    sections.push(Section {
        heading: "All numbers".to_owned(),
        body: table(&layers_summary(&cells), command, |_, _| None),
    });
    sections.retain(|section| !section.body.is_empty());
    Ok(page(
        "Late choice on a layered stream",
        &lead(runs, &cells),
        &sections,
        &(runs[0].environment.line() + UNITS),
    ))
}

/// Which runs were set aside, as HTML; empty when all could be believed.
pub(super) fn set_aside_notice(runs: &[Run], cells: &[Cell<'_, Run>]) -> String {
    let untrusted: Vec<&Run> = runs.iter().filter(|run| !run.trust.trustworthy).collect();
    let Some(reason) =
        untrusted.first().map(|run| run.trust.reason.as_deref().unwrap_or("no reason was noted"))
    else {
        return String::new();
    };
    let set_aside: usize = cells.iter().map(|cell| cell.set_aside).sum();
    let text = format!(
        "The machine was too busy for {} of {} runs; {set_aside} are not counted, the others have no better run to \
         stand in for them. The first reason: {reason}.",
        untrusted.len(),
        runs.len()
    );
    format!("<p class=\"notice\">{}</p>\n", escape(&text))
}

/// `N = 10` or `N = 8 to 10`, over all cells.
pub(super) fn repetitions(cells: &[&Cell<'_, Run>]) -> String {
    let counts = cells.iter().map(|cell| cell.runs.len());
    match (counts.clone().min(), counts.max()) {
        (Some(least), Some(most)) if least != most => format!("N = {least} to {most}"),
        (Some(count), _) => format!("N = {count}"),
        (None, _) => String::new(),
    }
}

/// The number of settings that a median is of.
pub(super) fn over_settings(count: usize) -> String {
    if count == 1 { String::new() } else { format!(", median of {count} settings") }
}

/// A round number at or above `value`, for the end of an axis.
pub(crate) fn axis_end(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let step = 10_f64.powf(value.log10().floor()) / 2.0;
    (value / step).ceil() * step
}

type Draw = fn(&[Cell<'_, Run>], &str) -> anyhow::Result<Vec<Figure>>;

/// A section with the figures of each path; without a body when there are none.
fn figure_section(
    heading: &str,
    cells: &[Cell<'_, Run>],
    command: &str,
    introduction: &str,
    draw: Draw,
) -> anyhow::Result<Section> {
    let mut drawn = Vec::new();
    let paths: Vec<&[Cell<'_, Run>]> = by_path(cells).collect();
    let shown = drawn_paths(&paths);
    for path in &shown {
        drawn.extend(draw(path, command)?);
    }
    let mut body = if drawn.is_empty() { String::new() } else { paragraph(introduction) + &figures(&drawn) };
    if !drawn.is_empty() && shown.len() < paths.len() {
        body += &paragraph(
            "Drawn for each link with the congestion control that came nearest to the ideal there; the tables have \
             all of them.",
        );
    }
    Ok(Section { heading: heading.to_owned(), body })
}

/// The paths that are drawn: all of them, or of many only the one with the best congestion control on each link.
fn drawn_paths<'c, 'r>(paths: &[&'c [Cell<'r, Run>]]) -> Vec<&'c [Cell<'r, Run>]> {
    if paths.len() <= MOST_PATHS {
        return paths.to_vec();
    }
    let best = |path: &[Cell<'_, Run>]| {
        let shares = path.iter().filter_map(|cell| cell.layers(|m| m.share_of_ideal));
        shares.map(|spread| spread.median).fold(0.0, f64::max)
    };
    let links = paths.chunk_by(|a, b| a[0].plan.link == b[0].plan.link);
    links.filter_map(|link| link.iter().max_by(|a, b| best(a).total_cmp(&best(b)))).copied().collect()
}

fn lead(runs: &[Run], cells: &[Cell<'_, Run>]) -> String {
    let mut html = set_aside_notice(runs, cells);
    if let Source::Layers { layers, record_bytes, window_ms, per_layer } = cells[0].plan.source {
        html += &format!(
            "<p class=\"soft\">{layers} layers of {} bytes in each window of {window_ms} ms, {} s, deadline {} ms, \
             over one TCP connection across an emulated link; the receiver is an unmodified TCP reader. {} runs.</p>\n",
            record_bytes * per_layer,
            cells[0].plan.duration_s,
            cells[0].plan.deadline_ms,
            runs.len()
        );
    }
    let number = |label: &str, schemes: &[&str]| {
        let limited = cells.iter().filter(|cell| cell.plan.link.rate_bps.is_some());
        let shown = limited.filter(|cell| schemes.contains(&cell.plan.scheme.as_str()));
        let spread =
            Spread::of(shown.filter_map(|cell| cell.layers(|m| m.share_of_ideal)).map(|s| s.median))?;
        let meaning = format!("of the ideal with {label} on limited links{}", over_settings(spread.n));
        Some(Number { value: percent(spread.median), meaning })
    };
    let shown = [
        number("plain TCP", &[scheme::TCP]),
        number("Freshwire", &[scheme::FRESHWIRE, scheme::FRESHWIRE_CHUNKED]),
    ];
    html + &numbers(&shown.into_iter().flatten().collect::<Vec<_>>())
}

/// Thesis figures 5.3 and 5.4.
fn layer_bytes(path: &[Cell<'_, Run>], command: &str) -> anyhow::Result<Vec<Figure>> {
    layer_bars(path, command, &[scheme::TCP, scheme::THESIS, scheme::FRESHWIRE, scheme::FRESHWIRE_CHUNKED])
}

/// Figure 5.5.
fn improper_use(path: &[Cell<'_, Run>], command: &str) -> anyhow::Result<Vec<Figure>> {
    if path.iter().all(|cell| cell.plan.scheme != scheme::THESIS_IMPROPER) {
        return Ok(Vec::new());
    }
    layer_bars(path, command, &[scheme::THESIS, scheme::THESIS_IMPROPER])
}

fn layer_bars(path: &[Cell<'_, Run>], command: &str, schemes: &[&str]) -> anyhow::Result<Vec<Figure>> {
    let shown: Vec<&Cell<'_, Run>> =
        path.iter().filter(|cell| schemes.contains(&cell.plan.scheme.as_str())).collect();
    let Some(Source::Layers { layers, record_bytes, window_ms, per_layer }) =
        shown.first().map(|cell| &cell.plan.source)
    else {
        return Ok(Vec::new());
    };
    let bars = shown.iter().map(|cell| Bars {
        name: scheme::label(&cell.plan.scheme).to_owned(),
        colour: scheme_colour(&cell.plan.scheme),
        values: (0..usize::from(*layers))
            .map(|layer| {
                let spread =
                    cell.layers(|m| m.received_layer_bytes.get(layer).map(|&bytes| bytes as f64 / 1000.0))?;
                Some((spread.median, spread.min, spread.max))
            })
            .collect(),
    });
    let offered_kb = path[0].plan.duration_s * 1e3 / f64::from(*window_ms)
        * f64::from(*record_bytes * *per_layer)
        / 1000.0;
    let chart = BarChart {
        x_label: "layer (1 is the base)".to_owned(),
        categories: (1..=*layers).map(|layer| layer.to_string()).collect(),
        y: Axis { label: "received, kB".to_owned(), from: 0.0, to: offered_kb * 1.08 },
        bars: bars.collect(),
        level: Some(("offered".to_owned(), offered_kb)),
    };
    let title = path[0].path_label();
    let totals: Vec<String> = shown.iter().map(|cell| total_text(cell)).collect();
    let caption = format!(
        "In {} s: {}. Bars are medians, whiskers minimum to maximum, {}.",
        path[0].plan.duration_s,
        totals.join("; "),
        repetitions(&shown)
    );
    let drawing = bar_chart(&format!("Bytes of each layer received over {title}"), &chart)?;
    Ok(vec![Figure { title, drawing, caption, command: command.to_owned() }])
}

fn total_text(cell: &Cell<'_, Run>) -> String {
    let mib = |rate_kibit: f64| rate_kibit * cell.plan.duration_s / 8.0 / 1024.0;
    let ours = cell.layers(|m| Some(mib(m.receive_rate_kibit))).map_or(0.0, |spread| spread.median);
    let published =
        published_total_mib(cell).map(|total| format!(" (published {total:.2} MiB)")).unwrap_or_default();
    format!("{} {ours:.2} MiB{published}", scheme::label(&cell.plan.scheme))
}

/// Paper figure 7: a figure for each scheme of it.
fn in_time_bars(path: &[Cell<'_, Run>], command: &str) -> anyhow::Result<Vec<Figure>> {
    let schemes = [scheme::TCP, scheme::THESIS, scheme::FRESHWIRE, scheme::FRESHWIRE_CHUNKED];
    let shown = path.iter().filter(|cell| schemes.contains(&cell.plan.scheme.as_str()));
    let figure = |cell: &Cell<'_, Run>| {
        let Source::Layers { layers, record_bytes, window_ms, per_layer } = cell.plan.source else {
            return Ok(None);
        };
        let bars = |name: &str, colour, pick: &dyn Fn(&LayersMetrics, usize) -> Option<u64>| Bars {
            name: name.to_owned(),
            colour,
            values: (0..usize::from(layers))
                .map(|layer| {
                    let spread = cell.layers(|m| Some(pick(m, layer)? as f64 / 1000.0))?;
                    Some((spread.median, spread.min, spread.max))
                })
                .collect(),
        };
        let in_time = |m: &LayersMetrics, layer: usize| m.in_time_layer_bytes.get(layer).copied();
        let late = |m: &LayersMetrics, layer: usize| {
            m.received_layer_bytes.get(layer)?.checked_sub(in_time(m, layer)?)
        };
        let offered_kb =
            cell.plan.duration_s * 1e3 / f64::from(window_ms) * f64::from(record_bytes * per_layer) / 1000.0;
        let chart = BarChart {
            x_label: "layer (1 is the base)".to_owned(),
            categories: (1..=layers).map(|layer| layer.to_string()).collect(),
            y: Axis { label: "received, kB".to_owned(), from: 0.0, to: offered_kb * 1.08 },
            bars: vec![bars("in time", GREEN, &in_time), bars("late", VERMILLION, &late)],
            level: Some(("offered".to_owned(), offered_kb)),
        };
        let title = format!("{}, {}", scheme::label(&cell.plan.scheme), cell.path_label());
        let drawing = bar_chart(&format!("Bytes of each layer in time and late: {title}"), &chart)?;
        let caption = format!(
            "Bars are medians, whiskers minimum to maximum, {}.",
            repetitions(std::slice::from_ref(&cell))
        );
        Ok(Some(Figure { title, drawing, caption, command: command.to_owned() }))
    };
    shown.filter_map(|cell| figure(cell).transpose()).collect()
}

/// Over all layers, for every playout deadline.
fn goodput(path: &[Cell<'_, Run>], command: &str) -> anyhow::Result<Vec<Figure>> {
    let plan = &path[0].plan;
    let longest_s = (plan.duration_s / 3.0).clamp(plan.deadline_ms / 500.0, 20.0);
    let deadlines_s: Vec<f64> = (0..=200).map(|step| longest_s * f64::from(step) / 200.0).collect();
    let mut highest = 0.0_f64;
    let series = path.iter().map(|cell| {
        let curves: Vec<Vec<f64>> = cell.runs.iter().map(|run| goodput_curve(run, &deadlines_s)).collect();
        let spreads = deadlines_s.iter().enumerate().filter_map(|(place, deadline_s)| {
            Some((*deadline_s, Spread::of(curves.iter().map(|curve| curve[place] / 1024.0))?))
        });
        let spreads: Vec<(f64, Spread)> = spreads.collect();
        highest = spreads.iter().map(|(_, spread)| spread.max).fold(highest, f64::max);
        Series {
            name: scheme::label(&cell.plan.scheme).to_owned(),
            colour: scheme_colour(&cell.plan.scheme),
            points: spreads.iter().map(|(at, spread)| (*at, spread.median)).collect(),
            band: spreads.iter().map(|(at, spread)| (*at, spread.min, spread.max)).collect(),
        }
    });
    let series: Vec<Series> = series.collect();
    let deadline_s = plan.deadline_ms / 1000.0;
    let top = axis_end(highest);
    let chart = LineChart {
        x: Axis { label: "playout deadline, s".to_owned(), from: 0.0, to: longest_s },
        y: Axis { label: "goodput, Kibit/s".to_owned(), from: 0.0, to: top },
        series,
        references: vec![Reference {
            name: "the sender's deadline".to_owned(),
            ends: [(deadline_s, 0.0), (deadline_s, top)],
        }],
    };
    let title = path[0].path_label();
    let drawing = line_chart(&format!("Goodput within a playout deadline over {title}"), &chart)?;
    let caption = format!(
        "Lines are medians, bands minimum to maximum, {}.",
        repetitions(&path.iter().collect::<Vec<_>>())
    );
    Ok(vec![Figure { title, drawing, caption, command: command.to_owned() }])
}

/// Paper figure 8: one run of each scheme, the one with the lowest seed.
fn arrival(path: &[Cell<'_, Run>], command: &str) -> anyhow::Result<Vec<Figure>> {
    let schemes = [scheme::TCP, scheme::THESIS, scheme::FRESHWIRE_CHUNKED, scheme::FRESHWIRE];
    let mut shown: Vec<&Cell<'_, Run>> =
        path.iter().filter(|cell| schemes.contains(&cell.plan.scheme.as_str())).collect();
    // One late choice is enough, the paper's if it is there: two would hide each other.
    shown.truncate(2);
    let Some(plan) = shown.first().map(|cell| &cell.plan) else { return Ok(Vec::new()) };
    let marks = shown.iter().filter_map(|cell| {
        let run = first_run(cell)?;
        Some(Mark {
            name: scheme::label(&cell.plan.scheme).to_owned(),
            colour: scheme_colour(&cell.plan.scheme),
            points: playout_and_arrival(run),
        })
    });
    let marks: Vec<Mark> = marks.collect();
    let latest = marks.iter().flat_map(|mark| mark.points.iter().map(|(_, y)| *y)).fold(0.0, f64::max);
    let top = axis_end(latest.clamp(plan.duration_s, plan.duration_s * 2.0));
    let buffers = [0.0, 10.0, 20.0].into_iter().filter(|buffer_s| plan.duration_s > 2.0 * buffer_s);
    let chart = Scatter {
        x: Axis { label: "playout time of the record, s".to_owned(), from: 0.0, to: plan.duration_s },
        y: Axis { label: "arrival, s".to_owned(), from: 0.0, to: top },
        marks,
        references: buffers.map(|buffer_s| buffer_line(buffer_s, plan.duration_s)).collect(),
    };
    let title = path[0].path_label();
    let drawing = scatter(&format!("Arrival against playout time over {title}"), &chart)?;
    let cut = if latest > top { "; what arrived above the frame is not drawn" } else { "" };
    let caption = format!(
        "One point for each record that arrived, gaps for those that were dropped; seed {}{cut}.",
        shown
            .iter()
            .filter_map(|cell| first_run(cell))
            .map(|run| run.plan.link.seed)
            .min()
            .unwrap_or_default()
    );
    Ok(vec![Figure { title, drawing, caption, command: command.to_owned() }])
}

fn first_run<'a>(cell: &Cell<'a, Run>) -> Option<&'a Run> {
    cell.runs.iter().copied().min_by_key(|run| run.plan.link.seed)
}

/// Playout is at the window's end, when all of its layers have been submitted.
fn playout_and_arrival(run: &Run) -> Vec<(f64, f64)> {
    let Source::Layers { window_ms, .. } = run.plan.source else { return Vec::new() };
    let playout_s = |window: u32| (f64::from(window) + 1.0) * f64::from(window_ms) / 1000.0;
    run.records.iter().filter_map(|r| Some((playout_s(r.group), r.arrived_ns? as f64 / 1e9))).collect()
}

fn buffer_line(buffer_s: f64, duration_s: f64) -> Reference {
    let name = if buffer_s == 0.0 {
        "no startup buffer".to_owned()
    } else {
        format!("{buffer_s} s of startup buffer")
    };
    Reference { name, ends: [(0.0, buffer_s), (duration_s, duration_s + buffer_s)] }
}

fn delay(path: &[Cell<'_, Run>], command: &str) -> anyhow::Result<Vec<Figure>> {
    let plan = &path[0].plan;
    let longest_s = plan.deadline_ms / 1000.0 * 2.0;
    let series = path.iter().map(|cell| {
        let delays = cell.runs.iter().flat_map(|run| run.records.iter());
        let curve = ecdf(delays.map(|r| r.arrived_ns.map(|at| at.saturating_sub(r.generated_ns))));
        Series {
            name: scheme::label(&cell.plan.scheme).to_owned(),
            colour: scheme_colour(&cell.plan.scheme),
            points: sampled(&curve, longest_s),
            band: Vec::new(),
        }
    });
    let deadline_s = plan.deadline_ms / 1000.0;
    let chart = LineChart {
        x: Axis { label: "delay of a record, s".to_owned(), from: 0.0, to: longest_s },
        y: Axis { label: "share of offered, %".to_owned(), from: 0.0, to: 100.0 },
        series: series.collect(),
        references: vec![Reference {
            name: "the sender's deadline".to_owned(),
            ends: [(deadline_s, 0.0), (deadline_s, 100.0)],
        }],
    };
    let title = path[0].path_label();
    let drawing = line_chart(&format!("Distribution of the delay over {title}"), &chart)?;
    let caption = format!(
        "All repetitions together, {}; a record that never arrived counts as one that takes for ever.",
        repetitions(&path.iter().collect::<Vec<_>>())
    );
    Ok(vec![Figure { title, drawing, caption, command: command.to_owned() }])
}

/// The curve in per cent at even steps up to `end`: more corners than that nobody can see.
fn sampled(curve: &[(f64, f64)], end: f64) -> Vec<(f64, f64)> {
    let at = |step: u32| {
        let x = end * f64::from(step) / 400.0;
        let passed = curve.partition_point(|(delay, _)| *delay <= x);
        (x, passed.checked_sub(1).map_or(0.0, |last| curve[last].1 * 100.0))
    };
    (0..=400).map(at).collect()
}

const MOST_PATHS: usize = 12;
pub(super) const UNITS: &str = ". 1 Kibit = 1024 bit, 1 MiB = 1048576 bytes.";
const BYTES_INTRODUCTION: &str = "Thesis figures 5.3 and 5.4. Plain TCP delivers all layers alike, and late; a choice at \
    the last moment keeps the base layer whole and gives up the least significant layers first.";
const IMPROPER_INTRODUCTION: &str = "Birkedal 2006, figure 5.5. The rule at the end of each layer instead of each window drops \
    the middle layers, without which the upper ones are useless.";
const IN_TIME_INTRODUCTION: &str = "Paper figure 7. In time is what arrived by its window's start plus the deadline; late, what \
    arrived after that and within the run.";
const GOODPUT_INTRODUCTION: &str = "What a player can use that waits this long before it plays a window.";
const ARRIVAL_INTRODUCTION: &str = "Paper figure 8. A record below a line is in time for a player with that startup \
    buffer; above it, it is too late.";
const DELAY_INTRODUCTION: &str = "From a record's submission to its arrival, over all that were offered.";

/// Fails when a page would load anything, runs a script, or a drawing kept a colour that only suits one background.
#[cfg(test)]
pub(crate) fn assert_self_contained(html: &str) {
    for foreign in ["http://", "https://", "<script", "<link", "url(", "@import", "NaN", "#010101"] {
        assert!(!html.contains(foreign), "the page contains {foreign}");
    }
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(html.contains("<svg"));
}

#[cfg(test)]
mod tests;
