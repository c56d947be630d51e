//! The report: a table for the terminal, a page, and `rows.jsonl` for the second computation.

use std::path::Path;

use anyhow::Context as _;
use plotters::style::RGBColor;
use serde_json::json;

use super::catalogue::{Catalogue, Chart, Item};
use super::evaluate::{Evaluated, Judged, Numbered, Point};
use super::measure::{Origin, State};
use crate::output::{self, json_line};
use crate::report::axis_end;
use crate::report::chart::{Axis, BarChart, Bars, LineChart, Series, bar_chart, line_chart};
use crate::report::html::{Figure, Section, escape, figures, page, paragraph, table};
use crate::report::palette::{BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW};
use crate::table::Table;

const COLOURS: [RGBColor; 7] = [BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, YELLOW];
/// More points than this are a curve, of which a table shows the range.
const MOST_CELLS: usize = 4;

/// An item with its results, which some of its runs may not have.
pub(super) struct Shown<'a> {
    pub(super) item: &'a Item,
    pub(super) runs: Vec<(&'a str, State)>,
    pub(super) found: Evaluated<'a>,
}

impl Shown<'_> {
    /// Whether nothing contradicts the catalogue; with `strict` requirements must be there.
    pub(super) fn is_as_expected(&self, strict: bool) -> bool {
        let is_fine = |state: &State| match state {
            State::Measured(_) | State::Absent(_) => true,
            State::Skipped(_) => !strict,
            State::Failed(_) => false,
        };
        self.runs.iter().all(|(_, state)| is_fine(state)) && self.found.is_as_expected()
    }

    fn origins(&self) -> impl Iterator<Item = &Origin> {
        self.runs
            .iter()
            .filter_map(|(_, state)| if let State::Measured(origin) = state { Some(&**origin) } else { None })
    }

    /// A line for each run without a result.
    fn obstacles(&self) -> impl Iterator<Item = String> {
        self.runs.iter().filter_map(|(run, state)| match state {
            State::Measured(_) => None,
            State::Skipped(why) => Some(format!("{run} was skipped: {why}")),
            State::Failed(why) => Some(format!("{run} failed: {why}")),
            State::Absent(why) => Some(format!("{run}: {why}")),
        })
    }
}

/// Prints the table, and writes the page and the rows. With the catalogue, what has no file is said, and the drawings are listed.
pub(super) fn write(shown: &[Shown<'_>], catalogue: Option<&Catalogue>, out: &Path) -> anyhow::Result<()> {
    let mut sections = Vec::new();
    let mut lines = Vec::new();
    for shown in shown {
        output::print(&terminal(shown))?;
        sections.push(section(shown)?);
        lines.extend(rows(shown)?);
    }
    if let Some(catalogue) = catalogue {
        let gaps = catalogue.gaps();
        anyhow::ensure!(gaps.is_empty(), "the catalogue is not complete: {}", gaps.join("; "));
        sections.push(drawings(catalogue));
    }
    let rows = out.join("rows.jsonl");
    std::fs::write(&rows, lines.join("\n") + "\n")
        .with_context(|| format!("cannot write {}", rows.display()))?;
    let report = out.join("report.html");
    let lead = paragraph(
        "Tables and figures of five publications, measured again. A ratio is ours divided by the published number.",
    );
    let text = page("The five publications, measured again", &lead, &sections, "");
    std::fs::write(&report, text).with_context(|| format!("cannot write {}", report.display()))?;
    output::say(&format!("report: {}", report.display()));
    Ok(())
}

fn terminal(shown: &Shown<'_>) -> String {
    let mut text = format!("{} ({})\n", shown.item.title(), shown.item.id);
    if shown.origins().next().is_some() {
        text = numbers(&shown.found, text.trim_end().to_owned()).to_terminal();
        for claim in &shown.found.claims {
            text += &format!("  {}: {}\n", verdict(claim.holds), claim.claim.says);
        }
        text += &format!("  why: {}\n", shown.item.why);
    }
    shown.obstacles().for_each(|obstacle| text += &format!("  {obstacle}\n"));
    text
}

fn verdict(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "holds",
        Some(false) => "DOES NOT HOLD",
        None => "not judged in this form",
    }
}

/// A row for each row of the item: published, ours, ratio, what was expected.
fn numbers(found: &Evaluated<'_>, caption: String) -> Table {
    let row = |numbered: &Numbered<'_>| {
        let row = numbered.row;
        let published: Vec<Point> = row
            .published
            .iter()
            .flat_map(|numbers| numbers.as_slice())
            .map(|&y| Point { x: 0.0, y, least: y, most: y })
            .collect();
        let ratios: Vec<Point> =
            numbered.ratios.iter().map(|&y| Point { x: 0.0, y, least: y, most: y }).collect();
        let expected = match (numbered.as_expected, row.ratio) {
            (Some(false), _) => "MISSED",
            (Some(true), _) => "met",
            (None, _) => "–",
        };
        let wanted = row.ratio.map_or("–".to_owned(), |[least, most]| format!("{least} .. {most}"));
        let busy = match (numbered.busy, numbered.lines) {
            (0, lines) => lines.to_string(),
            (busy, lines) => format!("{lines} ({busy} busy)"),
        };
        vec![
            row.name.clone(),
            row.unit.clone(),
            cells(&published),
            cells(&numbered.points),
            cells(&ratios),
            wanted,
            expected.to_owned(),
            busy,
        ]
    };
    Table::new(
        caption,
        2,
        "row | unit | published | ours | ratio | expected | verdict | results",
        found.rows.iter().map(row),
    )
}

fn cells(points: &[Point]) -> String {
    if points.len() > MOST_CELLS {
        let values = || points.iter().map(|point| point.y);
        let (least, most) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        return format!("{} .. {} ({} points)", number(least), number(most), points.len());
    }
    let cell = |point: &Point| {
        let range = if point.least < point.most {
            format!(" [{} .. {}]", number(point.least), number(point.most))
        } else {
            String::new()
        };
        number(point.y) + &range
    };
    if points.is_empty() { "–".to_owned() } else { points.iter().map(cell).collect::<Vec<_>>().join(", ") }
}

/// Three digits that say something.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn section(shown: &Shown<'_>) -> anyhow::Result<Section> {
    let item = shown.item;
    let mut body = paragraph(&format!("Section {}. {}", item.section, item.shows));
    if shown.origins().next().is_some() {
        body += &table(&numbers(&shown.found, item.item.clone()), "", |_, _| None);
        let sentence =
            |claim: &Judged<'_>| format!("<li>{}: {}</li>", verdict(claim.holds), escape(&claim.claim.says));
        body += &format!("<ul>{}</ul>\n", shown.found.claims.iter().map(sentence).collect::<String>());
        if let Some(chart) = &item.chart {
            body += &figures(&[figure(chart, shown)?]);
        }
        body += &paragraph(&format!("Why: {}", item.why));
        body.extend(shown.origins().map(|origin| paragraph(&origin.text())));
    }
    body.extend(shown.obstacles().map(|obstacle| paragraph(&obstacle)));
    Ok(Section { heading: item.title(), body })
}

impl Origin {
    fn text(&self) -> String {
        let Self { commands, commit, dirty, release, kernel, cpu, cores, load, seconds, .. } = self;
        let changes = if *dirty { " with uncommitted changes" } else { "" };
        let build = if *release { "" } else { ", a debug build" };
        format!(
            "Made in {seconds:.0} s by {} at commit {commit}{changes}{build}; {cpu}, {cores} cores, Linux {kernel}, load {:.1} before and {:.1} after.",
            commands.join("; "),
            load[0],
            load[1]
        )
    }
}

/// The rows that are curves in the axis's unit, and the published numbers beside them.
fn figure(chart: &Chart, shown: &Shown<'_>) -> anyhow::Result<Figure> {
    let has_unit = shown.found.rows.iter().any(|row| row.row.unit == chart.y);
    let is_drawn = |row: &&Numbered<'_>| row.points.len() > 1 && (!has_unit || row.row.unit == chart.y);
    let curves: Vec<&Numbered<'_>> = shown.found.rows.iter().filter(is_drawn).collect();
    let most = |of: fn(&Point) -> f64| curves.iter().flat_map(|row| &row.points).map(of).fold(0.0, f64::max);
    let (x_end, y_end) = (most(|point| point.x), axis_end(most(|point| point.most)));
    let coloured = || curves.iter().enumerate().map(|(place, row)| (*row, COLOURS[place % COLOURS.len()]));
    let title = shown.item.title();
    let drawing = if chart.bars {
        let bars = coloured().map(|(row, colour)| Bars {
            name: row.row.name.clone(),
            colour,
            values: row.points.iter().map(|point| Some((point.y, point.least, point.most))).collect(),
        });
        let chart = BarChart {
            x_label: chart.x.clone(),
            categories: (1..=x_end as usize).map(|place| place.to_string()).collect(),
            y: Axis { label: chart.y.clone(), from: 0.0, to: y_end },
            bars: bars.collect(),
            level: None,
        };
        bar_chart(&title, &chart)?
    } else {
        let ours = coloured().map(|(row, colour)| Series {
            name: row.row.name.clone(),
            colour,
            points: row.points.iter().map(|point| (point.x, point.y)).collect(),
            band: row.points.iter().map(|point| (point.x, point.least, point.most)).collect(),
        });
        let theirs = curves.iter().filter_map(|row| {
            let published = row.row.published.as_ref()?.as_slice();
            let points = row.points.iter().zip(published).map(|(point, y)| (point.x, *y)).collect();
            Some(Series {
                name: format!("{}, published", row.row.name),
                colour: GREY,
                points,
                band: Vec::new(),
            })
        });
        let series = theirs.chain(ours).collect();
        line_chart(&title, &LineChart::new((&chart.x, x_end), (&chart.y, y_end), series, Vec::new()))?
    };
    let caption = "Medians; bands and whiskers are the least and the greatest.".to_owned();
    Ok(Figure { title, drawing, caption, command: String::new() })
}

/// What needs no measurement.
fn drawings(catalogue: &Catalogue) -> Section {
    let rows = catalogue.publications.iter().flat_map(|publication| {
        publication
            .drawings
            .iter()
            .map(|(item, why)| vec![publication.name.clone(), item.clone(), why.clone()])
    });
    let table_of = Table::new("Without a measurement", 3, "publication | item | what it is", rows);
    Section { heading: "Drawings and lists".to_owned(), body: table(&table_of, "", |_, _| None) }
}

/// Every number and verdict as a line of JSON.
fn rows(shown: &Shown<'_>) -> anyhow::Result<Vec<String>> {
    let id = &shown.item.id;
    let points = |points: &[Point]| {
        points.iter().map(|Point { x, y, least, most }| [*x, *y, *least, *most]).collect::<Vec<_>>()
    };
    let rows = shown.found.rows.iter().filter(|row| !row.points.is_empty()).map(|row| {
        let Numbered { ratios, as_expected, lines, busy, .. } = row;
        let data = json!({
            "item": id, "row": row.row.name, "points": points(&row.points), "ratios": ratios, "as_expected": as_expected,
            "lines": lines, "busy": busy,
        });
        json_line("evidence", &data)
    });
    let claims = shown.found.claims.iter().filter(|claim| claim.holds.is_some()).map(|claim| {
        json_line("claim", &json!({ "item": id, "says": claim.claim.says, "holds": claim.holds }))
    });
    rows.chain(claims).collect()
}
